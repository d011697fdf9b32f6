// Tests the threads that complete futures: no job waits for another one.
#include "client/jax/completers.h"

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>

namespace rueda::jax {
namespace {

// A pool whose threads outlive the test, as those of a process do.
Completers& pool() {
  static auto* completers = new Completers;
  return *completers;
}

TEST(Completers, AJobThatWaitsForALaterOneIsNotInItsWay) {
  auto first = std::make_shared<std::latch>(1);
  auto both = std::make_shared<std::latch>(2);
  pool().run([=] {
    first->wait();
    both->count_down();
  });
  pool().run([=] {
    first->count_down();
    both->count_down();
  });
  both->wait();
}

TEST(Completers, JobsMayBeginJobs) {
  auto all = std::make_shared<std::latch>(3);
  pool().run([=] {
    pool().run([=] {
      pool().run([=] { all->count_down(); });
      all->count_down();
    });
    all->count_down();
  });
  all->wait();
}

TEST(Completers, MoreJobsThanThreadsWaitForTheirTurn) {
  constexpr int kJobs = 3 * Completers::kMost;
  auto* completers = new Completers;
  auto all = std::make_shared<std::latch>(kJobs);
  auto go = std::make_shared<std::latch>(1);
  auto most = std::make_shared<std::atomic<int>>(0);
  auto now = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < kJobs; ++i) {
    completers->run([=] {
      const int running = ++*now;
      int seen = *most;
      while (seen < running && !most->compare_exchange_weak(seen, running)) {
      }
      go->wait();
      --*now;
      all->count_down();
    });
  }
  go->count_down();
  all->wait();
  EXPECT_LE(*most, Completers::kMost);
}

TEST(Completers, AThreadIsUsedAgainAndTakesNoSignals) {
  auto* completers = new Completers;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 20; ++i) {
    std::latch done(1);
    completers->run([&] {
      sigset_t blocked;
      ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      EXPECT_EQ(::sigismember(&blocked, SIGTERM), 1);
      {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      }
      done.count_down();
    });
    done.wait();
    std::this_thread::yield();
  }
  EXPECT_LE(threads.size(),
            3U);  // a thread may not be back at its condition when the next job comes
}

}  // namespace
}  // namespace rueda::jax
