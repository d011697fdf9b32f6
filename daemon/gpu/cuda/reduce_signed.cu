#include "daemon/gpu/cuda/launch-inl.cuh"

namespace rueda::gpu::cuda {

cudaError_t launch_signed(const Batch& batch, const Launch& launch, uint32_t blocks,
                          cudaStream_t stream) {
  return visit_signed(batch, Launcher{launch, blocks, stream});
}

cudaError_t load_signed(const Batch& batch) { return visit_signed(batch, Loader{}); }

}  // namespace rueda::gpu::cuda
