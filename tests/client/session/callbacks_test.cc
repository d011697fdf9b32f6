// Tests who is told of the ends of operations (rueda_then): once each, whatever becomes of them.
#include "client/src/session/callbacks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/src/session/session.h"
#include "client/src/wire/errors.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/requests.h"
#include "tests/client/session/attached.h"

namespace rueda::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Ended {
  rueda_handle handle = 0;
  int error = 0;
  std::string text;
  rueda_result result{};
  pid_t thread = 0;
};

// Collects what callbacks are told; it outlives the session. `meanwhile` runs in each callback,
// before the end counts.
class Told {
 public:
  Callback callback() { return {&Told::tell, this}; }
  // Returns the ends so far once there are as many, or those that came within 20 s.
  std::vector<Ended> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ends_.size() >= count; });
    return ends_;
  }
  std::vector<Ended> all() { return wait_for(0); }
  std::function<void(rueda_handle)> meanwhile = [](rueda_handle) {};

  static void tell(rueda_handle handle, int error, const rueda_result* result, void* argument) {
    auto* told = static_cast<Told*>(argument);
    const std::string text = last_error();
    told->meanwhile(handle);
    const std::lock_guard lock(told->mutex_);
    told->ends_.push_back(
        {handle, error, text, *result, static_cast<pid_t>(::syscall(SYS_gettid))});
    told->changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ended> ends_;
};

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

int callback_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name == "rueda-callbacks";
  }
  return count;
}

rueda_handle submit_barrier(Session& session, const std::string& name) {
  return session.submit({check_barrier(name.c_str()).value()}).value();
}

std::vector<rueda_handle> handles_of(const std::vector<Ended>& ends) {
  std::vector<rueda_handle> handles;
  for (const Ended& ended : ends) handles.push_back(ended.handle);
  return handles;
}

TEST(CallbacksTest, ACallbackTakesThePlaceOfTheWait) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const std::vector<float> in(1000, 3.0f);
  std::vector<float> out(1000);
  const rueda_handle handle =
      session->submit({allreduce_of("t", in.data(), out.data(), 1000, 2.0)}).value();
  told.meanwhile = [&](rueda_handle) { EXPECT_THAT(out, Each(6.0f)) << "foreign memory"; };
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  EXPECT_FALSE(session->test(handle).value());
  daemon.set_completes(true);
  const std::vector<Ended> ends = told.wait_for(1);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].handle, handle);
  EXPECT_EQ(ends[0].error, RUEDA_OK);
  EXPECT_EQ(ends[0].text, "");
  EXPECT_EQ(ends[0].result.contributors, 1u);
  EXPECT_EQ(ends[0].result.seq, 1u);
  EXPECT_NE(ends[0].thread, static_cast<pid_t>(::syscall(SYS_gettid)));
  EXPECT_EQ(session->wait(handle, 0, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->test(handle).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(session->allocator()->is_idle());
}

TEST(CallbacksTest, WhatHasEndedBeforeIsToldOfToo) {
  FakeDaemon daemon;
  Told told;
  auto session = attach(daemon);
  for (int i = 0; i < 100; ++i) {
    const rueda_handle handle = submit_barrier(*session, "x");
    while (!session->test(handle).value()) std::this_thread::yield();
    ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
    ASSERT_THAT(told.wait_for(static_cast<size_t>(i) + 1), SizeIs(i + 1));
  }
}

// The thread sleeps on the socket because of another operation, and nothing comes there.
TEST(CallbacksTest, WhatHasEndedBeforeIsToldOfWhileTheThreadSleepsForAnother) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle sleeps_for = submit_barrier(*session, "later");
  const rueda_handle first = submit_barrier(*session, "first");
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  ASSERT_TRUE(session->then(sleeps_for, told.callback()).is_ok());
  daemon.complete(daemon.submissions()[1].ticket);
  ASSERT_EQ(session->wait_any({&first, 1}, 20'000).value(), 0u);
  ASSERT_TRUE(session->then(first, told.callback()).is_ok());
  EXPECT_THAT(handles_of(told.wait_for(1)), ElementsAre(first));
  daemon.set_completes(true);
  EXPECT_THAT(handles_of(told.wait_for(2)), ElementsAre(first, sleeps_for));
}

TEST(CallbacksTest, AHandleHasOneCallbackOrIsWaitedFor) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle handle = submit_barrier(*session, "x");
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  const Status twice = session->then(handle, told.callback());
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_THAT(twice.message(), HasSubstr("has a callback"));
  const Status waited = session->wait(handle, -1, nullptr);
  EXPECT_EQ(waited.code(), Code::kInvalidArgument);
  EXPECT_THAT(waited.message(), HasSubstr("has a callback"));
  EXPECT_EQ(session->then(999, told.callback()).code(), Code::kInvalidArgument);

  const rueda_handle other = submit_barrier(*session, "other");
  std::thread waiter([&] {
    Status ended;
    do {  // a callback may be there for a moment
      ended = session->wait(other, -1, nullptr);
    } while (ended.code() == Code::kInvalidArgument);
    EXPECT_TRUE(ended.is_ok()) << ended.message();
  });
  Status refused;
  while ((refused = session->then(other, told.callback())).is_ok()) {
    session->take_back(&Told::tell);
    std::this_thread::yield();
  }
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("being waited for"));
  daemon.set_completes(true);
  waiter.join();
}

