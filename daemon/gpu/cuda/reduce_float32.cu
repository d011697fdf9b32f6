#include "daemon/gpu/cuda/launch-inl.cuh"

namespace rueda::gpu::cuda {

cudaError_t launch_float32(const Batch& batch, const Launch& launch, uint32_t blocks,
                           cudaStream_t stream) {
  return visit_float32(batch, Launcher{launch, blocks, stream});
}

cudaError_t load_float32(const Batch& batch) { return visit_float32(batch, Loader{}); }

}  // namespace rueda::gpu::cuda
