// Tests that a step that repeats as it was allocates nothing in the training process.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "client/src/session/session.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/requests.h"
#include "tests/support/allocations.h"

namespace rueda::client {
namespace {

using testing_support::allocations_of_this_thread;

constexpr int64_t kElements = 16;
constexpr size_t kTensors = 50;  // is less than what may be in flight
constexpr rueda_reduce_options kOptions{sizeof(kOptions), RUEDA_SUM, 1.0, 1.0, 0};

TEST(ClientAllocation, AStepThatRepeatsAllocatesNothing) {
  FakeDaemon daemon;
  auto session = Session::attach(daemon.config());
  ASSERT_TRUE(session.is_ok()) << session.status().message();
  auto* memory = static_cast<float*>(session.value()->allocate(kTensors * 64).value());
  std::vector<std::string> names;
  for (size_t i = 0; i < kTensors; ++i) {
    names.push_back("layer." + std::to_string(i) + ".a_name_that_is_no_short_string");
  }
  std::vector<rueda_handle> handles(kTensors);
  const auto step = [&] {
    for (size_t i = 0; i < kTensors; ++i) {
      float* data = memory + i * kElements;
      const rueda_tensor tensor = flat_tensor(names[i].c_str(), data, data, &kElements);
      const auto again = session.value()->submit_again({&tensor, 1}, &kOptions, "");
      handles[i] = again
                       ? *again
                       : session.value()
                             ->submit({allreduce_of(names[i].c_str(), data, data, kElements, 1.0)})
                             .value();
    }
    for (const rueda_handle handle : handles) {
      ASSERT_TRUE(session.value()->wait(handle, 20'000, nullptr).is_ok());
    }
  };
  const uint64_t first = allocations_of_this_thread();
  step();
  EXPECT_GT(allocations_of_this_thread(), first) << "nothing is counted";
  step();
  const uint64_t before = allocations_of_this_thread();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(allocations_of_this_thread(), before);
}

TEST(ClientAllocation, ACallbackAllocatesNothing) {
  FakeDaemon daemon;
  auto session = Session::attach(daemon.config());
  ASSERT_TRUE(session.is_ok()) << session.status().message();
  auto* data = static_cast<float*>(session.value()->allocate(64).value());
  const rueda_tensor tensor = flat_tensor("t", data, data, &kElements);
  std::atomic<int> calls{0};
  const auto count = [](rueda_handle, int, const rueda_result*, void* argument) {
    ++*static_cast<std::atomic<int>*>(argument);
  };
  const auto reduce = [&] {
    const auto again = session.value()->submit_again({&tensor, 1}, &kOptions, "");
    const rueda_handle handle =
        again ? *again
              : session.value()->submit({allreduce_of("t", data, data, kElements, 1.0)}).value();
    const int before = calls;
    ASSERT_TRUE(session.value()->then(handle, {count, &calls}).is_ok());
    while (calls == before) std::this_thread::yield();
  };
  reduce();
  reduce();
  const uint64_t before = allocations_of_this_thread();
  for (int i = 0; i < 10; ++i) reduce();
  EXPECT_EQ(allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace rueda::client
