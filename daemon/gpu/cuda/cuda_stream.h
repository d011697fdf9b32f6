// A CUDA stream, and the tables of the batches that are under way on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/gpu/cuda/cuda_device.h"
#include "daemon/gpu/cuda/kernels.h"

namespace rueda::gpu::cuda {

class CudaStream final : public Stream {
 public:
  // The device must outlive the stream.
  static Result<std::unique_ptr<Stream>> make(CudaDevice& device, Priority priority);
  ~CudaStream() override;

  Status copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) override;
  Status copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) override;
  Status copy(DeviceAddress dst, DeviceAddress src, size_t bytes) override;
  Status wait_value(const uint64_t* counter, uint64_t value) override;
  Status write_value(uint64_t* counter, uint64_t value) override;
  Status write_values(std::span<const CounterValue> writes) override;
  Status reduce(const Batch& batch) override;
  Result<bool> is_idle() override;

  cudaStream_t handle() const { return stream_; }

 private:
  // Room for a table that is too large to travel with its launch: it is copied to the device, and
  // stays on both sides until the kernel is done. All slots are made beforehand, because allocating
  // would wait for the device.
  struct Slot {
    uint64_t* host = nullptr;
    uint64_t* device = nullptr;
    cudaEvent_t is_free = nullptr;  // It is recorded behind the last kernel that used the slot.
  };
  static constexpr size_t kSlots = 4;

  explicit CudaStream(CudaDevice& device) : device_(device) {}
  Status copy_any(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind);
  Result<DeviceAddress> counter_at(const uint64_t* counter) const;
  // Returns a slot whose kernel is done, or kUnavailable if there is none.
  Result<Slot*> free_slot();
  Status launch_with(const Batch& batch, Launch& launch);
  Status launch_with_slot(const Batch& batch, Launch& launch);

  CudaDevice& device_;
  cudaStream_t stream_ = nullptr;
  std::byte* host_tables_ = nullptr;
  std::byte* device_tables_ = nullptr;
  std::array<Slot, kSlots> slots_;
};

}  // namespace rueda::gpu::cuda
