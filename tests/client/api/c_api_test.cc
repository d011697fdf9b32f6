// Tests rueda.h through the shared library.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/include/rueda/rueda.h"
#include "tests/client/fake_daemon.h"

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class ApiTest : public ::testing::Test {
 protected:
  ~ApiTest() override { rueda_shutdown(); }
  void start(FakeDaemon::Options options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(options);
    daemon_->set_environment();
    ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  }
  std::unique_ptr<FakeDaemon> daemon_;
};

size_t open_descriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

size_t rueda_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  size_t count = 0;
  // The fake daemon's own mapping of an arena counts too, so the test looks only after the fake has
  // let go.
  while (std::getline(maps, line)) count += line.find("memfd:") != std::string::npos;
  return count;
}

TEST_F(ApiTest, BeforeInitEverythingSaysSo) {
  EXPECT_EQ(rueda_is_initialized(), 0);
  EXPECT_EQ(rueda_rank(), RUEDA_ERR_SHUT_DOWN);
  EXPECT_THAT(rueda_last_error(), HasSubstr("rueda_init"));
  EXPECT_EQ(rueda_alloc(10), nullptr);
  EXPECT_EQ(rueda_barrier(nullptr, 0), RUEDA_ERR_SHUT_DOWN);
  EXPECT_EQ(rueda_wait(1, 0, nullptr), RUEDA_ERR_SHUT_DOWN);
  EXPECT_STREQ(rueda_node_id(), "");
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  EXPECT_STREQ(rueda_last_error(), "");
}

TEST_F(ApiTest, AMissingSocketIsExplained) {
  rueda_init_options options{sizeof(options),
                             "/nonexistent/ruedad.sock",
                             "job",
                             "0000000000000000000000000000000000000000000000000000000000000000",
                             0,
                             0,
                             1000};
  EXPECT_EQ(rueda_init(&options), RUEDA_ERR_NOT_FOUND);
  EXPECT_THAT(rueda_last_error(),
              AllOf(HasSubstr("/nonexistent/ruedad.sock"), HasSubstr("ruedarun")));
}

TEST_F(ApiTest, AnswersWhereItStands) {
  start({.rank = 2, .world_size = 4});
  EXPECT_EQ(rueda_init(nullptr), RUEDA_OK) << "a second init does nothing";
  EXPECT_EQ(daemon_->counts().attaches, 1);
  EXPECT_EQ(rueda_is_initialized(), 1);
  EXPECT_EQ(rueda_rank(), 2);
  EXPECT_EQ(rueda_local_rank(), 2);
  EXPECT_EQ(rueda_size(), 4);
  EXPECT_EQ(rueda_local_size(), 4);
  EXPECT_EQ(rueda_cross_rank(), 0);
  EXPECT_EQ(rueda_cross_size(), 1);
  EXPECT_STREQ(rueda_node_id(), "fake-node");
  EXPECT_STREQ(rueda_version(), RUEDA_VERSION);
}

