#include "bench/base/parallel.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

TEST(ParallelTest, EachIsCalledOnce) {
  std::vector<std::atomic<int>> calls(1000);
  in_parallel(calls.size(), [&](size_t i) { ++calls[i]; });
  for (const auto& each : calls) EXPECT_EQ(each, 1);
  in_parallel(0, [](size_t) { FAIL(); });
}

TEST(ParallelTest, OneThatThrowsStopsNoOtherAndIsHeardOf) {
  std::atomic<int> calls = 0;
  const auto each = [&](size_t i) {
    ++calls;
    if (i == 3 || i == 70) throw std::runtime_error(std::to_string(i));
  };
  try {
    in_parallel(100, each);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "3");
  }
  EXPECT_EQ(calls, 100);
}

}  // namespace
}  // namespace rueda::bench
