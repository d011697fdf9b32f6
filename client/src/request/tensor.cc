#include "client/src/request/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "client/src/request/tensor_checks.h"
#include "daemon/base/dtype.h"
#include "daemon/base/limits.h"

namespace rueda::client {
namespace {

Status set_name(const char* name, const char* what, char (&field)[RUEDA_ABI_NAME_BYTES]) {
  if (name == nullptr || *name == '\0') return invalid(std::string(what) + " has no name");
  size_t length = std::strlen(name);
  if (length > limits::kMaxTensorNameBytes) {
    return invalid(std::string(what) + " " + quoted(name) + " has a name of " +
                   std::to_string(length) + " bytes; at most 255 are allowed");
  }
  std::memcpy(field, name, length);
  return Status::ok();
}

Status set_shape(const rueda_tensor& tensor, TensorRequest& request) {
  std::string name = quoted(tensor.name);
  if (tensor.ndim < 0 || tensor.ndim > RUEDA_ABI_MAX_DIMS) {
    return invalid("tensor " + name + " has " + std::to_string(tensor.ndim) +
                   " dimensions; 0 to 8 are allowed");
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr)
    return invalid("tensor " + name + " has no shape");
  request.descriptor.ndim = static_cast<uint8_t>(tensor.ndim);
  bool is_empty = false;
  size_t bytes = request.element_bytes;
  for (int i = 0; i < tensor.ndim; ++i) {
    int64_t dim = tensor.shape[i];
    if (dim < 0) {
      return invalid("tensor " + name + " has the negative dimension " + std::to_string(dim));
    }
    request.descriptor.dims[i] = dim;
    is_empty |= dim == 0;
    auto factor = static_cast<size_t>(dim);
    if (factor > 0 && bytes > limits::kMaxTensorBytes / factor) {
      return invalid("tensor " + name + " is larger than 1 TiB; split it");
    }
    if (factor > 0) bytes *= factor;
  }
  request.input_bytes = request.output_bytes = is_empty ? 0 : bytes;
  return Status::ok();
}

// Checks that a bool tensor asks for no average and no scales: bool is no number. The daemon checks
// it too (daemon/session/submissions/intern.cc).
Status check_arithmetic(const rueda_abi_intern& descriptor) {
  if (static_cast<DType>(descriptor.dtype) != DType::kBool) return Status::ok();
  if (static_cast<ReduceOp>(descriptor.op) != ReduceOp::kAverage && descriptor.prescale == 1.0 &&
      descriptor.postscale == 1.0) {
    return Status::ok();
  }
  return invalid("tensor " + quoted(descriptor.name) +
                 " is bool, which has no average (the default) and no scales; ask for the sum or "
                 "the maximum (or), the product or the minimum (and)");
}

// Checks that the operator exists for the tensor's type. The daemon checks it too.
Status check_operator(const rueda_abi_intern& descriptor) {
  const auto dtype = static_cast<DType>(descriptor.dtype);
  const auto op = static_cast<ReduceOp>(descriptor.op);
  if (has_operator(dtype, op)) return Status::ok();
  return invalid("tensor " + quoted(descriptor.name) + " is " + to_string(dtype) +
                 ", which has no order, and so no " + to_string(op) +
                 "; ask for the sum, the average or the product");
}

// Checks that Adasum is possible for the tensor. The daemon checks it too.
Status check_adasum(const rueda_abi_intern& descriptor) {
  const auto kind = static_cast<CollectiveKind>(descriptor.kind);
  const auto dtype = static_cast<DType>(descriptor.dtype);
  if (static_cast<ReduceOp>(descriptor.op) != ReduceOp::kAdasum || can_be_adasum(kind, dtype)) {
    return Status::ok();
  }
  return invalid(
      "tensor " + quoted(descriptor.name) + " (" + to_string(kind) + ", " + to_string(dtype) +
      ") asks for Adasum; only an allreduce of float16, bfloat16, float32 or float64 can "
      "have it: use the sum or the average");
}

// Checks that the tensor can be rounded on the wire. The daemon checks it too.
Status check_wire(const rueda_abi_intern& descriptor) {
  const auto kind = static_cast<CollectiveKind>(descriptor.kind);
  const auto dtype = static_cast<DType>(descriptor.dtype);
  if (descriptor.wire_dtype == 0 || can_be_rounded(kind, dtype)) return Status::ok();
  return invalid("tensor " + quoted(descriptor.name) + " is " + to_string(dtype) +
                 ", and is to be rounded to " +
                 to_string(static_cast<WireDType>(descriptor.wire_dtype)) +
                 " on its way; only float32 can be");
}

// Reads the number that a caller put into an enumeration, known or not: loading an unknown value as
// an enumerator would be undefined behaviour.
template <class Enum>
int as_number(const Enum& value) {
  int number;
  static_assert(sizeof(number) == sizeof(value));
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

}  // namespace

std::string quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status set_memory(const rueda_tensor& tensor, TensorRequest& request) {
  request.input = static_cast<const std::byte*>(tensor.input);
  request.output = static_cast<std::byte*>(tensor.output);
  const bool reads = request.input_bytes > 0;
  const bool writes = request.output_bytes > 0;
  if ((reads && request.input == nullptr) || (writes && request.output == nullptr)) {
    return invalid("tensor " + quoted(tensor.name) + " has a NULL input or output");
  }
  const auto in = reinterpret_cast<uintptr_t>(request.input);
  const auto out = reinterpret_cast<uintptr_t>(request.output);
  const bool is_apart = in + request.input_bytes <= out || out + request.output_bytes <= in;
  const bool is_same =
      request.can_be_in_place && in + request.output_at_bytes == out + request.input_at_bytes;
  if (!reads || !writes || is_apart || is_same) return Status::ok();
  const bool is_simple = request.input_at_bytes == request.output_at_bytes;
  const std::string allowed = !request.can_be_in_place ? "be apart"
                              : is_simple              ? "be the same or apart"
                                                       : "be apart, or the smaller one be this "
                                                         "rank's part of the larger one";
  return invalid("input and output of tensor " + quoted(tensor.name) + " overlap; they must " +
                 allowed);
}

// Describes everything but the memory.
Result<TensorRequest> describe(const rueda_tensor* tensor, CollectiveKind kind) {
  if (tensor == nullptr) return invalid("the tensor is NULL");
  TensorRequest request;
  rueda_abi_intern& descriptor = request.descriptor;
  if (Status status = set_name(tensor->name, "the tensor", descriptor.name); !status.is_ok()) {
    return status;
  }
  const int dtype = as_number(tensor->dtype);
  if (dtype < 0 || dtype >= kDTypeCount) {
    return invalid("tensor " + quoted(tensor->name) + " has the unknown dtype " +
                   std::to_string(dtype) + "; 0 (float32) to 14 (complex128) are known");
  }
  request.element_bytes = element_bytes(static_cast<DType>(dtype));
  descriptor.kind = static_cast<uint8_t>(kind);
  descriptor.dtype = static_cast<uint8_t>(dtype);
  descriptor.op = static_cast<uint8_t>(ReduceOp::kSum);
  descriptor.root = -1;
  descriptor.process_set = tensor->process_set;
  descriptor.prescale = 1.0;
  descriptor.postscale = 1.0;
  if (Status status = set_shape(*tensor, request); !status.is_ok()) return status;
  return request;
}

Status set_options(const rueda_reduce_options* options, TensorRequest& request) {
  rueda_abi_intern& descriptor = request.descriptor;
  descriptor.op = static_cast<uint8_t>(ReduceOp::kAverage);
  if (options == nullptr) return check_arithmetic(descriptor);
  if (options->struct_bytes < sizeof(rueda_reduce_options)) {
    return invalid("rueda_reduce_options.struct_bytes must be sizeof(rueda_reduce_options)");
  }
  const int op = as_number(options->op);
  if (op < 0 || op >= kReduceOpCount) {
    return invalid("tensor " + quoted(descriptor.name) + " asks for the unknown operator " +
                   std::to_string(op) + "; 0 (sum) to 5 (adasum) are known");
  }
  if (!std::isfinite(options->prescale) || !std::isfinite(options->postscale)) {
    return invalid("tensor " + quoted(descriptor.name) + " has a scale that is not finite");
  }
  descriptor.op = static_cast<uint8_t>(op);
  descriptor.prescale = options->prescale;
  descriptor.postscale = options->postscale;
  request.priority = options->priority;
  const int wire_dtype = as_number(options->wire_dtype);
  if (wire_dtype < 0 || wire_dtype >= kWireDTypeCount) {
    return invalid("tensor " + quoted(descriptor.name) + " has the unknown wire dtype " +
                   std::to_string(wire_dtype) + "; 0 (the same) to 2 (bfloat16) are known");
  }
  descriptor.wire_dtype = static_cast<uint32_t>(wire_dtype);
  if (Status status = check_wire(descriptor); !status.is_ok()) return status;
  if (Status status = check_adasum(descriptor); !status.is_ok()) return status;
  if (Status status = check_operator(descriptor); !status.is_ok()) return status;
  return check_arithmetic(descriptor);
}

Status set_root(int root_rank, int world_size, TensorRequest& request) {
  rueda_abi_intern& descriptor = request.descriptor;
  if (root_rank < 0 || root_rank >= world_size) {
    return invalid(std::string(to_string(static_cast<CollectiveKind>(descriptor.kind))) + " of " +
                   quoted(descriptor.name) + " with root rank " + std::to_string(root_rank) +
                   ", but the ranks are 0 to " + std::to_string(world_size - 1));
  }
  descriptor.root = root_rank;
  return Status::ok();
}

Result<TensorRequest> check_allreduce(const rueda_tensor* tensor,
                                      const rueda_reduce_options* options, const std::string& group,
                                      size_t group_size) {
  Result<TensorRequest> described = describe_allreduce(tensor, options, group, group_size);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  if (Status status = set_memory(*tensor, request); !status.is_ok()) return status;
  return request;
}

Result<TensorRequest> describe_allreduce(const rueda_tensor* tensor,
                                         const rueda_reduce_options* options,
                                         const std::string& group, size_t group_size) {
  Result<TensorRequest> described = describe(tensor, CollectiveKind::kAllreduce);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  Status status = set_options(options, request);
  if (status.is_ok() && group_size > 0) {
    status = set_name(group.c_str(), "the group", request.descriptor.group);
    request.descriptor.group_size = static_cast<uint32_t>(group_size);
  }
  if (!status.is_ok()) return status;
  return request;
}

Result<TensorRequest> check_broadcast(const rueda_tensor* tensor, int root_rank, int rank,
                                      int world_size) {
  Result<TensorRequest> described = describe(tensor, CollectiveKind::kBroadcast);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  if (Status status = set_root(root_rank, world_size, request); !status.is_ok()) return status;
  if (rank != root_rank) request.input_bytes = 0;
  if (Status status = set_memory(*tensor, request); !status.is_ok()) return status;
  request.writes_output = rank != root_rank || request.input != request.output;
  return request;
}

namespace {

Result<TensorRequest> describe_without_data(const char* name, CollectiveKind kind,
                                            uint32_t process_set) {
  rueda_tensor tensor{};
  tensor.process_set = process_set;
  tensor.name = name;
  tensor.dtype = RUEDA_FLOAT32;
  Result<TensorRequest> described = describe(&tensor, kind);
  if (!described.is_ok()) return described;
  TensorRequest request = std::move(described).value();
  request.input_bytes = request.output_bytes = 0;
  return request;
}

}  // namespace

Result<TensorRequest> check_barrier(const char* name, uint32_t process_set) {
  return describe_without_data(name != nullptr ? name : "barrier", CollectiveKind::kBarrier,
                               process_set);
}

Result<TensorRequest> describe_join() {
  return describe_without_data(RUEDA_ABI_JOIN_NAME, CollectiveKind::kJoin, 0);
}

}  // namespace rueda::client
