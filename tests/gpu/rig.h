// Provides what the conformance suite needs to drive any GPU.
//
// To bring a new implementation into the suite, add one RigMaker to all_rigs() in rig.cc, and
// nothing else. Where this machine cannot run it, its tests are skipped and say why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/gpu/device.h"

namespace rueda::gpu {

// Returns the i-th byte of memory that a neighbour shares.
constexpr std::byte shared_byte(size_t i, uint8_t seed) { return std::byte(i * 7 + seed); }

// Plays another process on one of our GPUs, which shares memory with us.
class Neighbour {
 public:
  virtual ~Neighbour() = default;
  // Shares memory of `bytes` shared_byte()s. A descriptor in the handle belongs to the caller.
  virtual Result<MemoryHandle> share(size_t bytes, uint8_t seed, Sharing sharing) = 0;
  // Frees the memory that was shared last.
  virtual Status take_back() = 0;
};

class Rig {
 public:
  virtual ~Rig() = default;
  virtual Device& device() = 0;
  // Returns another GPU's device, which device() reaches and which is opened at the first call, or
  // the reason why there is none.
  virtual Result<Device*> peer() = 0;
  // Lets a little time pass.
  virtual void wait_a_little() = 0;
  // Makes a neighbour on the GPU of device(), or on the peer's.
  virtual std::unique_ptr<Neighbour> make_neighbour(bool is_peers = false) = 0;
  // Removes the folder that the rig has, if any, before a process ends that destroys nothing.
  virtual void remove_folder() const {}
};

struct RigMaker {
  std::string name;
  std::function<Result<std::unique_ptr<Rig>>(const DeviceOptions&)> make;
};
std::vector<RigMaker> all_rigs();
inline void PrintTo(const RigMaker& maker, std::ostream* out) { *out << maker.name; }

// This function is defined in cuda_rig.cc.
RigMaker cuda_rig();

inline constexpr uint64_t kLimitBytes = uint64_t{48} << 20;

class GpuConformance : public testing::TestWithParam<RigMaker> {
 protected:
  void SetUp() override { open({.memory_limit_bytes = kLimitBytes}); }
  // Opens another device, or the first. Skips the test where there is none.
  void open(const DeviceOptions& options);

  Device& device() { return rig_->device(); }
  std::unique_ptr<Stream> make_stream(Priority priority = Priority::kLow);
  // Waits until the stream is idle, or reports an error, or hangs.
  Status finish(Stream& stream);
  // Gives work that must not go on the time to go on.
  void wait_a_while();
  // Waits until done() is true. Returns false when it takes too long.
  bool wait_for(const std::function<bool()>& done);

  DeviceAddress allocate(uint64_t bytes, Sharing sharing = Sharing::kIpc);
  // What is imported or joined does not count towards the limit of what is allocated.
  void expect_all_may_be_allocated();
  std::span<std::byte> pinned(size_t bytes);
  uint64_t* counter();
  void put(DeviceAddress to, std::span<const std::byte> bytes);
  std::vector<std::byte> get(DeviceAddress from, size_t bytes);

  std::unique_ptr<Rig> rig_;

 private:
  std::unique_ptr<Stream> copies_;
};

std::string rig_name(const testing::TestParamInfo<RigMaker>& info);

}  // namespace rueda::gpu
