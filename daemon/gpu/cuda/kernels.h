// The reduction kernel: each batch is one launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "daemon/gpu/batch.h"
#include "daemon/gpu/cuda/table.h"
#include "daemon/gpu/element.h"

namespace rueda::gpu::cuda {

// The size of a table that travels with the launch, and needs no copy. Arguments of a kernel may
// have 4,096 bytes.
inline constexpr size_t kInlineWords = 480;

struct Launch {
  Shape shape;
  Scales scales;
  const uint64_t* table = nullptr;  // It is on the device; null: the table is inline_table.
  uint64_t inline_table[kInlineWords];
};
static_assert(sizeof(Launch) <= 4096);

// Launches the kernel that belongs to the batch. `blocks` is the number of blocks that share the
// tiles.
cudaError_t launch(const Batch& batch, const Launch& launch, uint32_t blocks, cudaStream_t stream);

// Loads all kernels, which is done when a device is opened. The driver loads a kernel with its
// first launch otherwise, and then waits for the device: behind a stream that waits for a counter,
// that would be for ever.
cudaError_t load_kernels();

// The parts of load_kernels() and launch(), each in a file of its own. A load function loads the
// kernel that belongs to the batch.
cudaError_t load_float32(const Batch& batch);
cudaError_t load_other_floats(const Batch& batch);
cudaError_t load_signed(const Batch& batch);
cudaError_t load_unsigned(const Batch& batch);
cudaError_t launch_float32(const Batch& batch, const Launch& launch, uint32_t blocks,
                           cudaStream_t stream);
cudaError_t launch_other_floats(const Batch& batch, const Launch& launch, uint32_t blocks,
                                cudaStream_t stream);
cudaError_t launch_signed(const Batch& batch, const Launch& launch, uint32_t blocks,
                          cudaStream_t stream);
cudaError_t launch_unsigned(const Batch& batch, const Launch& launch, uint32_t blocks,
                            cudaStream_t stream);

}  // namespace rueda::gpu::cuda
