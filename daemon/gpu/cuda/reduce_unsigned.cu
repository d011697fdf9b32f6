#include "daemon/gpu/cuda/launch-inl.cuh"

namespace rueda::gpu::cuda {

cudaError_t launch_unsigned(const Batch& batch, const Launch& launch, uint32_t blocks,
                            cudaStream_t stream) {
  return visit_unsigned(batch, Launcher{launch, blocks, stream});
}

cudaError_t load_unsigned(const Batch& batch) { return visit_unsigned(batch, Loader{}); }

}  // namespace rueda::gpu::cuda
