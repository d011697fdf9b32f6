// Tests what only the fake does: time in steps, which is the same for the same seed.
#include "tests/gpu/fake/fake_gpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "tests/gpu/fake/fake_device.h"

namespace rueda::gpu::fake {
namespace {

// Two streams of one device write to a counter each, ten times. Returns both counters after each
// step.
std::vector<std::pair<uint64_t, uint64_t>> history(uint64_t seed, uint32_t max_steps = 4,
                                                   Priority of_second = Priority::kLow) {
  FakeGpu gpu({.seed = seed, .max_steps = max_steps});
  FakeDevice device(gpu);
  const auto memory = device.allocate_host(16).value();
  auto* const counters = reinterpret_cast<uint64_t*>(memory.data());
  const auto first = device.make_stream(Priority::kLow).value();
  const auto second = device.make_stream(of_second).value();
  for (uint64_t i = 1; i <= 10; ++i) {
    EXPECT_TRUE(first->write_value(&counters[0], i).is_ok());
    EXPECT_TRUE(second->write_value(&counters[1], i).is_ok());
  }
  std::vector<std::pair<uint64_t, uint64_t>> found;
  while (gpu.step()) found.emplace_back(counters[0], counters[1]);
  EXPECT_EQ(found.size(), gpu.steps());
  return found;
}

TEST(FakeGpu, TheSameSeedGivesTheSameRun) {
  std::set<std::vector<std::pair<uint64_t, uint64_t>>> all;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(history(seed), history(seed));
    all.insert(history(seed));
  }
  EXPECT_EQ(all.size(), 20u);
}

TEST(FakeGpu, StreamsTakeTurnsAtRandom) {
  const auto found = history(3, 1);
  EXPECT_EQ(found.size(), 20u);
  EXPECT_EQ(found.back(), std::pair(uint64_t{10}, uint64_t{10}));
  const bool is_mixed = std::any_of(found.begin(), found.end(), [](const auto& now) {
    return now.first > 0 && now.second > 0 && now.first < 10 && now.second < 10;
  });
  EXPECT_TRUE(is_mixed);
}

TEST(FakeGpu, OperationsTakeTime) {
  const auto found = history(3, 8);
  EXPECT_GT(found.size(), 40u);
  EXPECT_LE(found.size(), 160u);
}

TEST(FakeGpu, HighPriorityGoesFirst) {
  for (const auto& [low, high] : history(5, 4, Priority::kHigh)) {
    EXPECT_TRUE(low == 0 || high == 10);
  }
}

TEST(FakeGpu, NothingHappensWithoutAStep) {
  FakeGpu gpu;
  FakeDevice device(gpu);
  const auto memory = device.allocate_host(8).value();
  auto* const counter = reinterpret_cast<uint64_t*>(memory.data());
  const auto stream = device.make_stream(Priority::kLow).value();
  ASSERT_TRUE(stream->write_value(counter, 1).is_ok());
  EXPECT_FALSE(stream->is_idle().value());
  EXPECT_EQ(*counter, 0u);
  gpu.run();
  EXPECT_EQ(*counter, 1u);
  EXPECT_TRUE(stream->is_idle().value());
  EXPECT_FALSE(gpu.step());
}

TEST(FakeGpu, ARunnerTakesTheSteps) {
  FakeGpu gpu;
  FakeDevice device(gpu);
  const auto memory = device.allocate_host(16).value();
  auto* const counters = reinterpret_cast<uint64_t*>(memory.data());
  const auto stream = device.make_stream(Priority::kLow).value();
  const FakeRunner runner(gpu);
  for (uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(stream->wait_value(&counters[0], i).is_ok());
    ASSERT_TRUE(stream->write_value(&counters[1], i).is_ok());
    std::atomic_ref(counters[0]).store(i);
    while (std::atomic_ref(counters[1]).load() != i) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace rueda::gpu::fake
