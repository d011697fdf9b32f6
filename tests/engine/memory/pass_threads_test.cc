#include "daemon/engine/memory/pass_threads.h"

#include <atomic>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

class PassThreadsTest : public ::testing::TestWithParam<int> {};

TEST_P(PassThreadsTest, each_part_is_done_once) {
  PassThreads pass(GetParam());
  for (const int parts : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(parts));
    pass.run(parts, [&](int, int64_t part) { ++done[static_cast<size_t>(part)]; });
    EXPECT_THAT(done, ::testing::Each(::testing::Eq(1))) << parts;
  }
}

TEST_P(PassThreadsTest, no_two_parts_at_a_time_have_one_thread_number) {
  PassThreads pass(GetParam());
  std::vector<std::atomic<int>> busy(static_cast<size_t>(GetParam()));
  pass.run(500, [&](int thread, int64_t) {
    ASSERT_GE(thread, 0);
    ASSERT_LT(thread, GetParam());
    EXPECT_EQ(++busy[static_cast<size_t>(thread)], 1);
    --busy[static_cast<size_t>(thread)];
  });
}

TEST_P(PassThreadsTest, what_was_done_is_seen_by_the_caller) {
  PassThreads pass(GetParam());
  std::vector<int64_t> values(64);
  for (int64_t round = 1; round <= 2000; ++round) {
    pass.run(64, [&](int, int64_t part) { values[static_cast<size_t>(part)] = part * round; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 63 * 32 * round);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PassThreadsTest, ::testing::Values(1, 2, 3, 8));

TEST(PassThreads, others_help) {
  PassThreads pass(2);
  std::mutex mutex;
  std::set<std::thread::id> who;
  const auto all = [&] {
    const std::lock_guard lock(mutex);
    return who.size() == 2;
  };
  // The caller's part ends when the helper's part has begun.
  pass.run(2, [&](int, int64_t) {
    {
      const std::lock_guard lock(mutex);
      who.insert(std::this_thread::get_id());
    }
    while (!all()) std::this_thread::yield();
  });
  EXPECT_EQ(who.size(), 2u);
}

}  // namespace
}  // namespace rueda::engine
