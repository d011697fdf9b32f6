// Tests policy `shrink` while nobody dies: what is held until it is stable (R1), how nodes learn
// that it is, and how launching waits for it (R2).
#include <gtest/gtest.h>

#include "tests/engine/ring.h"

namespace rueda::engine::testing {
namespace {

using core::Track;

RingOptions shrinking(int nodes) {
  RingOptions options;
  options.ranks_per_node.assign(static_cast<size_t>(nodes), 1);
  options.policy = core::DeathPolicy::kShrink;
  return options;
}

OperationSpec sum_of(int64_t elements, bool in_place = false) {
  OperationSpec spec;
  spec.sizes = {elements};
  spec.in_place = in_place;
  return spec;
}

int64_t held(Ring& ring, int node, Track track = Track::kLockable) {
  return ring.node(node).job->unstable_bytes(track);
}

TEST(DataJobStability, UnderPolicyFailNothingIsHeld) {
  RingOptions options = shrinking(2);
  options.policy = core::DeathPolicy::kFail;
  Ring ring(options);
  ring.add(sum_of(5000));
  for (int i = 0; i < 2; ++i) ring.launch_next(i);
  while (ring.poll()) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(held(ring, i), 0);
  }
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJobStability, OneNodeHoldsNothing) {
  Ring ring(shrinking(1));
  ring.add(sum_of(5000));
  EXPECT_TRUE(ring.run_all());
  EXPECT_EQ(held(ring, 0), 0);
  EXPECT_EQ(ring.check(), "");
}

// P is computed from the inputs again, so nobody writes to them before all of F is there.
TEST(DataJobStability, InPlaceBuffersAreWrittenOnceAllOfTheValuesAreThere) {
  for (const int nodes : {2, 3, 4}) {
    Ring ring(shrinking(nodes));
    const OperationFixture& work = ring.add(sum_of(20'000, true));
    std::vector<Bytes> given;
    for (int i = 0; i < nodes; ++i) given.push_back(work.output(Rank{i}));
    for (int i = 0; i < nodes; ++i) ring.launch_next(i);
    while (ring.poll()) {
      for (int i = 0; i < nodes; ++i) {
        if (!ring.node(i).done.empty()) continue;
        ASSERT_EQ(work.output(Rank{i}), given[static_cast<size_t>(i)]) << "node " << i;
      }
    }
    EXPECT_EQ(ring.check(), "");
    EXPECT_TRUE(ring.all_done());
  }
}

// The outputs are written in turns. Events of the operation between them begin no second row of
// turns, which would outlive the operation.
TEST(DataJobStability, WhatIsHandedBackInTurnsIsHandedBackOnce) {
  RingOptions options = shrinking(2);
  options.chunk_bytes = 256 << 10;
  Ring ring(options);
  const Seq seq = ring.add(sum_of(6 << 20, true)).seq();  // takes three turns
  for (int i = 0; i < 2; ++i) ring.launch_next(i);
  while (ring.poll()) {
    for (int i = 0; i < 2; ++i) ring.node(i).job->rounds_came(seq);
  }
  EXPECT_EQ(ring.check(), "");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ring.node(i).done, std::vector<Seq>{seq});
}

// A node that is done keeps F while another node lacks a chunk, which it may need.
TEST(DataJobStability, WhoIsDoneHoldsTheValuesUntilAllAre) {
  Ring ring(shrinking(3));
  ring.add(sum_of(20'000));
  for (int i = 0; i < 3; ++i) ring.launch_next(i);
  int turns_between = 0;
  while (ring.poll()) {
    if (ring.all_done()) continue;
    for (int i = 0; i < 3; ++i) {
      if (ring.node(i).done.empty()) continue;
      EXPECT_GT(held(ring, i), 0);
      ++turns_between;
    }
  }
  EXPECT_GT(turns_between, 0) << "all were done at once";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(held(ring, i), 0) << "traffic has stopped";
}

TEST(DataJobStability, TrafficSaysWhatIsStable) {
  RingOptions options = shrinking(3);
  options.lanes = 2;
  Ring ring(options);
  constexpr int kOperations = 20;
  for (int i = 0; i < kOperations; ++i) ring.add(sum_of(3000));
  // Node 0 never stops, so it acknowledges nothing by itself; no node ever holds more than a few
  // operations.
  int64_t most = 0;
  ASSERT_TRUE(ring.run_until([&] {
    for (int i = 0; i < 3; ++i) {
      while (ring.launch_next(i)) {
      }
      most = std::max(most, held(ring, i));
    }
    return ring.all_done();
  }));
  EXPECT_LE(most, 6 * 12'032);
}

TEST(DataJobStability, LaunchingWaitsBeyondTheBound) {
  RingOptions options = shrinking(2);
  options.staging_bytes = 64 << 10;  // three quarters are for what can be locked
  Ring ring(options);
  for (int i = 0; i < 3; ++i) ring.add(sum_of(6000));  // have 24,000 bytes each: two have room
  for (int i = 0; i < 3; ++i) ring.launch_next(0);
  ring.settle();
  EXPECT_EQ(held(ring, 0), 2 * 24'000);
  for (int i = 0; i < 3; ++i) ring.launch_next(1);
  EXPECT_TRUE(ring.run_all());
  ring.settle();
  EXPECT_EQ(ring.check(), "");
  EXPECT_EQ(held(ring, 0), 0);
}

// An operation that is larger than the bound goes when nothing else is held, and alone.
TEST(DataJobStability, AnOperationLargerThanTheBoundGoesAlone) {
  RingOptions options = shrinking(3);
  options.staging_bytes = 16 << 10;
  Ring ring(options);
  for (int i = 0; i < 4; ++i) ring.add(sum_of(20'000, i % 2 == 0));
  bool over = false;
  ASSERT_TRUE(ring.run_until([&] {
    for (int i = 0; i < 3; ++i) {
      while (ring.launch_next(i)) {
      }
      over = over || held(ring, i) > 80'000;
    }
    return ring.all_done();
  }));
  EXPECT_FALSE(over);
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJobStability, WhatIsKnownFromElsewhereFreesToo) {
  Ring ring(shrinking(2));
  ring.add(sum_of(100));
  for (int i = 0; i < 2; ++i) ring.launch_next(i);
  // The loop stops right after the first completion, when no acknowledgement has gone round.
  int first = 0;
  ASSERT_TRUE(ring.run_until([&] {
    first = ring.node(0).done.empty() ? 1 : 0;
    return !ring.node(first).done.empty();
  }));
  EXPECT_GT(held(ring, first), 0);
  ring.node(first).job->note_stable(Seq{7});
  EXPECT_EQ(held(ring, first), 0) << "no further than what is complete here";
}

// One acknowledgement goes twice round the ring, however many operations there were.
TEST(DataJobStability, TheTrailingAcknowledgementIsOneFrameAHop) {
  constexpr double kHeader = 64;
  const auto sent = [](core::DeathPolicy policy) {
    RingOptions options = shrinking(3);
    options.policy = policy;
    Ring ring(options);
    for (int i = 0; i < 4; ++i) ring.add(sum_of(300));
    for (int node = 0; node < 3; ++node) {
      while (ring.launch_next(node)) {
      }
    }
    ring.settle();
    EXPECT_EQ(ring.check(), "");
    double bytes = 0;
    for (int i = 0; i < 3; ++i) ring.node(i).job->count_traffic();
    for (int i = 0; i < 3; ++i) {
      bytes += ring.metrics().peer("n" + std::to_string(i), "mem")->sent_bytes.Value();
    }
    return bytes;
  };
  EXPECT_EQ(sent(core::DeathPolicy::kShrink) - sent(core::DeathPolicy::kFail), 4 * kHeader);
}

}  // namespace
}  // namespace rueda::engine::testing