TEST(CallbacksTest, ThoseWhoWaitedInVainMayBeToldOfTheEnd) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle handle = submit_barrier(*session, "x");
  EXPECT_EQ(session->wait(handle, 1, nullptr).code(), Code::kTimeout);
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  daemon.set_completes(true);
  EXPECT_THAT(told.wait_for(1), SizeIs(1));
}

TEST(CallbacksTest, CallbacksComeInTheOrderOfTheEnds) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  std::vector<rueda_handle> handles;
  for (int i = 0; i < 20; ++i) {
    handles.push_back(submit_barrier(*session, "b" + std::to_string(i)));
    ASSERT_TRUE(session->then(handles.back(), told.callback()).is_ok());
  }
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 20; }));
  const auto records = daemon.submissions();
  std::vector<size_t> order(20);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<rueda_handle> expected;
  for (const size_t i : order) {
    daemon.complete(records[i].ticket);
    expected.push_back(handles[i]);
  }
  EXPECT_EQ(handles_of(told.wait_for(20)), expected);
}

TEST(CallbacksTest, AnErrorComesWithItsSentence) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle handle = submit_barrier(*session, "x");
  const rueda_handle fine = submit_barrier(*session, "fine");
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  ASSERT_TRUE(session->then(fine, told.callback()).is_ok());
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  daemon.complete(daemon.submissions()[0].ticket, RUEDA_ERR_MISMATCH, "tensor \"x\" differs");
  daemon.complete(daemon.submissions()[1].ticket);
  const std::vector<Ended> ends = told.wait_for(2);
  ASSERT_THAT(ends, SizeIs(2));
  EXPECT_EQ(ends[0].error, RUEDA_ERR_MISMATCH);
  EXPECT_EQ(ends[0].text, "tensor \"x\" differs");
  EXPECT_EQ(ends[1].error, RUEDA_OK);
  EXPECT_EQ(ends[1].text, "") << "the sentence of the one before";
}

TEST(CallbacksTest, AGroupIsToldOfOnceWhenAllOfItHasEnded) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  std::vector<float> a(10, 1.0f), b(10, 2.0f);
  const rueda_handle handle = session
                                  ->submit({allreduce_of("a", a.data(), a.data(), 10, 2.0),
                                            allreduce_of("b", b.data(), b.data(), 10, 2.0)})
                                  .value();
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  const auto records = daemon.submissions();
  daemon.complete(records[1].ticket, RUEDA_ERR_MISMATCH, "tensor \"b\" differs");
  while (session->stats().completions == 0) std::this_thread::yield();
  EXPECT_THAT(told.all(), SizeIs(0));
  daemon.complete(records[0].ticket);
  const std::vector<Ended> ends = told.wait_for(1);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].error, RUEDA_ERR_MISMATCH);
  EXPECT_THAT(a, Each(2.0f));
}

