#include "daemon/base/handler_watch.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rueda {
namespace {

using std::chrono::milliseconds;

class FakeClock final : public HandlerClock {
 public:
  Time now() const override { return passed; }
  Time worked() const override {
    ++looks_at_work;
    return has_worked;
  }
  void work(Time time) {
    passed += time;
    has_worked += time;
  }
  void stand(Time time) { passed += time; }
  Time passed{milliseconds(1'000'000)};
  Time has_worked{0};
  mutable int looks_at_work = 0;
};

class HandlerWatchTest : public ::testing::Test {
 protected:
  using CausePtr = std::shared_ptr<const Cause>;

  HandlerWatchTest() {
    watch_.on_slow([this](const SlowHandler& slow) {
      slow_.push_back(slow.cause.name + (slow.is_ended ? " ended" : "") +
                      (slow.is_news ? "" : " again"));
      worked_ = slow.worked;
    });
  }
  CausePtr job(const std::string& name) {
    return std::make_shared<const Cause>(
        Cause{name, [this, name](const std::string& why) { ended_.push_back(name + " " + why); }});
  }
  // Runs a handler that works for this cause for so long.
  void handle(const CausePtr& cause, HandlerClock::Time time) {
    HandlerWatch::note(cause);
    clock_.work(time);
    watch_.end();
  }

  FakeClock clock_;
  HandlerWatch watch_{clock_};
  HandlerWatch::Use use_{watch_};
  std::vector<std::string> slow_;
  std::vector<std::string> ended_;
  milliseconds worked_{0};
};

const HandlerClock::Time kLong = HandlerWatch::kReported + milliseconds(50);
const HandlerClock::Time kTooLong = HandlerWatch::kEnded + milliseconds(50);

TEST_F(HandlerWatchTest, AHandlerThatWorksForLongIsReportedOnceInAWhile) {
  const CausePtr one = job("one");
  const CausePtr other = job("other");
  handle(one, kLong);
  handle(one, kLong);
  handle(other, kLong);
  EXPECT_EQ(slow_, (std::vector<std::string>{"one", "one again", "other"}));
  EXPECT_GE(worked_, HandlerWatch::kReported);
  EXPECT_LE(worked_, kLong);
  EXPECT_TRUE(ended_.empty());
  clock_.stand(HandlerWatch::kNewsEvery);
  handle(other, kLong);
  EXPECT_EQ(slow_.back(), "other");
}

TEST_F(HandlerWatchTest, AHandlerThatWorksForTooLongEndsItsCauseAlone) {
  const CausePtr slow = job("slow");
  const CausePtr quick = job("quick");
  handle(quick, milliseconds(1));
  handle(slow, kTooLong);
  handle(quick, milliseconds(1));
  EXPECT_EQ(slow_, std::vector<std::string>{"slow ended"});
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].starts_with("slow has kept a loop of the daemon from all others for "))
      << ended_[0];
  handle(std::make_shared<const Cause>(Cause{"nobody who can be ended"}), kTooLong);
  EXPECT_EQ(slow_.back(), "nobody who can be ended");
}

// A machine that is suspended, a daemon that is stopped, or one beside many busy processes.
TEST_F(HandlerWatchTest, ATimeInWhichTheThreadDidNotRunAccusesNobody) {
  const CausePtr one = job("one");
  HandlerWatch::note(one);
  clock_.stand(std::chrono::hours(1));
  clock_.work(milliseconds(20));
  watch_.end();
  EXPECT_TRUE(slow_.empty());
}

TEST_F(HandlerWatchTest, ManyShortHandlersAreNotOneLongOne) {
  const CausePtr one = job("one");
  for (int i = 0; i < 1000; ++i) handle(one, milliseconds(9));
  EXPECT_TRUE(slow_.empty());
}

// Work that nobody is known to have caused, before the handler and after it, is not the handler's.
TEST_F(HandlerWatchTest, WorkForOthersIsNotCounted) {
  const CausePtr one = job("one");
  const CausePtr other = job("other");
  handle(one, milliseconds(1));
  clock_.work(kTooLong);
  handle(one, milliseconds(1));
  clock_.work(kTooLong);
  // One handler may work for several, one after the other.
  HandlerWatch::note(one);
  clock_.work(HandlerWatch::kReported / 2);
  HandlerWatch::note(other);
  clock_.work(HandlerWatch::kReported / 2);
  HandlerWatch::note(one);
  watch_.end();
  EXPECT_TRUE(slow_.empty());
}

// The thread's clock costs a system call.
TEST_F(HandlerWatchTest, TheThreadsClockIsReadNowAndThen) {
  const CausePtr one = job("one");
  for (int i = 0; i < 1000; ++i) handle(one, std::chrono::microseconds(10));
  EXPECT_LE(clock_.looks_at_work, 2);
}

TEST_F(HandlerWatchTest, SaysWhetherAHandlerHasTakenItsTime) {
  const CausePtr one = job("one");
  EXPECT_FALSE(watch_.end());
  HandlerWatch::note(one);
  EXPECT_FALSE(watch_.end());
  HandlerWatch::note(one);
  clock_.work(milliseconds(4));
  EXPECT_TRUE(watch_.end());
  EXPECT_FALSE(watch_.end());
}

TEST(HandlerWatch, AThreadWithoutAWatchNotesNothing) {
  HandlerWatch::note(std::make_shared<const Cause>(Cause{"one"}));
  HandlerWatch watch;
  EXPECT_FALSE(watch.end());
}

// Of the real clocks: only what the thread does counts as its work.
TEST(HandlerWatch, TheSystemsClocksGoForwards) {
  const HandlerClock& clock = HandlerClock::of_system();
  const HandlerClock::Time now = clock.now();
  const HandlerClock::Time worked = clock.worked();
  while (clock.worked() - worked < milliseconds(20)) {
  }
  EXPECT_GT(clock.now(), now);
}

}  // namespace
}  // namespace rueda
