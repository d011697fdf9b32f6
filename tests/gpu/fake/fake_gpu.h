// A GPU without hardware: memory and time of the fake devices, for tests and CI.
//
// One FakeGpu is one GPU; each FakeDevice on it (fake_device.h) is the view of one process, with
// addresses of its own. Queued work advances only in step(), which lets one stream do a little: its
// first operation takes a number of steps, and happens all at once at their end. The seed alone
// decides which stream is next and how long operations take, so that the same calls and steps give
// the same run. A FakeRunner takes the steps on a thread, in real time.
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
#include "tests/gpu/fake/block.h"

namespace rueda::gpu::fake {

inline constexpr int kMaxGpus = 8;

struct FakeOptions {
  uint64_t seed = 1;
  // The number of the GPU among the machine's, below kMaxGpus. The GPUs of one process have
  // different numbers.
  int ordinal = 0;
  // True if other GPUs can reach its memory, and it theirs.
  bool has_peer_access = true;
  uint64_t memory_bytes = uint64_t{64} << 20;
  // The largest number of steps that an operation takes. The smallest is 1.
  uint32_t max_steps = 4;
  // The folder in which memory lies, as files. Processes whose FakeGpus have the same folder share
  // that GPU's memory, each with a time of its own. Empty: the memory belongs to this process
  // alone.
  std::string folder;
  // These are as in DeviceFacts.
  bool is_exclusive = false;
  bool has_mps = false;
  // If set, such imports fail, as they do in a container other than the exporter's.
  bool refuses_ipc_handles = false;
  bool refuses_descriptors = false;
  bool has_communicators = true;
};

// A queued operation. Both functions are called with the GPU's mutex held.
struct Operation {
  // for a wait: returns true when it is over; empty: there is no wait
  std::function<bool()> is_ready;
  std::function<void()> run;
  uint32_t steps = 1;
};

class FakeStream;

class FakeGpu {
 public:
  explicit FakeGpu(const FakeOptions& options = {});

  // Takes one step of one stream. Returns false when no stream had anything that it could do.
  bool step();
  // Takes steps until nothing moves. Work that is left then waits for a counter.
  void run() {
    while (step()) {
    }
  }
  // Returns the number of steps that found something to do.
  uint64_t steps() const;
  // Waits until some stream has work, though that may wait for a counter. Returns false if a stream
  // had work already.
  bool wait_until_queued(const std::stop_token& stop);

 private:
  friend class FakeCommunicator;
  friend class FakeDevice;
  friend class FakeStream;

  bool step_locked();
  // The functions from here on are called under the mutex.
  Result<std::shared_ptr<Block>> make_block(Sharing sharing, uint64_t bytes);
  // Returns null if there is no such memory, or no longer.
  std::shared_ptr<Block> find_block(uint64_t id);
  uint64_t random(uint64_t below) { return random_() % below; }

  mutable std::mutex mutex_;
  const FakeOptions options_;
  std::mt19937_64 random_;
  uint64_t steps_ = 0;
  uint64_t used_bytes_ = 0;
  // keyed by id; the blocks that this GPU has seen
  std::map<uint64_t, std::weak_ptr<Block>> blocks_;
  std::vector<FakeStream*> streams_;  // in the order in which they were made
  std::condition_variable_any has_queued_;
};

// Takes steps on a thread of its own as long as it lives.
class FakeRunner {
 public:
  explicit FakeRunner(FakeGpu& gpu);

 private:
  std::jthread thread_;
};

}  // namespace rueda::gpu::fake
