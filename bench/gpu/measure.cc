#include "bench/gpu/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>

namespace rueda::gpu::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::milliseconds kLookEvery{20};
constexpr uint64_t kAlignment = 256;
constexpr size_t kMaxQueued = 500;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Holds the workload in the memory of a device, and a counter that says what is done.
class Bench {
 public:
  Bench(Device& device, const Workload& workload) : device_(device), workload_(workload) {}
  ~Bench() {
    stream_.reset();
    // A buffer that cannot be freed now is freed with the device.
    for (const DeviceAddress buffer : buffers_) static_cast<void>(device_.free(buffer));
    if (counter_ != nullptr) {
      static_cast<void>(device_.free_host(reinterpret_cast<std::byte*>(counter_)));
    }
  }

  Status prepare();
  Status copy() { return stream_->copy(buffers_[1], buffers_[0], workload_.bytes); }
  Status reduce() { return stream_->reduce(batch_); }
  // Returns how long `count` calls of `work` take, until the device has done the last.
  Result<double> time(const std::function<Status()>& work, size_t count);

 private:
  void cut_segments();

  Device& device_;
  const Workload workload_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> buffers_;  // sources, then destinations
  uint64_t* counter_ = nullptr;
  uint64_t done_ = 0;
  std::vector<std::vector<DeviceAddress>> addresses_;
  std::vector<Segment> segments_;
  Batch batch_;
};

Status Bench::prepare() {
  auto stream = device_.make_stream(Priority::kLow);
  if (!stream.is_ok()) return stream.status();
  stream_ = std::move(stream).value();
  const auto host = device_.allocate_host(sizeof *counter_);
  if (!host.is_ok()) return host.status();
  counter_ = reinterpret_cast<uint64_t*>(host.value().data());
  for (size_t i = 0; i < 2 * workload_.ranks; ++i) {
    const auto buffer = device_.allocate(workload_.bytes, Sharing::kIpc);
    if (!buffer.is_ok()) return buffer.status();
    buffers_.push_back(buffer.value());
  }
  cut_segments();
  return Status::ok();
}

void Bench::cut_segments() {
  const uint64_t size = element_bytes(workload_.dtype);
  const uint64_t each =
      std::max(kAlignment, workload_.bytes / workload_.segments / kAlignment * kAlignment);
  for (uint64_t at = 0; at < workload_.bytes; at += each) {
    const bool is_last = addresses_.size() / 2 + 1 == workload_.segments;
    const uint64_t bytes = is_last ? workload_.bytes - at : std::min(each, workload_.bytes - at);
    for (const size_t first : {size_t{0}, workload_.ranks}) {
      std::vector<DeviceAddress> list;
      for (size_t i = 0; i < workload_.ranks; ++i) list.push_back(buffers_[first + i] + at);
      addresses_.push_back(std::move(list));
    }
    segments_.push_back({.count = bytes / size});
    if (is_last) break;
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].sources = addresses_[2 * i];
    segments_[i].destinations = addresses_[2 * i + 1];
  }
  batch_ = {.dtype = workload_.dtype, .segments = segments_};
}

Result<double> Bench::time(const std::function<Status()>& work, size_t count) {
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    Status status = work();
    // The stream has as much to do as it takes, so the call is repeated.
    while (status.is_retryable() && device_.health().is_ok() && Clock::now() < begin + kPatience) {
      status = work();
    }
    if (!status.is_ok()) return status;
  }
  if (Status status = stream_->write_value(counter_, ++done_); !status.is_ok()) return status;
  // A lost device writes no counter. Asking for the device's health takes time, so it is done only
  // now and then.
  Clock::time_point look = Clock::now() + kLookEvery;
  while (std::atomic_ref(*counter_).load(std::memory_order_acquire) != done_) {
    if (Clock::now() < look) continue;
    const Result<bool> idle = stream_->is_idle();
    if (!idle.is_ok()) return idle.status();
    if (look > begin + kPatience) return Status(Code::kTimeout, "the device comes to no end");
    look += kLookEvery;
  }
  return seconds_since(begin);
}

// Returns how often `work` is called in a round, so that the round takes about as long as it
// should.
Result<size_t> repeats(Bench& bench, const std::function<Status()>& work, double round_seconds) {
  const Result<double> first = bench.time(work, 1);  // loads the kernel
  if (!first.is_ok()) return first.status();
  const Result<double> once = bench.time(work, 1);
  if (!once.is_ok()) return once.status();
  const double wanted = round_seconds / std::max(once.value(), 1e-7);
  return std::clamp<size_t>(static_cast<size_t>(wanted), 1, kMaxQueued);
}

}  // namespace

Result<Measured> measure(Device& device, const Workload& workload) {
  Bench bench(device, workload);
  if (Status status = bench.prepare(); !status.is_ok()) return status;
  const auto copy = [&] { return bench.copy(); };
  const auto reduce = [&] { return bench.reduce(); };
  const Result<size_t> copies = repeats(bench, copy, workload.round_seconds);
  if (!copies.is_ok()) return copies.status();
  const Result<size_t> reductions = repeats(bench, reduce, workload.round_seconds);
  if (!reductions.is_ok()) return reductions.status();

  Measured measured;
  const auto bytes = static_cast<double>(workload.bytes);
  for (uint32_t round = 0; round < workload.rounds; ++round) {
    const Result<double> copied = bench.time(copy, copies.value());
    if (!copied.is_ok()) return copied.status();
    const Result<double> reduced = bench.time(reduce, reductions.value());
    if (!reduced.is_ok()) return reduced.status();
    const Result<double> alone = bench.time(reduce, 1);
    if (!alone.is_ok()) return alone.status();
    const double copy_rate = 2 * bytes * static_cast<double>(copies.value()) / copied.value();
    const double reduce_rate = 2 * bytes * static_cast<double>(workload.ranks) *
                               static_cast<double>(reductions.value()) / reduced.value();
    measured.copy_bytes_per_s.push_back(copy_rate);
    measured.reduce_bytes_per_s.push_back(reduce_rate);
    measured.ratio.push_back(reduce_rate / copy_rate);
    measured.latency_us.push_back(alone.value() * 1e6);
  }
  return measured;
}

}  // namespace rueda::gpu::bench
