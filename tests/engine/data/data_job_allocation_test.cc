// Tests that an operation of a job on one node allocates what it needs when it begins: its pass
// allocates nothing. Between nodes every wake-up of a channel is a handler of Asio's, which may be
// allocated.
#include <gtest/gtest.h>

#include "tests/engine/ring.h"
#include "tests/support/allocations.h"

namespace rueda::engine {
namespace {

using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;
using testing_support::allocations_of_this_thread;

constexpr int64_t kStretchElements = 32 << 10;

// Returns the allocations of one operation of so many stretches, after others have run.
uint64_t allocations_of(std::vector<int> ranks_per_node, int64_t stretches) {
  RingOptions options;
  options.ranks_per_node = std::move(ranks_per_node);
  Ring ring(options);
  OperationSpec spec;
  spec.sizes = {stretches * kStretchElements};
  uint64_t counted = 0;
  for (int i = 0; i < 4; ++i) {
    ring.add(spec);
    const uint64_t before = allocations_of_this_thread();
    EXPECT_TRUE(ring.run_all());
    counted = allocations_of_this_thread() - before;
  }
  EXPECT_EQ(ring.check(), "");
  return counted;
}

TEST(DataJobAllocation, APassOverMemoryAllocatesNoMoreForManyStretchesThanForFew) {
  const uint64_t few = allocations_of({2}, 2);
  EXPECT_GT(few, 0u) << "nothing is counted";
  // The loop's queue of handlers takes another block now and then.
  EXPECT_LE(allocations_of({2}, 32), few + 8);
}

}  // namespace
}  // namespace rueda::engine
