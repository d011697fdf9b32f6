// The reduction kernel: one launch a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "daemon/gpu/batch.h"
#include "daemon/gpu/cuda/table.h"
#include "daemon/gpu/element.h"

namespace rueda::gpu::cuda {

// A small table travels with the launch, and costs no copy. Arguments may have 4,096 bytes.
inline constexpr size_t kInlineWords = 480;

struct Launch {
  Shape shape;
  Scales scales;
  const uint64_t* table = nullptr;  // on the device; null: inline_table
  uint64_t inline_table[kInlineWords];
};
static_assert(sizeof(Launch) <= 4096);

// The batch chooses the kernel. `blocks` is how many blocks share the tiles.
cudaError_t launch(const Batch& batch, const Launch& launch, uint32_t blocks, cudaStream_t stream);

// The driver loads a kernel when it is launched first, and waits for the device then: behind a
// stream that waits for a counter that would be for ever. So all are loaded when a device is
// opened.
cudaError_t load_kernels();

// Their parts, each in a file of its own. load: the one that the batch chooses.
cudaError_t load_float32(const Batch& batch);
cudaError_t load_other_floats(const Batch& batch);
cudaError_t load_integers(const Batch& batch);
cudaError_t launch_float32(const Batch& batch, const Launch& launch, uint32_t blocks,
                           cudaStream_t stream);
cudaError_t launch_other_floats(const Batch& batch, const Launch& launch, uint32_t blocks,
                                cudaStream_t stream);
cudaError_t launch_integers(const Batch& batch, const Launch& launch, uint32_t blocks,
                            cudaStream_t stream);

}  // namespace rueda::gpu::cuda
