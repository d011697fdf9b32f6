#include "daemon/base/parts.h"

#include <algorithm>
#include <string>

#include "daemon/base/check.h"

namespace rueda {
namespace {

Status invalid(const PartedTensor& tensor, const std::string& what) {
  return Status(Code::kInvalidArgument, "the " + std::string(to_string(tensor.kind)) +
                                            " of tensor \"" + std::string(tensor.name) + "\" " +
                                            what);
}

int64_t rows_of(const PartedTensor& tensor) { return tensor.shape.front(); }

int64_t row_elements(const PartedTensor& tensor) {
  int64_t product = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) product *= tensor.shape[i];
  return product;
}

// Returns the rows of a rank's part if parts are as even as can be, where the first ones have one
// more.
int64_t even_count(int64_t rows, int place, int ranks) {
  return rows / ranks + (place < rows % ranks ? 1 : 0);
}

}  // namespace

Status check_parts(const PartedTensor& tensor, int ranks) {
  if (!has_parts(tensor.kind)) return Status::ok();
  if (tensor.shape.empty()) return invalid(tensor, "has no first dimension to be cut");
  const bool is_exchange = tensor.kind == CollectiveKind::kAlltoall;
  const int64_t parts = is_exchange ? int64_t{ranks} * ranks : ranks;
  if (tensor.counts.empty()) {
    if (!is_exchange || rows_of(tensor) % parts == 0) return Status::ok();
    return invalid(tensor, "has " + std::to_string(rows_of(tensor)) +
                               " rows on all ranks together, which " + std::to_string(ranks) +
                               " ranks cannot exchange in equal parts; give counts");
  }
  if (static_cast<int64_t>(tensor.counts.size()) != parts) {
    return invalid(tensor, "has " + std::to_string(tensor.counts.size()) + " counts, and " +
                               std::to_string(ranks) + " ranks need " + std::to_string(parts));
  }
  int64_t room = rows_of(tensor);
  for (const int64_t count : tensor.counts) {
    if (count < 0 || count > room) {
      return invalid(tensor, "has a count of " + std::to_string(count) +
                                 ", and all are to add up to its " +
                                 std::to_string(rows_of(tensor)) + " rows");
    }
    room -= count;
  }
  if (room == 0) return Status::ok();
  return invalid(tensor, "has counts that add up to " + std::to_string(rows_of(tensor) - room) +
                             " rows, and it has " + std::to_string(rows_of(tensor)));
}

std::vector<ElementRange> parts_of(const PartedTensor& tensor, int ranks) {
  RUEDA_CHECK(has_parts(tensor.kind) && tensor.kind != CollectiveKind::kAlltoall);
  const int64_t row = row_elements(tensor);
  std::vector<ElementRange> parts;
  int64_t at = 0;
  for (int place = 0; place < ranks; ++place) {
    const int64_t rows = tensor.counts.empty() ? even_count(rows_of(tensor), place, ranks)
                                               : tensor.counts[static_cast<size_t>(place)];
    parts.push_back({at, at + rows * row});
    at += rows * row;
  }
  return parts;
}

Splits::Splits(const PartedTensor& tensor, int ranks)
    : ranks_(ranks), even_(rows_of(tensor) / ranks / ranks * row_elements(tensor)) {
  RUEDA_CHECK(tensor.kind == CollectiveKind::kAlltoall);
  if (tensor.counts.empty()) return;
  const size_t size = static_cast<size_t>(ranks) * (static_cast<size_t>(ranks) + 1);
  sent_at_.resize(size);
  received_at_.resize(size);
  const int64_t* count = tensor.counts.data();
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      const int64_t elements = *count++ * row_elements(tensor);
      sent_at_[at(from, to + 1)] = sent_at_[at(from, to)] + elements;
      received_at_[at(to, from + 1)] = received_at_[at(to, from)] + elements;
    }
  }
}

Extent extent_of(const PartedTensor& tensor, int place, int ranks, bool is_root) {
  if (tensor.kind == CollectiveKind::kBarrier || !moves_data(tensor.kind)) return {};
  int64_t all = 1;
  for (const int64_t dimension : tensor.shape) all *= dimension;
  Extent extent{all, all};
  switch (tensor.kind) {
    case CollectiveKind::kBroadcast:
      if (!is_root) extent.input = 0;
      return extent;
    case CollectiveKind::kReduce:
      if (!is_root) extent.output = 0;
      return extent;
    case CollectiveKind::kAlltoall: {
      const Splits splits(tensor, ranks);
      return {splits.sent_at(place, ranks), splits.received_at(ranks, place), 0, 0, false};
    }
    case CollectiveKind::kAllgather:
    case CollectiveKind::kGather: {
      const ElementRange part = parts_of(tensor, ranks)[static_cast<size_t>(place)];
      extent.input = part.count();
      extent.input_at = part.begin;
      if (tensor.kind == CollectiveKind::kGather && !is_root) extent.output = 0;
      return extent;
    }
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter: {
      const ElementRange part = parts_of(tensor, ranks)[static_cast<size_t>(place)];
      extent.output = part.count();
      extent.output_at = part.begin;
      if (tensor.kind == CollectiveKind::kScatter && !is_root) extent.input = 0;
      return extent;
    }
    default: return extent;
  }
}

}  // namespace rueda
