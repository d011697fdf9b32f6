// Checks the collectives in which one rank, or each rank, has a part to itself.

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "client/src/request/tensor_checks.h"
#include "daemon/base/limits.h"
#include "daemon/base/parts.h"

namespace rueda::client {
namespace {

// Returns the number of rows of the first dimension, of this rank's input or of all parts.
Result<int64_t> first_dim_of(const rueda_tensor* tensor) {
  if (tensor == nullptr) return invalid("the tensor is NULL");
  if (tensor->name == nullptr) return invalid("the tensor has no name");
  const std::string name = quoted(tensor->name);
  if (tensor->ndim > RUEDA_ABI_MAX_DIMS) {
    return invalid("tensor " + name + " has " + std::to_string(tensor->ndim) +
                   " dimensions; 0 to 8 are allowed");
  }
  if (tensor->ndim < 1 || tensor->shape == nullptr) {
    return invalid("tensor " + name + " has no first dimension to be cut; give it one");
  }
  if (tensor->shape[0] < 0 || tensor->shape[0] > static_cast<int64_t>(limits::kMaxTensorBytes)) {
    return invalid("tensor " + name + " has the impossible first dimension " +
                   std::to_string(tensor->shape[0]));
  }
  return tensor->shape[0];
}

Result<std::vector<int64_t>> read_counts(const rueda_tensor& tensor, const int64_t* counts,
                                         size_t count) {
  if (count > limits::kMaxCounts) {
    return Status(Code::kResourceExhausted,
                  "tensor " + quoted(tensor.name) + " has " + std::to_string(count) +
                      " parts of their own size; at most " + std::to_string(limits::kMaxCounts) +
                      " are possible");
  }
  std::vector<int64_t> read(counts, counts + count);
  for (const int64_t rows : read) {
    if (rows >= 0 && rows <= static_cast<int64_t>(limits::kMaxTensorBytes)) continue;
    return invalid("tensor " + quoted(tensor.name) + " has a part of " + std::to_string(rows) +
                   " rows");
  }
  return read;
}

// Tells whether the counts are those that are assumed without counts. The ranks' descriptors must
// be equal, whether or not a rank spells the counts out.
bool are_even(const std::vector<int64_t>& counts, CollectiveKind kind, int64_t rows, int places) {
  if (kind == CollectiveKind::kAlltoall) {
    return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  }
  const std::vector<ElementRange> even = parts_of({.kind = kind, .shape = {&rows, 1}}, places);
  return std::equal(counts.begin(), counts.end(), even.begin(),
                    [](int64_t count, const ElementRange& part) { return count == part.count(); });
}

// Describes a parted tensor. `whole_rows` is the number of rows of all parts together.
Result<TensorRequest> describe_parts(CollectiveKind kind, const rueda_tensor& tensor,
                                     int64_t whole_rows, std::vector<int64_t> counts, int root_rank,
                                     const SetPlace& self) {
  std::vector<int64_t> shape(tensor.shape, tensor.shape + std::max(tensor.ndim, 0));
  shape[0] = whole_rows;
  rueda_tensor whole = tensor;
  whole.shape = shape.data();
  Result<TensorRequest> described = describe(&whole, kind);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  request.descriptor.place = self.place;
  request.descriptor.places = self.places;
  const PartedTensor all{tensor.name, kind, shape, counts};
  if (Status status = check_parts(all, self.places); !status.is_ok()) return status;
  if (!counts.empty() && are_even(counts, kind, whole_rows, self.places)) counts.clear();
  request.counts = std::move(counts);
  request.descriptor.count_count = static_cast<uint32_t>(request.counts.size());
  if (has_root(kind)) {
    if (Status status = set_root(root_rank, self.world_size, request); !status.is_ok()) {
      return status;
    }
  }
  const Extent extent = extent_of({tensor.name, kind, shape, request.counts}, self.place,
                                  self.places, root_rank == self.rank);
  const auto bytes = [&](int64_t elements) {
    return static_cast<size_t>(elements) * request.element_bytes;
  };
  request.input_bytes = bytes(extent.input);
  request.output_bytes = bytes(extent.output);
  request.input_at_bytes = bytes(extent.input_at);
  request.output_at_bytes = bytes(extent.output_at);
  request.can_be_in_place = extent.can_be_in_place;
  return request;
}

Result<TensorRequest> with_memory(Result<TensorRequest> described, const rueda_tensor& tensor) {
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  if (Status status = set_memory(tensor, request); !status.is_ok()) return status;
  return request;
}

// Compares the rows that this rank has with those that the list of all ranks has for it.
Status check_own(const rueda_tensor& tensor, int64_t own, int64_t told, const SetPlace& self) {
  if (own == told) return Status::ok();
  return invalid("tensor " + quoted(tensor.name) + " has " + std::to_string(own) +
                 " rows on rank " + std::to_string(self.rank) +
                 ", and the list of all ranks' has " + std::to_string(told) + " for it");
}

}  // namespace

Result<TensorRequest> check_reduce(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                   int root_rank, const SetPlace& self) {
  Result<TensorRequest> described = describe(tensor, CollectiveKind::kReduce);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  Status status = set_options(options, request);
  if (status.is_ok()) status = set_root(root_rank, self.world_size, request);
  if (!status.is_ok()) return status;
  if (root_rank != self.rank) request.output_bytes = 0;
  return with_memory(std::move(request), *tensor);
}

Result<TensorRequest> check_gathering(CollectiveKind kind, const rueda_tensor* tensor,
                                      const int64_t* first_dims, int root_rank,
                                      const SetPlace& self) {
  const Result<int64_t> own = first_dim_of(tensor);
  if (!own.is_ok()) return own.status();
  std::vector<int64_t> counts;
  int64_t rows = own.value() * self.places;
  if (first_dims != nullptr) {
    Result<std::vector<int64_t>> read =
        read_counts(*tensor, first_dims, static_cast<size_t>(self.places));
    if (!read.is_ok()) return read.status();
    counts = std::move(read).value();
    const int64_t told = counts[static_cast<size_t>(self.place)];
    if (Status status = check_own(*tensor, own.value(), told, self); !status.is_ok()) return status;
    rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  return with_memory(describe_parts(kind, *tensor, rows, std::move(counts), root_rank, self),
                     *tensor);
}

Result<TensorRequest> check_scattering(CollectiveKind kind, const rueda_tensor* tensor,
                                       const int64_t* first_dims,
                                       const rueda_reduce_options* options, int root_rank,
                                       const SetPlace& self) {
  const Result<int64_t> rows = first_dim_of(tensor);
  if (!rows.is_ok()) return rows.status();
  std::vector<int64_t> counts;
  if (first_dims != nullptr) {
    Result<std::vector<int64_t>> read =
        read_counts(*tensor, first_dims, static_cast<size_t>(self.places));
    if (!read.is_ok()) return read.status();
    counts = std::move(read).value();
  }
  Result<TensorRequest> described =
      describe_parts(kind, *tensor, rows.value(), std::move(counts), root_rank, self);
  if (described.is_ok() && kind == CollectiveKind::kReduceScatter) {
    TensorRequest request = std::move(described).value();
    if (Status status = set_options(options, request); !status.is_ok()) return status;
    described = std::move(request);
  }
  return with_memory(std::move(described), *tensor);
}

Result<TensorRequest> check_alltoall(const rueda_tensor* tensor, const int64_t* splits,
                                     const SetPlace& self) {
  const Result<int64_t> own = first_dim_of(tensor);
  if (!own.is_ok()) return own.status();
  if (splits == nullptr) {
    if (own.value() % self.places != 0) {
      return invalid("tensor " + quoted(tensor->name) + " has " + std::to_string(own.value()) +
                     " rows, which cannot be split equally among " + std::to_string(self.places) +
                     " ranks; give splits");
    }
    return with_memory(
        describe_parts(CollectiveKind::kAlltoall, *tensor, own.value() * self.places, {}, -1, self),
        *tensor);
  }
  const auto places = static_cast<size_t>(self.places);
  Result<std::vector<int64_t>> read = read_counts(*tensor, splits, places * places);
  if (!read.is_ok()) return read.status();
  std::vector<int64_t> counts = std::move(read).value();
  const auto mine = counts.begin() + static_cast<std::ptrdiff_t>(places) * self.place;
  const int64_t told = std::accumulate(mine, mine + self.places, int64_t{0});
  if (Status status = check_own(*tensor, own.value(), told, self); !status.is_ok()) return status;
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return with_memory(
      describe_parts(CollectiveKind::kAlltoall, *tensor, rows, std::move(counts), -1, self),
      *tensor);
}

}  // namespace rueda::client