TEST(CallbacksTest, AThreadThatWaitsAndTheCallbacksShareTheRing) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  for (int round = 0; round < 50; ++round) {
    Told told;
    const rueda_handle waited = submit_barrier(*session, "waited");
    const rueda_handle called = submit_barrier(*session, "called");
    const auto before = static_cast<size_t>(2 * round);
    ASSERT_TRUE(
        daemon.wait_for([&](const auto& counts) { return counts.submissions == 2 * round + 2; }));
    const auto records = daemon.submissions();
    const auto add = [&] { ASSERT_TRUE(session->then(called, told.callback()).is_ok()); };
    if (round % 2 == 0) add();  // either may be the one that sleeps on the socket
    std::thread waiter([&] { EXPECT_TRUE(session->wait(waited, -1, nullptr).is_ok()); });
    if (round % 2 == 1) add();
    const bool is_called_first = round % 4 < 2;
    daemon.complete(records[before + (is_called_first ? 1 : 0)].ticket);
    if (is_called_first) {
      ASSERT_THAT(told.wait_for(1), SizeIs(1)) << "while the other sleeps on";
    } else {
      waiter.join();
    }
    daemon.complete(records[before + (is_called_first ? 0 : 1)].ticket);
    if (waiter.joinable()) waiter.join();
    ASSERT_THAT(told.wait_for(1), SizeIs(1));
  }
}

TEST(CallbacksTest, ACallbackBeginsTheNextTenThousandTimes) {
  FakeDaemon daemon;
  Gate end;
  auto session = attach(daemon);
  constexpr int kTimes = 10'000;
  auto* data = static_cast<float*>(session->allocate(64).value());
  data[0] = 0.0f;
  struct Chain {
    Session& session;
    float* data;
    Gate& end;
    int count = 0;
    void next() {
      const rueda_handle handle = session.submit({allreduce_of("t", data, data, 1, 1.0)}).value();
      EXPECT_TRUE(session.then(handle, {&Chain::on_end, this}).is_ok());
    }
    static void on_end(rueda_handle, int error, const rueda_result* result, void* argument) {
      auto* chain = static_cast<Chain*>(argument);
      EXPECT_EQ(error, RUEDA_OK);
      EXPECT_EQ(result->seq, static_cast<uint64_t>(++chain->count));
      chain->data[0] += 1.0f;
      if (chain->count == kTimes) return chain->end.open();
      chain->next();
    }
  };
  Chain chain{*session, data, end};
  chain.next();
  end.pass();
  EXPECT_EQ(data[0], static_cast<float>(kTimes));
  EXPECT_EQ(callback_threads(), 1);
}

TEST(CallbacksTest, ACallbackThatSubmitsWaitsForRoom) {
  FakeDaemon daemon({.submission_capacity = 2, .completion_capacity = 2});
  Told inner;
  Told outer;
  auto session = attach(daemon);
  outer.meanwhile = [&](rueda_handle) {
    for (int i = 0; i < 20; ++i) {
      const rueda_handle handle = submit_barrier(*session, "inner" + std::to_string(i));
      ASSERT_TRUE(session->then(handle, inner.callback()).is_ok());
    }
  };
  ASSERT_TRUE(session->then(submit_barrier(*session, "outer"), outer.callback()).is_ok());
  EXPECT_THAT(outer.wait_for(1), SizeIs(1));
  EXPECT_THAT(inner.wait_for(20), SizeIs(20));
}

