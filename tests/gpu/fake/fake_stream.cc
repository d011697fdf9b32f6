#include "tests/gpu/fake/fake_stream.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/gpu/fake/fake_device.h"
#include "tests/gpu/fake/reduce_batch.h"

namespace rueda::gpu::fake {
namespace {

// A batch that owns the addresses that it refers to.
class OwnedBatch {
 public:
  explicit OwnedBatch(const Batch& batch) : batch_(batch) {
    for (const Segment& segment : batch.segments) {
      addresses_.emplace_back(segment.sources.begin(), segment.sources.end());
      Segment copy = segment;
      copy.sources = addresses_.back();
      addresses_.emplace_back(segment.destinations.begin(), segment.destinations.end());
      copy.destinations = addresses_.back();
      segments_.push_back(copy);
    }
    batch_.segments = segments_;
  }
  OwnedBatch(const OwnedBatch&) = delete;
  OwnedBatch& operator=(const OwnedBatch&) = delete;
  const Batch& get() const { return batch_; }

 private:
  Batch batch_;
  std::deque<std::vector<DeviceAddress>> addresses_;
  std::vector<Segment> segments_;
};

}  // namespace

FakeStream::FakeStream(FakeDevice& device, Priority priority)
    : device_(device), priority_(priority) {
  device_.gpu_.streams_.push_back(this);
  device_.streams_.push_back(this);
}

FakeStream::~FakeStream() {
  const std::lock_guard lock(device_.gpu_.mutex_);
  std::erase(device_.gpu_.streams_, this);
  std::erase(device_.streams_, this);
}

bool FakeStream::is_able() const {
  return !queue_.empty() && (!queue_.front().is_ready || queue_.front().is_ready());
}

void FakeStream::advance() {
  if (--queue_.front().steps > 0) return;
  const Operation operation = std::move(queue_.front());
  queue_.pop_front();
  if (device_.operation_is_lost()) return;
  if (operation.run) operation.run();
}

void FakeStream::queue(std::function<void()> run, std::function<bool()> is_ready) {
  FakeGpu& gpu = device_.gpu_;
  const auto steps = static_cast<uint32_t>(1 + gpu.random(gpu.options_.max_steps));
  queue_.push_back({std::move(is_ready), std::move(run), steps});
  gpu.has_queued_.notify_all();
}

Status FakeStream::check_host(const void* at, size_t bytes) const {
  if (device_.is_pinned(at, bytes)) return Status::ok();
  return {Code::kInvalidArgument, "the device cannot reach host memory that is not pinned"};
}

Status FakeStream::check_counter(const uint64_t* counter) const {
  if (reinterpret_cast<uintptr_t>(counter) % sizeof *counter != 0) {
    return {Code::kInvalidArgument, "a counter is not aligned to 8 bytes"};
  }
  return check_host(counter, sizeof *counter);
}

void FakeStream::queue_copy(DeviceAddress dst, std::byte* host_dst, DeviceAddress src,
                            const std::byte* host_src, size_t bytes) {
  queue([this, dst, host_dst, src, host_src, bytes] {
    std::byte* const to = host_dst != nullptr ? host_dst : device_.resolve(dst, bytes);
    const std::byte* const from = host_src != nullptr ? host_src : device_.resolve(src, bytes);
    if (to == nullptr) return device_.lose_at(dst);
    if (from == nullptr) return device_.lose_at(src);
    std::memcpy(to, from, bytes);
  });
}

Status FakeStream::copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("copy_to_device", *this); !status.is_ok()) return status;
  if (bytes == 0) return Status::ok();
  if (Status status = check_host(src, bytes); !status.is_ok()) return status;
  queue_copy(dst, nullptr, 0, src, bytes);
  return Status::ok();
}

Status FakeStream::copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("copy_to_host", *this); !status.is_ok()) return status;
  if (bytes == 0) return Status::ok();
  if (Status status = check_host(dst, bytes); !status.is_ok()) return status;
  queue_copy(0, dst, src, nullptr, bytes);
  return Status::ok();
}

Status FakeStream::copy(DeviceAddress dst, DeviceAddress src, size_t bytes) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("copy", *this); !status.is_ok()) return status;
  if (bytes > 0) queue_copy(dst, nullptr, src, nullptr, bytes);
  return Status::ok();
}

Status FakeStream::wait_value(const uint64_t* counter, uint64_t value) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("wait_value", *this); !status.is_ok()) return status;
  if (Status status = check_counter(counter); !status.is_ok()) return status;
  queue({}, [counter, value] {
    // An atomic_ref needs an object that is not const, though load() does not write to it.
    const uint64_t now =
        std::atomic_ref(*const_cast<uint64_t*>(counter)).load(std::memory_order_acquire);
    return static_cast<int64_t>(now - value) >= 0;
  });
  return Status::ok();
}

Status FakeStream::write_value(uint64_t* counter, uint64_t value) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("write_value", *this); !status.is_ok()) return status;
  if (Status status = check_counter(counter); !status.is_ok()) return status;
  queue([counter, value] { std::atomic_ref(*counter).store(value, std::memory_order_release); });
  return Status::ok();
}

Status FakeStream::write_values(std::span<const CounterValue> writes) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("write_values", *this); !status.is_ok()) return status;
  for (const CounterValue& write : writes) {
    if (Status status = check_counter(write.counter); !status.is_ok()) return status;
  }
  queue([kept = std::vector(writes.begin(), writes.end())] {
    for (const auto& [counter, value] : kept) {
      std::atomic_ref(*counter).store(value, std::memory_order_release);
    }
  });
  return Status::ok();
}

Status FakeStream::reduce(const Batch& batch) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("reduce", *this); !status.is_ok()) return status;
  if (Status status = check_batch(batch); !status.is_ok()) return status;
  if (batch.segments.empty()) return Status::ok();
  queue([this, owned = std::make_shared<OwnedBatch>(batch)] {
    const DeviceAddress missing = reduce_batch(
        owned->get(),
        [this](DeviceAddress at, uint64_t bytes) { return device_.resolve(at, bytes); });
    if (missing != 0) device_.lose_at(missing);
  });
  return Status::ok();
}

Result<bool> FakeStream::is_idle() {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("is_idle"); !status.is_ok()) return status;
  return queue_.empty();
}

}  // namespace rueda::gpu::fake
