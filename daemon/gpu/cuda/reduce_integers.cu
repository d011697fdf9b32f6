#include "daemon/gpu/cuda/launch-inl.cuh"

namespace rueda::gpu::cuda {

cudaError_t launch_integers(const Batch& batch, const Launch& launch, uint32_t blocks,
                            cudaStream_t stream) {
  return visit_integers(batch, Launcher{launch, blocks, stream});
}

cudaError_t load_integers(const Batch& batch) { return visit_integers(batch, Loader{}); }

}  // namespace rueda::gpu::cuda
