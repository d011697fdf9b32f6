// Sets up a worker with several fake GPUs, of which each rank has one of its own.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/gpu/worker/parts.h"
#include "tests/gpu/worker/worker_rig.h"

namespace rueda::gpu {

// The count is enough for a part on each of four GPUs, and no multiple of anything.
inline constexpr uint64_t kMany = 4 * kLeastPartBytes / sizeof(float) + 1003;
inline constexpr uint64_t kManyBytes = kMany * sizeof(float);

// Rank i's memory has number i, and lies on GPU i.
class SeveralGpus : public WorkerTest {
 protected:
  explicit SeveralGpus(size_t gpus, uint64_t seed = 1, bool have_peer_access = true)
      : WorkerTest(gpus, seed, have_peer_access) {
    for (FakeGpu& gpu : gpus_) own_.emplace_back(gpu);
  }

  void open_with_counters() {
    open();
    ASSERT_EQ(next()->type(), WorkerMessage::kReady);
    add_counters();
  }
  void open_all(Sharing sharing = Sharing::kIpc) {
    open_with_counters();
    for (uint32_t i = 0; i < own_.size(); ++i) {
      allocate(i, kManyBytes, sharing);
      fill(i);
      expect_added(i);
    }
  }
  void allocate(uint32_t rank, uint64_t bytes, Sharing sharing) {
    own_[rank].at = own_[rank].device.allocate(bytes, sharing).value();
  }
  void expect_added(uint32_t rank, Code code = Code::kOk) {
    Rank& own = own_[rank];
    const std::array<uint8_t, 16> uuid = own.device.facts().uuid;
    add(rank, own.device.export_memory(own.at).value(), uuid);
    if (code == Code::kOk && uuid[15] > 0 && ready_.insert(uuid).second) {
      auto packet = next();
      ASSERT_TRUE(packet.has_value());
      ReadyBody ready;
      ASSERT_EQ(packet->type(), WorkerMessage::kReady);
      ASSERT_TRUE(packet->take(ready));
      EXPECT_EQ(ready.uuid, uuid);
    }
    expect_outcome(WorkerMessage::kMemoryAdded, rank, code);
  }
  // Fills the memory with random numbers, whose sums depend on their order.
  void fill(uint32_t rank) {
    std::vector<float>& values = given_[rank];
    values.resize(kMany);
    for (float& value : values) value = normal_(random_);
    write(rank, values);
  }
  void write(uint32_t rank, const std::vector<float>& values) {
    Rank& own = own_[rank];
    const auto host = own.device.allocate_host(kManyBytes).value();
    std::memcpy(host.data(), values.data(), kManyBytes);
    ASSERT_TRUE(own.stream->copy_to_device(own.at, host.data(), kManyBytes).is_ok());
    run_own(own);
    ASSERT_TRUE(own.device.free_host(host.data()).is_ok());
  }
  std::vector<float> read(uint32_t rank) {
    Rank& own = own_[rank];
    const auto host = own.device.allocate_host(kManyBytes).value();
    EXPECT_TRUE(own.stream->copy_to_host(host.data(), own.at, kManyBytes).is_ok());
    run_own(own);
    std::vector<float> found(kMany);
    std::memcpy(found.data(), host.data(), kManyBytes);
    EXPECT_TRUE(own.device.free_host(host.data()).is_ok());
    return found;
  }
  void run_own(Rank& own) {
    FakeGpu& gpu = gpus_[static_cast<size_t>(own.device.facts().ordinal)];
    while (!own.stream->is_idle().value()) ASSERT_TRUE(gpu.step());
  }
  // Returns the sum as one GPU computes it, rank by rank.
  std::vector<float> sum() const {
    std::vector<float> sums = given_.at(0);
    for (uint32_t rank = 1; rank < own_.size(); ++rank) {
      for (uint64_t i = 0; i < kMany; ++i) sums[i] += given_.at(rank)[i];
    }
    return sums;
  }

  // Returns an operation that sums the memory of all ranks, in place.
  WorkerOperation sum_of_all(uint64_t number, uint64_t count = kMany) const {
    WorkerOperation operation{.number = number};
    PlacedSegment segment{.count = count};
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      segment.sources.push_back({.memory = rank});
      segment.destinations.push_back({.memory = rank});
    }
    operation.segments.push_back(std::move(segment));
    return operation;
  }
  // Returns how many steps each GPU took for an operation.
  std::vector<uint64_t> steps_for(const WorkerOperation& operation, Code code = Code::kOk) {
    std::vector<uint64_t> steps;
    for (const FakeGpu& gpu : gpus_) steps.push_back(gpu.steps());
    run(operation);
    expect_outcome(WorkerMessage::kEnded, operation.number, code);
    for (size_t i = 0; i < gpus_.size(); ++i) steps[i] = gpus_[i].steps() - steps[i];
    return steps;
  }
  void expect_all(const std::vector<float>& wanted) {
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      EXPECT_TRUE(read(rank) == wanted) << "rank " << rank;  // avoids a message with all elements
    }
  }
  // Gives whatever goes on the time to do so.
  void wait_a_while() { EXPECT_EQ(next(), std::nullopt); }

  std::deque<Rank> own_;
  std::set<std::array<uint8_t, 16>> ready_;  // the GPUs reported as ready, besides the first
  std::map<uint32_t, std::vector<float>> given_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

}  // namespace rueda::gpu