TEST_F(ApiTest, ReducesBroadcastsAndMeets) {
  start();
  float values[4] = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2};
  rueda_tensor tensor{"t", values, values, shape, 2, RUEDA_FLOAT32};
  rueda_reduce_options options{sizeof(options), RUEDA_SUM, 1.0, 10.0, 0};
  EXPECT_EQ(rueda_allreduce(&tensor, &options, 20'000), RUEDA_OK);
  EXPECT_EQ(values[3], 40.0f);
  EXPECT_EQ(rueda_broadcast(&tensor, 0, 20'000), RUEDA_OK);
  EXPECT_EQ(rueda_broadcast(&tensor, 5, 20'000), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_barrier(nullptr, 20'000), RUEDA_OK);
  rueda_stats stats{};
  EXPECT_EQ(rueda_get_stats(&stats), RUEDA_OK);
  EXPECT_EQ(stats.submissions, 3u);
  EXPECT_EQ(stats.bytes_copied_in, 32u);
  EXPECT_EQ(stats.bytes_copied_out, 16u);
  EXPECT_EQ(stats.arena_bytes, size_t{16} << 20);
}

TEST_F(ApiTest, GroupsShareOneHandle) {
  start();
  float a = 1, b = 2;
  rueda_tensor tensors[] = {{"g.a", &a, &a, nullptr, 0, RUEDA_FLOAT32},
                            {"g.b", &b, &b, nullptr, 0, RUEDA_FLOAT32}};
  rueda_reduce_options options{sizeof(options), RUEDA_SUM, 3.0, 1.0, 0};
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_grouped_allreduce_async("g", tensors, 2, &options, &handle), RUEDA_OK);
  rueda_result result{};
  EXPECT_EQ(rueda_wait(handle, 20'000, &result), RUEDA_OK);
  EXPECT_EQ(a, 3.0f);
  EXPECT_EQ(b, 6.0f);
  EXPECT_EQ(rueda_grouped_allreduce_async("g", tensors, 0, &options, &handle),
            RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_grouped_allreduce_async("", tensors, 2, &options, &handle),
            RUEDA_ERR_INVALID_ARGUMENT);
}

TEST_F(ApiTest, NullPointersAreRefused) {
  start();
  rueda_handle handle = 0;
  EXPECT_EQ(rueda_allreduce_async(nullptr, nullptr, &handle), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_barrier_async("x", nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_test(1, nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_get_stats(nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_free(nullptr), RUEDA_OK);
  EXPECT_EQ(rueda_free(&handle), RUEDA_ERR_INVALID_ARGUMENT);
}

TEST_F(ApiTest, TheLastErrorBelongsToItsThread) {
  start();
  EXPECT_EQ(rueda_test(77, nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  std::thread([] { EXPECT_STREQ(rueda_last_error(), ""); }).join();
  EXPECT_STRNE(rueda_last_error(), "");
}

TEST_F(ApiTest, ABlockingTimeoutLeavesForeignMemoryAlone) {
  start({.completes = false});
  std::vector<float> values(10, 1.0f);
  const int64_t shape[] = {10};
  rueda_tensor tensor{"t", values.data(), values.data(), shape, 1, RUEDA_FLOAT32};
  rueda_reduce_options options{sizeof(options), RUEDA_SUM, 5.0, 1.0, 0};
  EXPECT_EQ(rueda_allreduce(&tensor, &options, 1), RUEDA_ERR_TIMEOUT);
  daemon_->set_completes(true);
  EXPECT_EQ(rueda_barrier(nullptr, 20'000), RUEDA_OK);
  EXPECT_THAT(values, Each(1.0f));
}

TEST_F(ApiTest, MemoryOutlivesTheShutdown) {
  start();
  auto memory = static_cast<char*>(rueda_alloc(1000));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  memory[999] = 1;
  start();
  memory[999] = 2;
  EXPECT_EQ(rueda_free(memory), RUEDA_OK);
  EXPECT_EQ(rueda_free(memory), RUEDA_ERR_INVALID_ARGUMENT);
}

TEST_F(ApiTest, AHundredLivesLeaveNothingBehind) {
  daemon_ = std::make_unique<FakeDaemon>();
  daemon_->set_environment();
  size_t descriptors = 0, mappings = 0;
  for (int life = 0; life < 100; ++life) {
    ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
    float value = 1;
    rueda_tensor tensor{"t", &value, &value, nullptr, 0, RUEDA_FLOAT32};
    ASSERT_EQ(rueda_allreduce(&tensor, nullptr, 20'000), RUEDA_OK) << rueda_last_error();
    ASSERT_EQ(rueda_shutdown(), RUEDA_OK) << rueda_last_error();
    ASSERT_TRUE(daemon_->wait_for([&](const auto& counts) { return counts.detaches == life + 1; }));
    if (life > 0) continue;
    descriptors = open_descriptors();
    mappings = rueda_mappings();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(rueda_mappings(), mappings);
  EXPECT_EQ(daemon_->counts().lost, 0);
}

// What a callback of rueda_then does, and whether it has been called.
struct Called {
  std::function<void(int error)> body;
  std::atomic<int> times{0};
  static void call(rueda_handle, int error, const rueda_result*, void* argument) {
    auto* called = static_cast<Called*>(argument);
    called->body(error);
    ++called->times;
  }
};

TEST_F(ApiTest, ThenNeedsAHandleAndACallback) {
  EXPECT_EQ(rueda_then(1, &Called::call, nullptr), RUEDA_ERR_SHUT_DOWN);
  EXPECT_EQ(rueda_then_take_back(&Called::call), RUEDA_OK) << "there is nothing to take back";
  start();
  EXPECT_EQ(rueda_then(77, &Called::call, nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("handle 77 is not in flight"));
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  EXPECT_EQ(rueda_then(handle, nullptr, nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_then_take_back(nullptr), RUEDA_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_wait(handle, 20'000, nullptr), RUEDA_OK) << "it is as it was";
}

TEST_F(ApiTest, WhatWaitsIsRefusedInACallback) {
  start();
  rueda_handle waited = 0;
  ASSERT_EQ(rueda_barrier_async("waited", &waited), RUEDA_OK);
  float value = 1;
  const rueda_tensor tensor{"t", &value, &value, nullptr, 0, RUEDA_FLOAT32, 0};
  const std::vector<std::pair<std::string, std::function<int()>>> waits = {
      {"rueda_init", [] { return rueda_init(nullptr); }},
      {"rueda_shutdown", [] { return rueda_shutdown(); }},
      {"rueda_wait", [&] { return rueda_wait(waited, 0, nullptr); }},
      {"rueda_wait_any",
       [&] {
         size_t index = 0;
         return rueda_wait_any(&waited, 1, 0, &index);
       }},
      {"rueda_allreduce", [&] { return rueda_allreduce(&tensor, nullptr, 0); }},
      {"rueda_broadcast", [&] { return rueda_broadcast(&tensor, 0, 0); }},
      {"rueda_reduce", [&] { return rueda_reduce(&tensor, 0, nullptr, 0); }},
      {"rueda_allgather", [&] { return rueda_allgather(&tensor, nullptr, 0); }},
      {"rueda_gather", [&] { return rueda_gather(&tensor, nullptr, 0, 0); }},
      {"rueda_reduce_scatter", [&] { return rueda_reduce_scatter(&tensor, nullptr, nullptr, 0); }},
      {"rueda_scatter", [&] { return rueda_scatter(&tensor, nullptr, 0, 0); }},
      {"rueda_alltoall", [&] { return rueda_alltoall(&tensor, nullptr, 0); }},
      {"rueda_barrier", [] { return rueda_barrier("b", 0); }},
      {"rueda_join", [] { return rueda_join(0, nullptr); }},
      {"rueda_plan_declare", [] { return rueda_plan_declare(nullptr, 0); }},
      {"rueda_process_set_add",
       [] {
         uint32_t id = 0;
         const int32_t rank = 0;
         return rueda_process_set_add(&rank, 1, &id);
       }},
      {"rueda_process_set_remove", [] { return rueda_process_set_remove(1); }},
      {"rueda_then_take_back", [] { return rueda_then_take_back(&Called::call); }},
  };
  Called called;
  called.body = [&](int) {
    for (const auto& [function, wait] : waits) {
      EXPECT_EQ(wait(), RUEDA_ERR_INVALID_ARGUMENT) << function;
      EXPECT_THAT(rueda_last_error(), HasSubstr(function + " may wait")) << function;
    }
  };
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  ASSERT_EQ(rueda_then(handle, &Called::call, &called), RUEDA_OK);
  EXPECT_EQ(rueda_wait(waited, 20'000, nullptr), RUEDA_OK);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  EXPECT_EQ(called.times, 1);
  EXPECT_EQ(daemon_->counts().submissions, 2) << "something was submitted before it was refused";
}

TEST_F(ApiTest, WhatDoesNotWaitIsServedInACallback) {
  start();
  Called last;
  last.body = [](int error) { EXPECT_EQ(error, RUEDA_OK); };
  Called called;
  called.body = [&](int error) {
    EXPECT_EQ(error, RUEDA_OK);
    auto* memory = static_cast<float*>(rueda_alloc(64));
    ASSERT_NE(memory, nullptr);
    void* unused = rueda_alloc(64);
    EXPECT_EQ(rueda_free(unused), RUEDA_OK);
    const rueda_tensor tensor{"t", memory, memory, nullptr, 0, RUEDA_FLOAT32, 0};
    rueda_handle handle = 0;
    ASSERT_EQ(rueda_allreduce_async(&tensor, nullptr, &handle), RUEDA_OK) << rueda_last_error();
    int done = 0;
    EXPECT_EQ(rueda_test(handle, &done), RUEDA_OK);
    EXPECT_EQ(rueda_then(handle, &Called::call, &last), RUEDA_OK);
    EXPECT_EQ(rueda_rank(), 0);
  };
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  ASSERT_EQ(rueda_then(handle, &Called::call, &called), RUEDA_OK);
  while (last.times == 0) std::this_thread::yield();
  EXPECT_EQ(called.times, 1);
}

// rueda_shutdown held a lock that rueda_free needed, and waited for the callback.
TEST_F(ApiTest, MemoryIsFreedInACallbackDuringTheShutdown) {
  start();
  void* memory = rueda_alloc(64);
  void* before = rueda_alloc(64);
  ASSERT_EQ(rueda_shutdown(), RUEDA_OK);
  start();
  void* now = rueda_alloc(64);
  Called called;
  called.body = [&](int) {
    while (rueda_is_initialized() != 0) std::this_thread::yield();
    EXPECT_EQ(rueda_free(memory), RUEDA_OK) << "of a session that has ended";
    EXPECT_EQ(rueda_free(now), RUEDA_OK) << "of the one that is ending";
    EXPECT_EQ(rueda_free(now), RUEDA_ERR_INVALID_ARGUMENT);
    rueda_handle handle = 0;
    EXPECT_EQ(rueda_barrier_async("more", &handle), RUEDA_ERR_SHUT_DOWN);
    EXPECT_EQ(rueda_then(1, &Called::call, nullptr), RUEDA_ERR_SHUT_DOWN);
    EXPECT_EQ(rueda_shutdown(), RUEDA_ERR_INVALID_ARGUMENT);
  };
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  ASSERT_EQ(rueda_then(handle, &Called::call, &called), RUEDA_OK);
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  EXPECT_EQ(called.times, 1);
  EXPECT_EQ(rueda_free(before), RUEDA_OK);
}

// An array library frees memory with its interpreter's lock, for which the callback waits.
TEST_F(ApiTest, AnotherThreadFreesMemoryWhileTheShutdownWaitsForACallback) {
  start();
  void* memory = rueda_alloc(64);
  std::atomic<bool> is_freed{false};
  Called called;
  called.body = [&](int) {
    while (!is_freed) std::this_thread::yield();
  };
  rueda_handle handle = 0;
  ASSERT_EQ(rueda_barrier_async("x", &handle), RUEDA_OK);
  ASSERT_EQ(rueda_then(handle, &Called::call, &called), RUEDA_OK);
  std::thread other([&] {
    while (rueda_is_initialized() != 0) std::this_thread::yield();
    EXPECT_EQ(rueda_free(memory), RUEDA_OK);
    is_freed = true;
  });
  EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  other.join();
}

TEST_F(ApiTest, ErrorsHaveNames) {
  EXPECT_STREQ(rueda_error_name(0), "RUEDA_OK");
  EXPECT_STREQ(rueda_error_name(-2), "RUEDA_ERR_MISMATCH");
  EXPECT_STREQ(rueda_error_name(RUEDA_ERR_INTERNAL), "RUEDA_ERR_INTERNAL");
  EXPECT_STREQ(rueda_error_name(-99), "unknown error");
}

}  // namespace
}  // namespace rueda::client
