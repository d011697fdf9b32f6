#include "tests/gpu/fake/fake_gpu.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tests/gpu/fake/fake_stream.h"

namespace rueda::gpu::fake {

FakeGpu::FakeGpu(const FakeOptions& options) : options_(options), random_(options.seed) {
  RUEDA_CHECK(options.max_steps > 0);
  RUEDA_CHECK(options.ordinal >= 0 && options.ordinal < kMaxGpus);
}

bool FakeGpu::step() {
  const std::lock_guard lock(mutex_);
  return step_locked();
}

uint64_t FakeGpu::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

bool FakeGpu::wait_until_queued(const std::stop_token& stop) {
  const auto is_queued = [this] {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const FakeStream* stream) { return stream->queued() > 0; });
  };
  std::unique_lock lock(mutex_);
  if (is_queued()) return false;
  has_queued_.wait(lock, stop, is_queued);
  return true;
}

bool FakeGpu::step_locked() {
  std::vector<FakeStream*> able;
  for (FakeStream* stream : streams_) {
    if (!stream->is_able()) continue;
    // While a stream of high priority can go on, the others wait.
    if (!able.empty() && able[0]->priority() < stream->priority()) able.clear();
    if (able.empty() || able[0]->priority() == stream->priority()) able.push_back(stream);
  }
  if (able.empty()) return false;
  ++steps_;
  able[random(able.size())]->advance();
  return true;
}

Result<std::shared_ptr<Block>> FakeGpu::make_block(Sharing sharing, uint64_t bytes) {
  // No other process has this number, nor another FakeGpu of this process. It is not the process
  // id, because processes in different containers may have the same.
  static const uint64_t process = std::random_device()();
  static std::atomic<uint32_t> next = 1;
  const uint64_t id = (process << 32) | next++;
  Result<std::shared_ptr<Block>> made = Block::create(options_.folder, id, sharing, bytes);
  if (made.is_ok()) blocks_[id] = made.value();
  return made;
}

std::shared_ptr<Block> FakeGpu::find_block(uint64_t id) {
  const auto found = blocks_.find(id);
  std::shared_ptr<Block> block = found == blocks_.end() ? nullptr : found->second.lock();
  if (!block && !options_.folder.empty()) {
    const Result<std::shared_ptr<Block>> opened = Block::open(options_.folder, id);
    if (opened.is_ok()) blocks_[id] = block = opened.value();
  }
  return block && !block->is_freed() ? block : nullptr;
}

FakeRunner::FakeRunner(FakeGpu& gpu)
    : thread_([&gpu](const std::stop_token& stop) {
        // The runner looks again after a pause, because the host may write a counter without
        // telling it.
        constexpr std::chrono::microseconds kShortest{20};
        constexpr std::chrono::microseconds kLongest{200};
        auto pause = kShortest;
        while (!stop.stop_requested()) {
          if (gpu.step() || gpu.wait_until_queued(stop)) {
            pause = kShortest;
            continue;
          }
          std::this_thread::sleep_for(pause);
          pause = std::min(2 * pause, kLongest);
        }
      }) {}

}  // namespace rueda::gpu::fake
