// A stream of a fake device: a queue from which FakeGpu::step() takes operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "tests/gpu/fake/fake_gpu.h"

namespace rueda::gpu::fake {

class FakeDevice;

class FakeStream final : public Stream {
 public:
  FakeStream(FakeDevice& device, Priority priority);
  ~FakeStream() override;

  Status copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) override;
  Status copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) override;
  Status copy(DeviceAddress dst, DeviceAddress src, size_t bytes) override;
  Status wait_value(const uint64_t* counter, uint64_t value) override;
  Status write_value(uint64_t* counter, uint64_t value) override;
  Status write_values(std::span<const CounterValue> writes) override;
  Status reduce(const Batch& batch) override;
  Result<bool> is_idle() override;

  // These are for FakeGpu and FakeDevice, and are called under the GPU's mutex.
  Priority priority() const { return priority_; }
  size_t queued() const { return queue_.size(); }
  bool is_able() const;
  void advance();
  void drop_all() { queue_.clear(); }

 private:
  friend class FakeCommunicator;

  void queue(std::function<void()> run, std::function<bool()> is_ready = {});
  // Returns ok if the host memory is pinned, and kInvalidArgument if not.
  Status check_host(const void* at, size_t bytes) const;
  Status check_counter(const uint64_t* counter) const;
  // Queues a copy. Each side is either host memory, or an address that is looked up when the copy
  // happens.
  void queue_copy(DeviceAddress dst, std::byte* host_dst, DeviceAddress src,
                  const std::byte* host_src, size_t bytes);

  FakeDevice& device_;
  const Priority priority_;
  std::deque<Operation> queue_;
};

}  // namespace rueda::gpu::fake
