#include "daemon/gpu/cuda/kernels.h"

#include <array>

namespace rueda::gpu::cuda {

cudaError_t launch(const Batch& batch, const Launch& launch, uint32_t blocks, cudaStream_t stream) {
  switch (batch.dtype) {
    case DType::kFloat32: return launch_float32(batch, launch, blocks, stream);
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex64:
    case DType::kComplex128: return launch_other_floats(batch, launch, blocks, stream);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return launch_signed(batch, launch, blocks, stream);
    default: return launch_unsigned(batch, launch, blocks, stream);
  }
}

cudaError_t load_kernels() {
  constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  cudaError_t error = cudaSuccess;
  const auto load = [&](auto part, const Batch& batch) {
    if (error == cudaSuccess) error = part(batch);
  };
  for (const ReduceOp op : kOps) {
    load(load_float32, {.op = op});
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      load(load_float32, {.dst_dtype = wire, .op = op});
      load(load_float32, {.partial_dtype = wire, .op = op});
    }
    for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kComplex64,
                              DType::kComplex128}) {
      if (has_operator(dtype, op)) load(load_other_floats, {.dtype = dtype, .op = op});
    }
    for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
      load(load_signed, {.dtype = dtype, .op = op});
    }
    for (const DType dtype :
         {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64, DType::kBool}) {
      load(load_unsigned, {.dtype = dtype, .op = op});
    }
  }
  return error;
}

}  // namespace rueda::gpu::cuda
