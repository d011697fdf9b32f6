#include "daemon/engine/loops/busy_poll_loop.h"

#include <chrono>
#include <functional>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

// Has something to do `found` times, and records what it was asked.
struct Rings final : PollSource {
  explicit Rings(BusyPollLoop& l) : loop(l) {}
  void watch() override {
    EXPECT_FALSE(is_watched);
    is_watched = true;
    ++watches;
  }
  bool look() override {
    EXPECT_TRUE(is_watched);
    if (found == 0) return false;
    --found;
    ++handled;
    loop.stay_awake();
    return true;
  }
  void rest() override {
    EXPECT_TRUE(is_watched);
    is_watched = false;
    if (found_at_rest == 0) return;
    --found_at_rest;
    ++handled;
    loop.stay_awake();
  }
  BusyPollLoop& loop;
  int found = 0;
  int found_at_rest = 0;
  int handled = 0;
  int watches = 0;
  bool is_watched = false;
};

class BusyPollLoopTest : public ::testing::Test {
 protected:
  // Runs the loop over one event that keeps it awake, until it has gone to sleep.
  void run() {
    loop_.watch(rings_);
    boost::asio::post(io_, [this] { loop_.stay_awake(); });
    boost::asio::steady_timer alarm(io_, std::chrono::milliseconds(20));
    alarm.async_wait([](const boost::system::error_code&) {});
    loop_.run();
  }
  boost::asio::io_context io_{1};
  BusyPollLoop loop_{io_};
  Rings rings_{loop_};
};

TEST_F(BusyPollLoopTest, AHandlerThatThrowsIsNotTheEnd) {
  bool has_run = false;
  boost::asio::post(io_, [] { throw std::bad_alloc(); });
  boost::asio::post(io_, [&] { has_run = true; });
  loop_.run();
  EXPECT_TRUE(has_run);
}

TEST_F(BusyPollLoopTest, LooksAtWhatNoDescriptorTellsOf) {
  rings_.found = 100;
  run();
  EXPECT_EQ(rings_.handled, 100);
  EXPECT_EQ(rings_.watches, 1);
  EXPECT_FALSE(rings_.is_watched);
}

TEST_F(BusyPollLoopTest, WhatIsFoundAtTheLastMomentKeepsItAwake) {
  rings_.found_at_rest = 3;
  run();
  EXPECT_EQ(rings_.handled, 3);
  EXPECT_EQ(rings_.watches, 4);
  EXPECT_FALSE(rings_.is_watched);
}

TEST_F(BusyPollLoopTest, ALoopThatSleepsLooksAtNothing) {
  rings_.found = 1;
  loop_.watch(rings_);
  boost::asio::post(io_, [] {});
  loop_.run();
  EXPECT_EQ(rings_.handled, 0);
  EXPECT_EQ(rings_.watches, 0);
}

// Each handler takes its time and posts the next, as the turns of a large operation do. Who does
// not ring was not looked at before the last of them.
TEST_F(BusyPollLoopTest, ThereAreLooksBetweenHandlersThatTakeTheirTime) {
  struct Clock final : HandlerClock {
    Time now() const override { return passed; }
    Time passed{0};
  } clock;
  BusyPollLoop loop(io_, clock);
  Rings rings(loop);
  loop.watch(rings);
  const auto cause = std::make_shared<const Cause>(Cause{"job"});
  int turns = 0;
  int first_after_look = 0;
  std::function<void()> turn = [&] {
    HandlerWatch::note(cause);
    clock.passed += std::chrono::milliseconds(5);
    loop.stay_awake();
    ++turns;
    if (rings.handled == 1 && first_after_look == 0) first_after_look = turns;
    if (turns == 2) rings.found = 1;  // By somebody who does not ring.
    if (turns < 10) boost::asio::post(io_, turn);
  };
  boost::asio::post(io_, turn);
  loop.run();
  EXPECT_EQ(turns, 10);
  EXPECT_EQ(first_after_look, 3);
}

TEST_F(BusyPollLoopTest, DoesSoonWhatAHandlerLeaves) {
  std::vector<int> done;
  boost::asio::post(io_, [&] {
    Soon::run(io_, [&] {
      done.push_back(2);
      Soon::run(io_, [&] { done.push_back(3); });
    });
    done.push_back(1);
  });
  loop_.run();
  EXPECT_EQ(done, (std::vector{1, 2, 3}));
}

// Work that always leaves more must not keep the loop from its handlers.
TEST_F(BusyPollLoopTest, WhatIsDoneSoonForEverLeavesTurnsToHandlers) {
  bool is_over = false;
  std::function<void()> again = [&] {
    if (!is_over) Soon::run(io_, again);
  };
  boost::asio::post(io_, [&] {
    again();
    boost::asio::post(io_, [&] { is_over = true; });
  });
  loop_.run();
  EXPECT_TRUE(is_over);
}

// Beside rings in which there is always something, the kernel's news are asked for now and then.
TEST_F(BusyPollLoopTest, HandlersGetTheirTurnBesideRingsThatAreNeverEmpty) {
  loop_.watch(rings_);
  int handled_before = 0;
  rings_.found = 1'000'000;
  boost::asio::post(io_, [&] {
    loop_.stay_awake();
    boost::asio::post(io_, [&] {
      handled_before = rings_.handled;
      rings_.found = 0;
    });
  });
  loop_.run();
  EXPECT_LE(handled_before, 8);
}

TEST_F(BusyPollLoopTest, EndsWhenItIsStoppedThoughThereIsMore) {
  loop_.watch(rings_);
  rings_.found_at_rest = 1'000'000'000;
  boost::asio::post(io_, [this] {
    loop_.stay_awake();
    io_.stop();
  });
  loop_.run();
  EXPECT_LE(rings_.handled, 2);
}

}  // namespace
}  // namespace rueda::engine
