#include "daemon/core/schedules/ring_schedule.h"

#include <algorithm>
#include <bitset>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "tests/support/scale.h"

namespace rueda::core {
namespace {

constexpr int kMaxNodes = 64;

// An element holds the set of nodes whose partial sum is in it, and the order in which they came.
struct Element {
  std::bitset<kMaxNodes> contributors;
  std::vector<int> order;

  void add(int node) {
    ASSERT_FALSE(contributors.test(static_cast<size_t>(node))) << "node " << node << " twice";
    contributors.set(static_cast<size_t>(node));
    order.push_back(node);
  }
};

struct Frame {
  RingPhase phase;
  int shard;
  int64_t piece;
  std::vector<Element> elements;
};

enum class DeliveryOrder { kLowestLinkFirst, kHighestLinkFirst, kRoundRobin, kShuffled };

// Carries out the schedule of all nodes on one thread. Link i leads from node i to the next and
// keeps its order; the test chooses which link delivers next.
class Ring {
 public:
  Ring(const RingCut& cut, DeliveryOrder order, uint64_t seed)
      : cut_(cut),
        nodes_(cut.shards()),
        order_(order),
        random_(seed),
        links_(static_cast<size_t>(nodes_)),
        frames_(static_cast<size_t>(cut.chunks())),
        stored_(static_cast<size_t>(nodes_), std::vector<int>(static_cast<size_t>(cut.chunks()))),
        results_(static_cast<size_t>(nodes_),
                 std::vector<Element>(static_cast<size_t>(cut.elements()))) {}

  void run() {
    for (int node = 0; node < nodes_; ++node) {
      for (int64_t piece = 0; piece < cut_.pieces(); ++piece) originate(node, piece);
    }
    for (int link = next_link(); link >= 0; link = next_link()) {
      Frame frame = std::move(links_[static_cast<size_t>(link)].front());
      links_[static_cast<size_t>(link)].pop_front();
      receive((link + 1) % nodes_, std::move(frame));
    }
  }

  const std::vector<Element>& result(int node) const { return results_[static_cast<size_t>(node)]; }
  // Return the number of frames sent for each chunk, and how often each node stored each chunk.
  const std::vector<int>& frames() const { return frames_; }
  const std::vector<int>& stored(int node) const { return stored_[static_cast<size_t>(node)]; }

 private:
  void originate(int node, int64_t piece) {
    for (int shard = 0; shard < nodes_; ++shard) {
      if (route(shard).origin != NodeIndex{node}) continue;
      const ElementRange range = cut_.chunk(piece, shard);
      Frame frame{RingPhase::kReduce, shard, piece, {}};
      frame.elements.resize(static_cast<size_t>(range.count()));
      add(frame, node);
      // On one node there is no ring, and the partial sum is the result.
      nodes_ == 1 ? store(frame, node) : send(node, std::move(frame));
    }
  }

  void receive(int node, Frame frame) {
    ASSERT_TRUE(steps_taken(route(frame.shard), frame.phase, NodeIndex{node}, nodes_));
    const RingStep step = ring_step(route(frame.shard), frame.phase, NodeIndex{node}, nodes_);
    if (step.adds) add(frame, node);
    if (step.keeps) store(frame, node);
    if (!step.forwards) return;
    frame.phase = step.phase();
    send(node, std::move(frame));
  }

  Route route(int shard) const {
    return route_of(CollectiveKind::kAllreduce, nodes_, {}, 0, shard);
  }

  void add(Frame& frame, int node) {
    for (Element& element : frame.elements) element.add(node);
  }

  void store(const Frame& frame, int node) {
    ++stored_[static_cast<size_t>(node)][chunk_number(frame)];
    const int64_t begin = cut_.chunk(frame.piece, frame.shard).begin;
    std::copy(frame.elements.begin(), frame.elements.end(),
              results_[static_cast<size_t>(node)].begin() + begin);
  }