TEST(CallbacksTest, ManyThreadsWaitTestAndAreToldAtOnce) {
  FakeDaemon daemon({.submission_capacity = 256, .completion_capacity = 256});
  Told told;
  auto session = attach(daemon);
  constexpr int kThreads = 8;
  constexpr int kEach = 400;
  std::vector<std::thread> threads;
  std::atomic<size_t> expected{0};
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      const std::string name = "t" + std::to_string(number) + ".";
      for (int i = 0; i < kEach; ++i) {
        const rueda_handle handle = submit_barrier(*session, name + std::to_string(i % 7));
        switch (random() % 3) {
          case 0:
            EXPECT_TRUE(session->then(handle, told.callback()).is_ok());
            ++expected;
            break;
          case 1: EXPECT_TRUE(session->wait(handle, -1, nullptr).is_ok()); break;
          default:
            while (!session->test(handle).value()) std::this_thread::yield();
            EXPECT_TRUE(session->then(handle, told.callback()).is_ok());
            ++expected;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<rueda_handle> handles = handles_of(told.wait_for(expected));
  ASSERT_EQ(handles.size(), expected);
  std::sort(handles.begin(), handles.end());
  EXPECT_EQ(std::adjacent_find(handles.begin(), handles.end()), handles.end()) << "told of twice";
  EXPECT_EQ(callback_threads(), 1);
}

TEST(CallbacksTest, TheDaemonsDeathIsToldOfOnceForEach) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  for (int i = 0; i < 20; ++i) {
    const rueda_handle handle = submit_barrier(*session, "b" + std::to_string(i));
    ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  }
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 20; }));
  daemon.complete(daemon.submissions()[7].ticket);
  daemon.drop();
  std::vector<Ended> ends = told.wait_for(20);
  EXPECT_TRUE(session->detach(20'000).is_ok());
  ends = told.all();
  ASSERT_THAT(ends, SizeIs(20));
  EXPECT_EQ(ends[0].error, RUEDA_OK) << "it was done before the death";
  for (size_t i = 1; i < ends.size(); ++i) {
    EXPECT_EQ(ends[i].error, RUEDA_ERR_DAEMON_LOST);
    EXPECT_THAT(ends[i].text, HasSubstr(daemon.socket_path()));
  }
}

TEST(CallbacksTest, AFailedJobIsToldOfWithItsReason) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle handle = submit_barrier(*session, "x");
  const rueda_handle unheard = submit_barrier(*session, "unheard");
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  daemon.fail_job(RUEDA_ERR_NODE_LOST, "node b died");
  std::vector<Ended> ends = told.wait_for(1);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].error, RUEDA_ERR_NODE_LOST);
  EXPECT_EQ(ends[0].text, "node b died");
  // A callback that comes when the job is over is told of what has become of its operation.
  ASSERT_TRUE(session->then(unheard, told.callback()).is_ok());
  ends = told.wait_for(2);
  ASSERT_THAT(ends, SizeIs(2));
  EXPECT_EQ(ends[1].error, RUEDA_ERR_NODE_LOST);
}

// The message was read while the thread slept on the socket, which then had nothing for it.
TEST(CallbacksTest, TheThreadWakesWhoeverReadsThatTheJobHasFailed) {
  for (int round = 0; round < 30; ++round) {
    FakeDaemon daemon({.completes = false});
    Told told;
    auto session = attach(daemon);
    ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
    std::atomic<bool> stops{false};
    std::thread asker([&] {
      while (!stops) (void)session->hosts_changed();
    });
    daemon.fail_job(RUEDA_ERR_RANK_LOST, "rank 3 was killed");
    EXPECT_THAT(told.wait_for(1), SizeIs(1)) << "round " << round;
    stops = true;
    asker.join();
  }
}

// Who slept on the socket slept on: nothing came there.
TEST(CallbacksTest, WhoFindsTheSessionOverWakesThoseWhoSleep) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  const rueda_handle waited = submit_barrier(*session, "waited");
  std::thread waiter(
      [&] { EXPECT_EQ(session->wait(waited, -1, nullptr).code(), Code::kInternal); });
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  while (!daemon.is_client_asleep()) std::this_thread::yield();
  daemon.damage_submission_ring();
  submit_barrier(*session, "x");
  const std::vector<Ended> ends = told.wait_for(1);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].error, RUEDA_ERR_INTERNAL);
  EXPECT_THAT(ends[0].text, HasSubstr("submission ring is damaged"));
  waiter.join();
}

