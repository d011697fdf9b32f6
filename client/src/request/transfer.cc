#include "client/src/request/transfer.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "client/src/request/tensor_checks.h"
#include "daemon/base/dtype.h"
#include "daemon/base/limits.h"

namespace rueda::client {

Result<TransferRequest> check_transfer(const TransferArguments& arguments,
                                       const std::vector<int32_t>& ranks, int self) {
  const bool is_any = !arguments.sends && arguments.peer == RUEDA_ANY_SOURCE;
  const std::string name =
      std::string(arguments.sends ? "send to " : "receive from ") +
      (is_any ? std::string("any rank") : "rank " + std::to_string(arguments.peer)) + " with tag " +
      std::to_string(arguments.tag);
  const auto dtype = static_cast<uint32_t>(arguments.dtype);
  if (dtype >= kDTypeCount) {
    return invalid("the " + name + " has the unknown dtype " + std::to_string(dtype));
  }
  const size_t size = element_bytes(static_cast<DType>(dtype));
  if (arguments.count < 0 ||
      static_cast<uint64_t>(arguments.count) > limits::kMaxTensorBytes / size) {
    return invalid("the " + name + " has " + std::to_string(arguments.count) +
                   " elements: it must be 0 or more, and at most " +
                   std::to_string(limits::kMaxTensorBytes) + " bytes");
  }
  if (arguments.memory == nullptr && arguments.count > 0) {
    return invalid("the " + name + " has elements, and its memory is NULL");
  }
  for (const int rank : {self, arguments.peer}) {
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    if (is_any && rank == RUEDA_ANY_SOURCE) continue;
    return invalid("the " + name + ": rank " + std::to_string(rank) + " is not in process set " +
                   std::to_string(arguments.process_set));
  }
  TransferRequest request;
  request.record.process_set = arguments.process_set;
  request.record.flags = arguments.sends ? RUEDA_ABI_FLAG_SEND : RUEDA_ABI_FLAG_RECEIVE;
  request.record.peer = arguments.peer;
  request.record.elements = static_cast<uint64_t>(arguments.count);
  request.record.dtype = dtype;
  request.record.tag = arguments.tag;
  TensorRequest& memory = request.memory;
  std::copy(name.begin(), name.end(), memory.descriptor.name);  // Far shorter than the field.
  memory.element_bytes = size;
  const size_t bytes = static_cast<size_t>(arguments.count) * size;
  if (arguments.sends) {
    memory.input = static_cast<const std::byte*>(arguments.memory);
    memory.input_bytes = bytes;
  } else {
    memory.output = static_cast<std::byte*>(const_cast<void*>(arguments.memory));
    memory.output_bytes = bytes;
  }
  return request;
}

}  // namespace rueda::client
