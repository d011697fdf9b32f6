#include "daemon/gpu/cuda/launch-inl.cuh"

namespace rueda::gpu::cuda {

cudaError_t launch_other_floats(const Batch& batch, const Launch& launch, uint32_t blocks,
                                cudaStream_t stream) {
  return visit_other_floats(batch, Launcher{launch, blocks, stream});
}

cudaError_t load_other_floats(const Batch& batch) { return visit_other_floats(batch, Loader{}); }

}  // namespace rueda::gpu::cuda