TEST(CallbacksTest, AShutdownTellsOfWhatIsLeft) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  for (int i = 0; i < 20; ++i) {
    const rueda_handle handle = submit_barrier(*session, "b" + std::to_string(i));
    ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  }
  EXPECT_EQ(session->detach(10).code(), Code::kTimeout);
  const std::vector<Ended> ends = told.all();
  ASSERT_THAT(ends, SizeIs(20)) << "they come before the shutdown returns";
  for (const Ended& ended : ends) EXPECT_EQ(ended.error, RUEDA_ERR_SHUT_DOWN);
  EXPECT_EQ(callback_threads(), 0);
}

TEST(CallbacksTest, AShutdownWaitsForACallbackThatIsRunning) {
  FakeDaemon daemon;
  Told told;
  Gate gate;
  auto session = attach(daemon);
  told.meanwhile = [&](rueda_handle) { gate.pass(); };
  const rueda_handle handle = submit_barrier(*session, "x");
  ASSERT_TRUE(session->then(handle, told.callback()).is_ok());
  std::thread opener([&] {
    ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.detaches == 1; }));
    gate.open();
  });
  EXPECT_TRUE(session->detach(20'000).is_ok());
  EXPECT_THAT(told.all(), SizeIs(1));
  opener.join();
}

TEST(CallbacksTest, AfterTheShutdownNothingIsSubmittedAndNobodyIsToldOfAnything) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  Code submitted{};
  told.meanwhile = [&](rueda_handle) {
    submitted = session->submit({check_barrier("more").value()}).status().code();
  };
  const rueda_handle left = submit_barrier(*session, "left");
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  EXPECT_EQ(session->detach(10).code(), Code::kTimeout);
  EXPECT_THAT(told.all(), SizeIs(1));
  EXPECT_EQ(submitted, Code::kShutDown) << "in the callback";
  EXPECT_EQ(session->then(left, told.callback()).code(), Code::kShutDown);
  EXPECT_EQ(session->wait(left, 0, nullptr).code(), Code::kShutDown);
}

TEST(CallbacksTest, ASessionThatIsDestroyedTellsOfWhatIsLeft) {
  FakeDaemon daemon({.completes = false});
  Told told;
  auto session = attach(daemon);
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  session.reset();
  ASSERT_THAT(told.all(), SizeIs(1));
  EXPECT_EQ(told.all()[0].error, RUEDA_ERR_SHUT_DOWN);
}

// The daemon keeps the connection open, on which nothing comes: the thread slept there for ever.
TEST(CallbacksTest, AnElasticResetTellsOfWhatIsLeftAndBeginsAnew) {
  FakeDaemon daemon({.completes = false});
  Config config = daemon.config();
  config.is_elastic = true;
  std::shared_ptr<ArenaAllocator> rested;
  for (int epoch = 0; epoch < 5; ++epoch) {
    auto attached = Session::attach(config, rested);
    ASSERT_TRUE(attached.is_ok()) << attached.status().message();
    std::unique_ptr<Session> session = std::move(attached).value();
    Told told;
    EXPECT_EQ(callback_threads(), 0);
    const rueda_handle first = submit_barrier(*session, "first");
    const rueda_handle second = submit_barrier(*session, "second");
    ASSERT_TRUE(session->then(first, told.callback()).is_ok());
    ASSERT_TRUE(session->then(second, told.callback()).is_ok());
    const int submissions = 2 * epoch + 2;
    ASSERT_TRUE(
        daemon.wait_for([&](const auto& counts) { return counts.submissions == submissions; }));
    daemon.complete(daemon.submissions()[static_cast<size_t>(2 * epoch)].ticket);
    ASSERT_THAT(told.wait_for(1), SizeIs(1));
    EXPECT_EQ(session->detach(10).code(), Code::kTimeout);
    ASSERT_THAT(handles_of(told.all()), ElementsAre(first, second));
    EXPECT_EQ(told.all()[0].error, RUEDA_OK);
    EXPECT_EQ(told.all()[1].error, RUEDA_ERR_SHUT_DOWN);
    rested = session->allocator();
    const std::unique_ptr<Connection> lease = session->rest();
    EXPECT_NE(lease, nullptr);
  }
}

