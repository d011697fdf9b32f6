// The part of NCCL that is used here: functions that libnccl.so.2 exports, found at run time.
// Nothing is linked, and nccl.h need not be installed: names, numbers and layouts below are the ABI
// that NCCL 2 keeps (its API guide; nccl.h of 2.28 and 2.32).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"
#include "daemon/gpu/communicator.h"

namespace rueda::gpu::nccl {

// These are values of ncclResult_t.
enum Outcome : int { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7 };

// This is ncclUniqueId, which is passed by value.
struct UniqueId {
  CommunicatorId bytes{};
};

// This is the beginning of ncclConfig_t, as of 2.18. NCCL reads as much as `size` says.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // NCCL chooses, as for every field that is INT_MIN or null.
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// These are handles of NCCL and of CUDA.
using Comm = void*;
using CudaStream = void*;

struct Library {
  int version = 0;  // 22809 is 2.28.9
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*comm_init_rank_config)(Comm*, int size, UniqueId, int rank, Config*) = nullptr;
  int (*comm_get_async_error)(Comm, int* outcome) = nullptr;
  int (*comm_abort)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int dtype, int op, Comm, CudaStream) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int dtype, int root, Comm, CudaStream) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(Comm) = nullptr;
};

// Loads the file that $RUEDA_NCCL_LIBRARY names, or libnccl.so.2. It stays loaded. kUnavailable
// means that it is not there, or older than 2.18; the sentence has the remedy.
Result<Library> load();

// Converts an outcome to a Status, which is never kUnavailable.
Status to_status(const Library& library, Comm comm, int outcome, const std::string& what);

// These return the number of ncclDataType_t for every dtype but bool, integers of 16 bits and
// complex numbers, and the number of ncclRedOp_t for sum, min, max and product; -1 if NCCL has
// none.
int number_of(DType dtype);
int number_of(ReduceOp op);

}  // namespace rueda::gpu::nccl
