#include "daemon/base/yielding_wait.h"

#include <chrono>

#include <gtest/gtest.h>

namespace rueda {
namespace {

using std::chrono::microseconds;

// A core that a thread gets back `yield_takes` after it has yielded.
struct Core {
  microseconds clock{0};
  microseconds yield_takes{2};
  int yields = 0;
};

struct FakeMachine {
  using Clock = std::chrono::steady_clock;
  Clock::time_point now() { return Clock::time_point(core->clock); }
  void yield() {
    core->clock += core->yield_takes;
    ++core->yields;
  }
  Core* core;
};

class YieldingWaitTest : public testing::Test {
 protected:
  // Waits for an event that never happens, and returns whether it waited at all.
  bool try_once() {
    bool was_asked = false;
    EXPECT_FALSE(wait_.until([&] {
      was_asked = true;
      return false;
    }));
    return was_asked;
  }
  int left_out() {
    int count = 0;
    while (!try_once()) ++count;
    return count;
  }
  void meet_a_crowd() {
    core_.yield_takes = microseconds(4000);
    try_once();
    core_.yield_takes = microseconds(2);
  }

  Core core_;
  BasicYieldingWait<FakeMachine> wait_{FakeMachine{&core_}};
};

TEST_F(YieldingWaitTest, what_has_happened_is_seen_without_a_yield) {
  EXPECT_TRUE(wait_.until([] { return true; }));
  EXPECT_EQ(core_.yields, 0);
}

TEST_F(YieldingWaitTest, yields_until_it_happens) {
  EXPECT_TRUE(wait_.until([this] { return core_.yields == 7; }));
  EXPECT_EQ(core_.yields, 7);
}

TEST_F(YieldingWaitTest, patience_ends) {
  EXPECT_TRUE(try_once());
  EXPECT_EQ(core_.clock, wait_.kPatience);
  EXPECT_TRUE(try_once());
}

TEST_F(YieldingWaitTest, a_core_that_comes_back_late_is_left_to_others) {
  meet_a_crowd();
  EXPECT_EQ(core_.yields, 1);
  EXPECT_EQ(left_out(), 64);
}

TEST_F(YieldingWaitTest, what_happened_meanwhile_counts) {
  core_.yield_takes = microseconds(4000);
  EXPECT_TRUE(wait_.until([this] { return core_.yields == 1; }));
}

TEST_F(YieldingWaitTest, a_crowd_that_stays_is_met_ever_more_rarely) {
  for (const int expected : {64, 128, 256, 512, 1024, 2048, 4096, 4096}) {
    meet_a_crowd();
    int count = 0;
    core_.yield_takes = microseconds(2);
    while (!try_once()) ++count;
    EXPECT_EQ(count, expected);
  }
}

TEST_F(YieldingWaitTest, a_crowd_is_forgotten_after_as_many_calm_waits) {
  meet_a_crowd();
  EXPECT_EQ(left_out(), 64);
  for (int i = 0; i < 128; ++i) EXPECT_TRUE(try_once());
  meet_a_crowd();
  EXPECT_EQ(left_out(), 64);
}

}  // namespace
}  // namespace rueda
