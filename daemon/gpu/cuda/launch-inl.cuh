// The kernel, and its launch by the .cu files.
#pragma once

#include "daemon/gpu/cuda/kernels.h"
#include "daemon/gpu/cuda/tile.h"
#include "daemon/gpu/dispatch.h"

namespace rueda::gpu::cuda {

template <class K>
__global__ void __launch_bounds__(kThreads) reduce_kernel(const __grid_constant__ Launch launch) {
  const uint64_t* const words = launch.table != nullptr ? launch.table : launch.inline_table;
  run_block<K>(words, launch.shape, launch.scales, blockIdx.x, gridDim.x, threadIdx.x);
}

struct Loader {
  template <class K>
  cudaError_t run() const {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&reduce_kernel<K>));
  }
};

struct Launcher {
  const Launch& launch;
  const uint32_t blocks;
  const cudaStream_t stream;

  // The launch does not use <<<>>>, whose error would have to be asked for and may be that of
  // another call.
  template <class K>
  cudaError_t run() const {
    void* arguments[] = {const_cast<Launch*>(&launch)};
    return cudaLaunchKernel(reinterpret_cast<const void*>(&reduce_kernel<K>), dim3(blocks),
                            dim3(kThreads), arguments, 0, stream);
  }
};

}  // namespace rueda::gpu::cuda
