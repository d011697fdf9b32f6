// Checks a caller's send or receive, and puts it into the form of the submission ring.
#pragma once

#include <cstdint>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/request/tensor.h"
#include "daemon/base/status.h"

namespace rueda::client {

// The caller's arguments. `memory` is read by a send and written by a receive.
struct TransferArguments {
  bool sends = false;
  const void* memory = nullptr;
  int64_t count = 0;
  rueda_dtype dtype = RUEDA_FLOAT32;
  int peer = 0;
  int64_t tag = 0;
  uint32_t process_set = 0;
};

struct TransferRequest {
  rueda_abi_transfer record{};  // Lacks the ticket, and where the memory is.
  TensorRequest memory;         // The caller's memory, and the transfer's name for errors.
};

// `ranks` are the process set's, in ascending order; `self` is this rank.
Result<TransferRequest> check_transfer(const TransferArguments& arguments,
                                       const std::vector<int32_t>& ranks, int self);

}  // namespace rueda::client
