// Tests what happens to the connection when its process forks or ends. Children never return into
// gtest.
#include <atomic>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/rueda/rueda.h"
#include "tests/client/fake_daemon.h"

namespace rueda::client {
namespace {

// Runs body in a forked child, which ends by exit or _exit, and returns its exit status.
template <class Body>
int in_child(Body body, bool runs_exit_handlers = false) {
  pid_t child = ::fork();
  if (child == 0) {
    int rc = body();
    if (runs_exit_handlers) std::exit(rc);
    ::_exit(rc);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkTest, AChildCannotUseTheConnectionNorHarmIt) {
  FakeDaemon daemon;
  daemon.set_environment();
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  void* memory = rueda_alloc(100);
  EXPECT_EQ(in_child([&] {
              if (rueda_is_initialized() != 0) return 1;
              if (rueda_rank() != RUEDA_ERR_INVALID_ARGUMENT) return 2;
              if (std::string(rueda_last_error()).find("forked child") == std::string::npos)
                return 3;
              if (rueda_barrier(nullptr, 0) != RUEDA_ERR_INVALID_ARGUMENT) return 4;
              if (rueda_init(nullptr) != RUEDA_ERR_INVALID_ARGUMENT) return 5;
              if (rueda_free(memory) != RUEDA_ERR_INVALID_ARGUMENT) return 6;
              if (rueda_shutdown() != RUEDA_OK) return 7;
              return 0;
            }),
            0);
  EXPECT_EQ(rueda_barrier(nullptr, 20'000), RUEDA_OK) << rueda_last_error();
  EXPECT_EQ(daemon.counts().detaches + daemon.counts().lost, 0);
  EXPECT_EQ(rueda_free(memory), RUEDA_OK);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
}

void count_call(rueda_handle, int, const rueda_result*, void* count) {
  ++*static_cast<std::atomic<int>*>(count);
}

TEST(ForkTest, AChildIsToldOfNothingAndItsParentOfAll) {
  FakeDaemon daemon({.completes = false});
  daemon.set_environment();
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  std::atomic<int> calls{0};
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  ASSERT_EQ(rueda_then(handle, count_call, &calls), RUEDA_OK);
  EXPECT_EQ(in_child([&] {
              if (rueda_then(handle, count_call, &calls) != RUEDA_ERR_INVALID_ARGUMENT) return 1;
              if (std::string(rueda_last_error()).find("forked child") == std::string::npos)
                return 2;
              if (rueda_then_take_back(count_call) != RUEDA_ERR_INVALID_ARGUMENT) return 3;
              if (rueda_shutdown() != RUEDA_OK) return 4;
              return calls.load();
            }),
            0);
  daemon.set_completes(true);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK) << rueda_last_error();
  EXPECT_EQ(calls, 1);
}

TEST(ForkTest, AChildDoesNotKeepTheConnectionOpen) {
  FakeDaemon daemon;
  daemon.set_environment();
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  // A process forks a child and dies: the daemon must see the end although the child lives on.
  pid_t parent = ::fork();
  if (parent == 0) {
    if (rueda_init(nullptr) != RUEDA_OK) ::_exit(1);
    if (::fork() == 0) {
      char byte = 0;
      ::close(gate[1]);
      (void)!::read(gate[0], &byte, 1);  // returns when the test closes its end
      ::_exit(0);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.lost == 1; }));
  ::close(gate[1]);
  ::close(gate[0]);
}

// This is DLPack's DLManagedTensor, whose layout array libraries agree on.
struct Managed {
  void* data;
  int32_t device[2];
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
  void* manager;
  void (*deleter)(Managed*);
};

TEST(DlpackTest, ABlockEndsWithItsLastOwner) {
  FakeDaemon daemon;
  daemon.set_environment();
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  auto* memory = static_cast<char*>(rueda_alloc(1000));
  EXPECT_EQ(rueda_dlpack_count(memory), 0);
  auto* first = static_cast<Managed*>(rueda_dlpack(memory, 1000));
  auto* second = static_cast<Managed*>(rueda_dlpack(memory, 10));
  ASSERT_TRUE(first != nullptr && second != nullptr) << rueda_last_error();
  EXPECT_EQ(first->data, memory);
  EXPECT_EQ(first->shape[0], 1000);
  EXPECT_EQ(second->shape[0], 10);
  EXPECT_EQ(first->ndim * first->bits * first->lanes * first->device[0], 8);
  EXPECT_EQ(rueda_dlpack_count(memory), 2);
  second->deleter(second);
  EXPECT_EQ(rueda_free(memory), RUEDA_OK);
  EXPECT_EQ(rueda_free(memory), RUEDA_ERR_INVALID_ARGUMENT) << "it would be the tensor's";
  EXPECT_EQ(rueda_dlpack(memory, 10), nullptr);
  EXPECT_EQ(rueda_dlpack_count(memory), 1);
  memory[999] = 1;
  EXPECT_EQ(in_child([&] {
              first->deleter(first);
              return rueda_dlpack_count(memory);
            }),
            0);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  memory[0] = 1;  // outlives the session, as other memory of rueda_alloc does
  first->deleter(first);
  EXPECT_EQ(rueda_dlpack_count(memory), 0);
  EXPECT_EQ(rueda_free(memory), RUEDA_ERR_INVALID_ARGUMENT);
}

TEST(DlpackTest, WhatIsNoBlockIsRefused) {
  FakeDaemon daemon;
  daemon.set_environment();
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  auto* memory = static_cast<char*>(rueda_alloc(1000));
  for (const auto& [address, bytes] :
       {std::pair<void*, size_t>{memory, 0}, {memory, 4096}, {memory + 64, 8}, {&daemon, 8}}) {
    EXPECT_EQ(rueda_dlpack(address, bytes), nullptr);
    EXPECT_THAT(rueda_last_error(), testing::HasSubstr("not inside one live block"));
  }
  EXPECT_EQ(rueda_free(memory), RUEDA_OK);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
}

TEST(ExitTest, ANormalExitSaysGoodbye) {
  FakeDaemon daemon;
  daemon.set_environment();
  EXPECT_EQ(in_child(
                [] {
                  if (rueda_init(nullptr) != RUEDA_OK) return 1;
                  return rueda_barrier(nullptr, 20'000) == RUEDA_OK ? 0 : 2;
                },
                true),
            0);
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.detaches == 1; }));
  EXPECT_EQ(daemon.counts().lost, 0);
}

TEST(ExitTest, AnExitWithWorkInFlightDoesNot) {
  FakeDaemon daemon({.completes = false});
  daemon.set_environment();
  EXPECT_EQ(in_child(
                [] {
                  if (rueda_init(nullptr) != RUEDA_OK) return 1;
                  rueda_handle handle = 0;
                  return rueda_barrier_async("x", &handle) == RUEDA_OK ? 0 : 2;
                },
                true),
            0);
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.lost == 1; }));
  EXPECT_EQ(daemon.counts().detaches, 0);
}

TEST(ExitTest, AnExitIsNotHeldUpByACallback) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no thread in a forked child";
#endif
  FakeDaemon daemon;
  daemon.set_environment();
  EXPECT_EQ(in_child(
                [] {
                  if (rueda_init(nullptr) != RUEDA_OK) return 1;
                  static std::atomic<bool> is_called{false};
                  const auto never_return = [](rueda_handle, int, const rueda_result*, void*) {
                    is_called = true;
                    for (;;) ::pause();
                  };
                  rueda_handle handle = 0;
                  if (rueda_barrier_async("x", &handle) != RUEDA_OK) return 2;
                  if (rueda_then(handle, never_return, nullptr) != RUEDA_OK) return 3;
                  while (!is_called) ::sched_yield();
                  return 0;
                },
                true),
            0);
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.detaches == 1; }));
}

}  // namespace
}  // namespace rueda::client