  void send(int node, Frame frame) {
    ++frames_[chunk_number(frame)];
    links_[static_cast<size_t>(node)].push_back(std::move(frame));
  }

  size_t chunk_number(const Frame& frame) const {
    return static_cast<size_t>(frame.piece * nodes_ + frame.shard);
  }

  // Returns the link that delivers next, or -1 if no frame is on its way.
  int next_link() {
    int first = 0;
    if (order_ == DeliveryOrder::kRoundRobin) first = turn_++ % nodes_;
    if (order_ == DeliveryOrder::kShuffled) first = static_cast<int>(random_() % links_.size());
    for (int i = 0; i < nodes_; ++i) {
      const int link =
          order_ == DeliveryOrder::kHighestLinkFirst ? nodes_ - 1 - i : (first + i) % nodes_;
      if (!links_[static_cast<size_t>(link)].empty()) return link;
    }
    return -1;
  }

  const RingCut cut_;
  const int nodes_;
  const DeliveryOrder order_;
  std::mt19937_64 random_;
  int turn_ = 0;
  std::vector<std::deque<Frame>> links_;
  std::vector<int> frames_;               // by chunk
  std::vector<std::vector<int>> stored_;  // by node and chunk
  std::vector<std::vector<Element>> results_;
};

// Returns the order round the ring from the shard's origin, which is the same for every chunk size
// and order of delivery.
std::vector<int> expected_order(int shard, int nodes) {
  std::vector<int> order;
  for (int i = 0; i < nodes; ++i) order.push_back((shard + i) % nodes);
  return order;
}

void expect_all_reduced(const RingCut& cut, DeliveryOrder order, uint64_t seed) {
  Ring ring(cut, order, seed);
  ring.run();
  const int nodes = cut.shards();
  for (const int frames : ring.frames()) ASSERT_EQ(frames, 2 * (nodes - 1));
  for (int node = 0; node < nodes; ++node) {
    for (const int times : ring.stored(node)) ASSERT_EQ(times, 1) << "node " << node;
  }
  for (int shard = 0; shard < nodes; ++shard) {
    const std::vector<int> additions = expected_order(shard, nodes);
    for (int64_t piece = 0; piece < cut.pieces(); ++piece) {
      const ElementRange range = cut.chunk(piece, shard);
      for (int64_t i = range.begin; i < range.end; ++i) {
        for (int node = 0; node < nodes; ++node) {
          const Element& element = ring.result(node)[static_cast<size_t>(i)];
          ASSERT_EQ(element.contributors.count(), static_cast<size_t>(nodes));
          ASSERT_EQ(element.order, additions);
        }
      }
    }
  }
}

class EveryWorldSize : public testing::TestWithParam<DeliveryOrder> {};

TEST_P(EveryWorldSize, EndsWithEveryContributorExactlyOnceOnEveryNode) {
  for (int nodes = 1; nodes <= kMaxNodes; ++nodes) {
    SCOPED_TRACE("nodes " + std::to_string(nodes));
    // There are two pieces, and shards that differ in size.
    ASSERT_NO_FATAL_FAILURE(expect_all_reduced(RingCut(nodes + 1, nodes, 1), GetParam(), 1));
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(EveryWorldSize, WorksWithFewerElementsThanNodes) {
  for (int nodes = 1; nodes <= kMaxNodes; ++nodes) {
    SCOPED_TRACE("nodes " + std::to_string(nodes));
    for (const int64_t elements : {0, 1, nodes - 1}) {
      ASSERT_NO_FATAL_FAILURE(expect_all_reduced(RingCut(elements, nodes, 4), GetParam(), 2));
    }
    if (testing::Test::HasFailure()) return;
  }
}

std::string order_name(const testing::TestParamInfo<DeliveryOrder>& tested) {
  switch (tested.param) {
    case DeliveryOrder::kLowestLinkFirst: return "LowestLinkFirst";
    case DeliveryOrder::kHighestLinkFirst: return "HighestLinkFirst";
    case DeliveryOrder::kRoundRobin: return "RoundRobin";
    case DeliveryOrder::kShuffled: return "Shuffled";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(Ring, EveryWorldSize,
                         testing::Values(DeliveryOrder::kLowestLinkFirst,
                                         DeliveryOrder::kHighestLinkFirst,
                                         DeliveryOrder::kRoundRobin, DeliveryOrder::kShuffled),
                         order_name);

TEST(RingSchedule, ManyShufflesOfASmallRing) {
  for (int nodes = 2; nodes <= 5; ++nodes) {
    const uint64_t seeds = testing_support::scaled(100, 20);
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE("nodes " + std::to_string(nodes) + ", seed " + std::to_string(seed));
      ASSERT_NO_FATAL_FAILURE(
          expect_all_reduced(RingCut(17, nodes, 3), DeliveryOrder::kShuffled, seed));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A wrong frame from a peer must be recognised before anything is done with it.
TEST(RingSchedule, ANodeReceivesEachShardOnceAPhaseAtMost) {
  for (int nodes = 2; nodes <= kMaxNodes; ++nodes) {
    const auto arrives = [nodes](RingPhase phase, int shard, int node) {
      const Route route = route_of(CollectiveKind::kAllreduce, nodes, {}, 0, shard);
      return steps_taken(route, phase, NodeIndex{node}, nodes).has_value();
    };
    for (int node = 0; node < nodes; ++node) {
      int reduce = 0, gather = 0;
      for (int shard = 0; shard < nodes; ++shard) {
        reduce += arrives(RingPhase::kReduce, shard, node);
        gather += arrives(RingPhase::kGather, shard, node);
      }
      EXPECT_EQ(reduce, nodes - 1);
      EXPECT_EQ(gather, nodes - 1);
      EXPECT_FALSE(arrives(RingPhase::kReduce, node, node));
      EXPECT_FALSE(arrives(RingPhase::kGather, (node + 1) % nodes, node));
    }
  }
}

TEST(RingScheduleDeathTest, ActingOnAFrameThatCannotBeIsABug) {
  const Route route = route_of(CollectiveKind::kAllreduce, 3, {}, 0, 1);
  EXPECT_DEATH((void)ring_step(route, RingPhase::kReduce, NodeIndex{1}, 3), "check failed");
  EXPECT_DEATH((void)ring_step(route, RingPhase::kGather, NodeIndex{0}, 3), "check failed");
}

// Follows a chunk from its origin, and says who added to it and who kept it, in order.
struct Journey {
  std::vector<int> added;
  std::vector<int> kept;
};
Journey follow(const Route& route, int nodes) {
  Journey journey;
  RingPhase phase = route.first_phase();
  journey.added.push_back(route.origin.value);
  if (route.reduce_hops == 0 && (route.is_for_all || route.hops == 0)) {
    journey.kept.push_back(route.origin.value);
  }
  NodeIndex node = route.origin;
  for (bool forwards = route.hops > 0; forwards;) {
    node = NodeIndex{(node.value + 1) % nodes};
    const RingStep step = ring_step(route, phase, node, nodes);
    if (step.adds) journey.added.push_back(node.value);
    if (step.keeps) journey.kept.push_back(node.value);
    forwards = step.forwards;
    phase = step.phase();
  }
  return journey;
}

std::vector<int> round_from(int first, int count, int nodes) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back((first + i) % nodes);
  return all;
}

TEST(RingSchedule, EachCollectivesChunksGoWhereTheyAreWanted) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    SCOPED_TRACE("nodes " + std::to_string(nodes));
    for (int i = 0; i < nodes; ++i) {
      const NodeIndex root{i};
      const auto way = [&](CollectiveKind kind, int round, int shard) {
        return follow(route_of(kind, nodes, root, round, shard), nodes);
      };
      // Shard i begins at node i; all of a reduction's nodes add to it.
      EXPECT_EQ(way(CollectiveKind::kAllgather, 0, i).kept, round_from(i, nodes, nodes));
      const Journey scattered = way(CollectiveKind::kReduceScatter, 0, i);
      EXPECT_EQ(scattered.added, round_from(i, nodes, nodes));
      EXPECT_EQ(scattered.kept,
                nodes == 1 ? std::vector<int>{0} : round_from(i + nodes - 1, 1, nodes));
      EXPECT_EQ(way(CollectiveKind::kBroadcast, 0, 0).kept, round_from(i, nodes, nodes));
      const Journey reduced = way(CollectiveKind::kReduce, 0, 0);
      EXPECT_EQ(reduced.added, round_from(i + 1, nodes, nodes));
      EXPECT_EQ(reduced.kept, std::vector<int>{i});
      std::bitset<9> sent, scattered_to, gathered_from;
      for (int round = 0; round < nodes; ++round) {
        const Journey exchange = way(CollectiveKind::kAlltoall, round, i);
        ASSERT_EQ(exchange.kept.size(), 1u);
        sent.set(static_cast<size_t>(exchange.kept.front()));
        const Journey scatter = way(CollectiveKind::kScatter, round, 0);
        EXPECT_EQ(scatter.added.front(), i);
        scattered_to.set(static_cast<size_t>(scatter.kept.front()));
        const Journey gather = way(CollectiveKind::kGather, round, 0);
        EXPECT_EQ(gather.kept, std::vector<int>{i});
        gathered_from.set(static_cast<size_t>(gather.added.front()));
      }
      EXPECT_EQ(sent.count(), static_cast<size_t>(nodes));
      EXPECT_EQ(scattered_to.count(), static_cast<size_t>(nodes));
      EXPECT_EQ(gathered_from.count(), static_cast<size_t>(nodes));
    }
  }
}

// A node must not take part in an operation that cannot end without others before those have begun
// it (rule L1).
TEST(RingSchedule, WhatCanBeLockedEndsNowhereBeforeAllHaveBegunIt) {
  for (const CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kAllgather,
                                    CollectiveKind::kReduceScatter, CollectiveKind::kAlltoall}) {
    for (int nodes = 2; nodes <= 9; ++nodes) {
      for (int node = 0; node < nodes; ++node) {
        std::bitset<9> heard;  // a frame that arrives was handled by all nodes on its way
        for (int round = 0; round < rounds_of(kind, nodes); ++round) {
          for (int shard = 0; shard < nodes; ++shard) {
            const Route route = route_of(kind, nodes, {}, round, shard);
            for (const RingPhase phase : {RingPhase::kReduce, RingPhase::kGather}) {
              const auto steps = steps_taken(route, phase, NodeIndex{node}, nodes);
              for (int i = 0; steps && i < *steps; ++i) {
                heard.set(static_cast<size_t>((route.origin.value + i) % nodes));
              }
            }
          }
        }
        EXPECT_GE(heard.count(), static_cast<size_t>(nodes - 1)) << to_string(kind);
      }
    }
  }
}

// --- RingCut -------------------------------------------------------------------------------------

TEST(RingCut, EveryElementIsInExactlyOneChunkOfBoundedSize) {
  for (const int64_t elements : {0, 1, 2, 3, 7, 64, 65, 1000, 4097}) {
    for (const int nodes : {1, 2, 3, 5, 8, 64}) {
      for (const int64_t max_chunk : {1, 2, 3, 16, 5000}) {
        const RingCut cut(elements, nodes, max_chunk);
        int64_t next = 0;
        for (int shard = 0; shard < nodes; ++shard) {
          for (int64_t piece = 0; piece < cut.pieces(); ++piece) {
            const ElementRange range = cut.chunk(piece, shard);
            ASSERT_EQ(range.begin, next);
            ASSERT_GE(range.count(), 0);
            ASSERT_LE(range.count(), max_chunk);
            next = range.end;
          }
        }
        ASSERT_EQ(next, elements) << nodes << " nodes, chunks of " << max_chunk;
      }
    }
  }
}

TEST(RingCut, RoundsFollowEachOther) {
  const RingCut cut({{{0, 10}, {10, 10}}, {{10, 11}, {11, 18}}}, 4);
  EXPECT_EQ(cut.elements(), 18);
  EXPECT_EQ(cut.shards(), 2);
  ASSERT_EQ(cut.pieces(), 5);  // 3 for ten elements, 2 for seven
  for (int piece = 0; piece < 5; ++piece) EXPECT_EQ(cut.round_of(piece), piece < 3 ? 0 : 1);
  EXPECT_EQ(cut.chunk(0, 0), (ElementRange{0, 4}));
  EXPECT_EQ(cut.chunk(2, 0), (ElementRange{7, 10}));
  EXPECT_EQ(cut.chunk(1, 1).count(), 0);
  EXPECT_EQ(cut.chunk(3, 0), (ElementRange{10, 11}));
  EXPECT_EQ(cut.chunk_at(9), (ElementRange{15, 18}));
}

TEST(RingCut, NoMorePiecesThanNeeded) {
  EXPECT_EQ(RingCut(0, 4, 10).pieces(), 1);  // a barrier has one piece, which goes round the ring
  EXPECT_EQ(RingCut(0, 4, 10).chunks(), 4);
  EXPECT_EQ(RingCut(40, 4, 10).pieces(), 1);
  EXPECT_EQ(RingCut(41, 4, 10).pieces(), 2);  // the first shard has 11 elements
  EXPECT_EQ(RingCut(3, 4, 10).pieces(), 1);
  EXPECT_EQ(RingCut(100, 1, 10).pieces(), 10);
}

TEST(RingCut, ShardsDoNotDependOnTheChunkSize) {
  for (const int64_t max_chunk : {1, 7, 100, 10'000}) {
    const RingCut cut(1003, 4, max_chunk);
    for (int shard = 0; shard < 4; ++shard) {
      EXPECT_EQ(cut.chunk(0, shard).begin, RingCut(1003, 4, 10'000).chunk(0, shard).begin);
    }
  }
}

TEST(RingCut, TheLargestTensorsDoNotOverflow) {
  const auto largest = static_cast<int64_t>(limits::kMaxTensorBytes);
  for (const int64_t elements : {largest - 1, largest, int64_t{INT64_MAX}}) {
    for (const int nodes : {1, 3, 64, limits::kMaxNodes}) {
      for (const int64_t max_chunk : {int64_t{1}, int64_t{1} << 16, largest}) {
        const RingCut cut(elements, nodes, max_chunk);
        if (cut.pieces() == 1) continue;
        EXPECT_EQ(cut.chunk(0, 0).begin, 0);
        EXPECT_EQ(cut.chunk(cut.pieces() - 1, nodes - 1).end, elements);
        for (const int shard : {0, nodes / 2, nodes - 1}) {
          const int64_t middle = cut.pieces() / 2;
          EXPECT_EQ(cut.chunk(middle - 1, shard).end, cut.chunk(middle, shard).begin);
          EXPECT_LE(cut.chunk(middle, shard).count(), max_chunk);
        }
      }
    }
  }
}

TEST(RingCutDeathTest, NonsenseIsABug) {
  EXPECT_DEATH(RingCut(-1, 2, 1), "check failed");
  EXPECT_DEATH(RingCut(1, 0, 1), "check failed");
  EXPECT_DEATH(RingCut(1, 2, 0), "check failed");
  EXPECT_DEATH((void)RingCut(8, 2, 1).chunk(4, 0), "check failed");
  EXPECT_DEATH((void)RingCut(8, 2, 1).chunk(0, 2), "check failed");
}

}  // namespace
}  // namespace rueda::core
