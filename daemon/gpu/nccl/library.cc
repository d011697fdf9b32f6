#include "daemon/gpu/nccl/library.h"

#include <cstdlib>

#include <dlfcn.h>

namespace rueda::gpu::nccl {
namespace {

constexpr int kOldest = 21800;
constexpr char kRemedy[] =
    ": install NCCL 2.18 or later (libnccl2), name its file in RUEDA_NCCL_LIBRARY where the daemon "
    "starts, or start the job with --inter-node rueda";

std::string version_text(int version) {
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<Library> load() {
  const char* const named = std::getenv("RUEDA_NCCL_LIBRARY");
  const std::string file = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return Status(
        Code::kUnavailable,
        "NCCL cannot be loaded (" + std::string(reason != nullptr ? reason : file) + ')' + kRemedy);
  }
  Library library;
  const bool has_all = find(handle, "ncclGetVersion", library.get_version) &&
                       find(handle, "ncclGetUniqueId", library.get_unique_id) &&
                       find(handle, "ncclCommInitRankConfig", library.comm_init_rank_config) &&
                       find(handle, "ncclCommGetAsyncError", library.comm_get_async_error) &&
                       find(handle, "ncclCommAbort", library.comm_abort) &&
                       find(handle, "ncclAllReduce", library.all_reduce) &&
                       find(handle, "ncclBroadcast", library.broadcast) &&
                       find(handle, "ncclGetErrorString", library.get_error_string) &&
                       find(handle, "ncclGetLastError", library.get_last_error);
  if (!has_all || library.get_version(&library.version) != kSuccess) {
    ::dlclose(handle);
    return Status(Code::kUnavailable, file + " lacks what is needed of NCCL" + kRemedy);
  }
  if (library.version < kOldest) {
    ::dlclose(handle);
    return Status(Code::kUnavailable, file + " is NCCL " + version_text(library.version) +
                                          ", which is too old" + kRemedy);
  }
  return library;
}

Status to_status(const Library& library, Comm comm, int outcome, const std::string& what) {
  if (outcome == kSuccess) return Status::ok();
  std::string text = "NCCL " + version_text(library.version) + ", " + what + ": " +
                     library.get_error_string(outcome);
  const char* const last = library.get_last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ')';
  const bool is_ours = outcome == kInvalidArgument || outcome == kInvalidUsage;
  return {is_ours ? Code::kInternal : Code::kNodeLost,
          text + "; NCCL_DEBUG=INFO where the daemon starts says more"};
}

int number_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return 0;
    case DType::kUInt8: return 1;
    case DType::kInt32: return 2;
    case DType::kUInt32: return 3;
    case DType::kInt64: return 4;
    case DType::kUInt64: return 5;
    case DType::kFloat16: return 6;
    case DType::kFloat32: return 7;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 9;
    case DType::kBool:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kComplex64:
    case DType::kComplex128: break;
  }
  return -1;
}

int number_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return 0;
    case ReduceOp::kProduct: return 1;
    case ReduceOp::kMax: return 2;
    case ReduceOp::kMin: return 3;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum: break;
  }
  return -1;
}

}  // namespace rueda::gpu::nccl
