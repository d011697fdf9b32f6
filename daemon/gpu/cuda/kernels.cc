#include "daemon/gpu/cuda/kernels.h"

namespace rueda::gpu::cuda {

cudaError_t launch(const Batch& batch, const Launch& launch, uint32_t blocks, cudaStream_t stream) {
  switch (batch.dtype) {
    case DType::kFloat32: return launch_float32(batch, launch, blocks, stream);
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16: return launch_other_floats(batch, launch, blocks, stream);
    default: return launch_integers(batch, launch, blocks, stream);
  }
}

}  // namespace rueda::gpu::cuda
