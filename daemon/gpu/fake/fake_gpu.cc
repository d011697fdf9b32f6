#include "daemon/gpu/fake/fake_gpu.h"

#include <chrono>

#include "daemon/gpu/fake/fake_stream.h"

namespace rueda::gpu::fake {

FakeGpu::FakeGpu(const FakeOptions& options) : options_(options), random_(options.seed) {
  RUEDA_CHECK(options.max_steps > 0);
}

bool FakeGpu::step() {
  const std::lock_guard lock(mutex_);
  return step_locked();
}

uint64_t FakeGpu::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

bool FakeGpu::step_locked() {
  std::vector<FakeStream*> able;
  for (FakeStream* stream : streams_) {
    if (!stream->is_able()) continue;
    // While one of high priority can go on, the others do not.
    if (!able.empty() && able[0]->priority() < stream->priority()) able.clear();
    if (able.empty() || able[0]->priority() == stream->priority()) able.push_back(stream);
  }
  if (able.empty()) return false;
  ++steps_;
  able[random(able.size())]->advance();
  return true;
}

FakeRunner::FakeRunner(FakeGpu& gpu)
    : thread_([&gpu](const std::stop_token& stop) {
        // A counter may be written by the host without a word to anybody.
        constexpr std::chrono::microseconds kPause{20};
        while (!stop.stop_requested()) {
          if (!gpu.step()) std::this_thread::sleep_for(kPause);
        }
      }) {}

}  // namespace rueda::gpu::fake
