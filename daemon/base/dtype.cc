#include "daemon/base/dtype.h"

namespace rueda {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kInt8: return "int8";
    case DType::kUInt8: return "uint8";
    case DType::kBool: return "bool";
    case DType::kInt16: return "int16";
    case DType::kUInt16: return "uint16";
    case DType::kUInt32: return "uint32";
    case DType::kUInt64: return "uint64";
    case DType::kComplex64: return "complex64";
    case DType::kComplex128: return "complex128";
  }
  return "unknown";
}

const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kAverage: return "average";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kProduct: return "product";
    case ReduceOp::kAdasum: return "adasum";
  }
  return "unknown";
}

const char* to_string(WireDType wire) {
  switch (wire) {
    case WireDType::kSame: return "the tensor's own";
    case WireDType::kFloat16: return "float16";
    case WireDType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

const char* to_string(MemorySpace space) {
  switch (space) {
    case MemorySpace::kHost: return "host memory";
    case MemorySpace::kDevice: return "device memory";
    case MemorySpace::kDeviceNccl: return "device memory, by NCCL";
  }
  return "unknown";
}

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllreduce: return "allreduce";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kBarrier: return "barrier";
    case CollectiveKind::kAddProcessSet: return "add_process_set";
    case CollectiveKind::kRemoveProcessSet: return "remove_process_set";
    case CollectiveKind::kDeclarePlan: return "declare_plan";
    case CollectiveKind::kJoin: return "join";
    case CollectiveKind::kAllgather: return "allgather";
    case CollectiveKind::kReduce: return "reduce";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kAlltoall: return "alltoall";
    case CollectiveKind::kGather: return "gather";
    case CollectiveKind::kScatter: return "scatter";
    case CollectiveKind::kSend: return "send";
    case CollectiveKind::kReceive: return "receive";
  }
  return "unknown";
}

}  // namespace rueda