TEST(CallbacksTest, AProcessWithoutCallbacksHasNoThread) {
  FakeDaemon daemon;
  Told told;
  auto session = attach(daemon);
  EXPECT_TRUE(session->wait(submit_barrier(*session, "x"), 20'000, nullptr).is_ok());
  EXPECT_EQ(callback_threads(), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
    told.wait_for(static_cast<size_t>(i) + 1);
    EXPECT_EQ(callback_threads(), 1);
  }
  EXPECT_TRUE(session->detach(20'000).is_ok());
  EXPECT_EQ(callback_threads(), 0);
}

void count_call(rueda_handle, int, const rueda_result*, void* count) {
  ++*static_cast<std::atomic<int>*>(count);
}

TEST(CallbacksTest, WhatIsTakenBackMayBeWaitedFor) {
  FakeDaemon daemon({.completes = false});
  Told told;
  std::atomic<int> calls{0};
  auto session = attach(daemon);
  const rueda_handle kept = submit_barrier(*session, "kept");
  const rueda_handle taken = submit_barrier(*session, "taken");
  ASSERT_TRUE(session->then(kept, told.callback()).is_ok());
  ASSERT_TRUE(session->then(taken, {&count_call, &calls}).is_ok());
  session->take_back(&count_call);
  daemon.set_completes(true);
  EXPECT_TRUE(session->wait(taken, 20'000, nullptr).is_ok());
  EXPECT_THAT(handles_of(told.wait_for(1)), ElementsAre(kept));
  EXPECT_TRUE(session->detach(20'000).is_ok());
  EXPECT_EQ(calls, 0);
}

TEST(CallbacksTest, WhatHasEndedBehindARunningCallbackCanBeTakenBack) {
  FakeDaemon daemon;
  Told told;
  Gate gate;
  Gate runs;
  std::atomic<int> calls{0};
  auto session = attach(daemon);
  told.meanwhile = [&](rueda_handle) {
    runs.open();
    gate.pass();
  };
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  runs.pass();
  const rueda_handle behind = submit_barrier(*session, "behind");
  const rueda_handle last = submit_barrier(*session, "last");
  while (!session->test(last).value()) std::this_thread::yield();
  ASSERT_TRUE(session->then(behind, {&count_call, &calls}).is_ok());
  ASSERT_TRUE(session->then(last, told.callback()).is_ok());
  session->take_back(&count_call);
  EXPECT_TRUE(session->wait(behind, 20'000, nullptr).is_ok());
  gate.open();
  EXPECT_THAT(told.wait_for(2), SizeIs(2));
  EXPECT_EQ(calls, 0);
}

TEST(CallbacksTest, TakingBackWaitsForACallThatIsUnderWay) {
  FakeDaemon daemon;
  Told told;
  Gate runs;
  std::atomic<bool> has_returned{false};
  auto session = attach(daemon);
  told.meanwhile = [&](rueda_handle) {
    runs.open();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_FALSE(has_returned);
  };
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  runs.pass();
  session->take_back(&Told::tell);
  has_returned = true;
  EXPECT_THAT(told.all(), SizeIs(1));
}

// The thread had awaited only what was taken back; it must see what comes later.
TEST(CallbacksTest, AfterTakingBackOthersAreToldOf) {
  FakeDaemon daemon({.completes = false});
  Told told;
  std::atomic<int> calls{0};
  auto session = attach(daemon);
  const rueda_handle taken = submit_barrier(*session, "taken");
  ASSERT_TRUE(session->then(taken, {&count_call, &calls}).is_ok());
  session->take_back(&count_call);
  ASSERT_TRUE(session->then(submit_barrier(*session, "x"), told.callback()).is_ok());
  daemon.set_completes(true);
  EXPECT_THAT(told.wait_for(1), SizeIs(1));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace rueda::client
