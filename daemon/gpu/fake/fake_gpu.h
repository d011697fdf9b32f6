// A GPU that is none: memory and time of the fake devices, for tests and CI.
//
// One FakeGpu is one GPU; each FakeDevice on it (fake_device.h) is what one process sees of it,
// with addresses of its own. Queued work advances only in step(), which lets one stream do a
// little: its first operation takes a number of steps before it happens, all at once, at its end.
// Which stream is next and how long things take follow from the seed alone, so that the same calls
// and steps give the same run. A FakeRunner takes the steps on a thread, in real time.
//
// Thread-safe, so that a runner may step beside the thread that the devices belong to.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "daemon/gpu/device.h"
#include "daemon/gpu/fake/block.h"

namespace rueda::gpu::fake {

inline constexpr int kMaxGpus = 8;

struct FakeOptions {
  uint64_t seed = 1;
  // Which of the machine's GPUs it is: of those of one process, each has another. Below kMaxGpus.
  int ordinal = 0;
  // Whether other GPUs reach its memory, and it theirs.
  bool has_peer_access = true;
  uint64_t memory_bytes = uint64_t{64} << 20;
  // The longest that an operation takes. The shortest is 1.
  uint32_t max_steps = 4;
  // Where memory lies, a file each. Processes whose FakeGpus have the same folder share that GPU's
  // memory, each with a time of its own. Empty: the memory is this process's.
  std::string folder;
  // As DeviceFacts has them.
  bool is_exclusive = false;
  bool has_mps = false;
  // What is imported fails, as in another container than the exporter's.
  bool refuses_ipc_handles = false;
  bool refuses_descriptors = false;
  bool has_communicators = true;
};

// A queued operation. Both are called with the GPU's mutex held.
struct Operation {
  std::function<bool()> is_ready;  // a wait: whether it is over; empty: at once
  std::function<void()> run;
  uint32_t steps = 1;
};

class FakeStream;

class FakeGpu {
 public:
  explicit FakeGpu(const FakeOptions& options = {});

  // One step of one stream. False when no stream had anything that it could do.
  bool step();
  // Until nothing moves. What is left then waits for a counter.
  void run() {
    while (step()) {
    }
  }
  // Steps taken, those that found nothing to do left out.
  uint64_t steps() const;
  // Until some stream has something, though it may wait for a counter. False: one had it already.
  bool wait_until_queued(const std::stop_token& stop);

 private:
  friend class FakeCommunicator;
  friend class FakeDevice;
  friend class FakeStream;

  bool step_locked();
  // Under the mutex, as all of these.
  Result<std::shared_ptr<Block>> make_block(Sharing sharing, uint64_t bytes);
  // Null: there is no such memory, or no longer.
  std::shared_ptr<Block> find_block(uint64_t id);
  uint64_t random(uint64_t below) { return random_() % below; }

  mutable std::mutex mutex_;
  const FakeOptions options_;
  std::mt19937_64 random_;
  uint64_t steps_ = 0;
  uint64_t used_bytes_ = 0;
  std::map<uint64_t, std::weak_ptr<Block>> blocks_;  // by id; those that it has seen
  std::vector<FakeStream*> streams_;                 // in the order in which they were made
  std::condition_variable_any has_queued_;
};

// Steps on a thread of its own for as long as it lives.
class FakeRunner {
 public:
  explicit FakeRunner(FakeGpu& gpu);

 private:
  std::jthread thread_;
};

}  // namespace rueda::gpu::fake
