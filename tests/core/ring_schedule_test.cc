#include "daemon/core/ring_schedule.h"

#include <algorithm>
#include <bitset>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/limits.h"

namespace rueda::core {
namespace {

constexpr int kMaxNodes = 64;

// An element is the set of nodes whose partial sum is in it, and the order they came in.
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

// The schedule, carried out by all nodes on one thread. Link i leads from node i to the next and
// keeps its order; which link delivers next is the test's choice.
class Ring {
 public:
  Ring(const RingCut& cut, DeliveryOrder order, uint64_t seed)
      : cut_(cut),
        nodes_(cut.nodes()),
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
  // Frames sent for each chunk, and how often each node stored each chunk.
  const std::vector<int>& frames() const { return frames_; }
  const std::vector<int>& stored(int node) const { return stored_[static_cast<size_t>(node)]; }

 private:
  void originate(int node, int64_t piece) {
    for (int shard = 0; shard < nodes_; ++shard) {
      if (!ring_originates(shard, NodeIndex{node})) continue;
      const ElementRange range = cut_.chunk(piece, shard);
      Frame frame{RingPhase::kReduce, shard, piece, {}};
      frame.elements.resize(static_cast<size_t>(range.count()));
      add(frame, node);
      // On one node there is no ring, and the partial sum is the result.
      nodes_ == 1 ? store(frame, node) : send(node, std::move(frame));
    }
  }

  void receive(int node, Frame frame) {
    ASSERT_TRUE(ring_may_receive(frame.phase, frame.shard, NodeIndex{node}, nodes_));
    switch (ring_on_receive(frame.phase, frame.shard, NodeIndex{node}, nodes_)) {
      case RingAction::kAddAndForward:
        add(frame, node);
        send(node, std::move(frame));
        return;
      case RingAction::kAddAndFinish:
        add(frame, node);
        store(frame, node);
        frame.phase = RingPhase::kGather;
        send(node, std::move(frame));
        return;
      case RingAction::kStoreAndForward:
        store(frame, node);
        send(node, std::move(frame));
        return;
      case RingAction::kStore: store(frame, node); return;
    }
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

  // -1: nothing is on its way.
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

// Round the ring from the shard's origin: the same for every chunk size and delivery order.
std::vector<int> expected_order(int shard, int nodes) {
  std::vector<int> order;
  for (int i = 0; i < nodes; ++i) order.push_back((shard + i) % nodes);
  return order;
}

void expect_all_reduced(const RingCut& cut, DeliveryOrder order, uint64_t seed) {
  Ring ring(cut, order, seed);
  ring.run();
  const int nodes = cut.nodes();
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
    // Two pieces, and shards that differ in size.
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
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      SCOPED_TRACE("nodes " + std::to_string(nodes) + ", seed " + std::to_string(seed));
      ASSERT_NO_FATAL_FAILURE(
          expect_all_reduced(RingCut(17, nodes, 3), DeliveryOrder::kShuffled, seed));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A wrong frame from a peer must be told from a right one before it is acted on.
TEST(RingSchedule, ANodeReceivesEachShardOnceAPhaseAtMost) {
  for (int nodes = 2; nodes <= kMaxNodes; ++nodes) {
    for (int node = 0; node < nodes; ++node) {
      int reduce = 0, gather = 0;
      for (int shard = 0; shard < nodes; ++shard) {
        reduce += ring_may_receive(RingPhase::kReduce, shard, NodeIndex{node}, nodes);
        gather += ring_may_receive(RingPhase::kGather, shard, NodeIndex{node}, nodes);
      }
      EXPECT_EQ(reduce, nodes - 1);
      EXPECT_EQ(gather, nodes - 1);
      EXPECT_FALSE(ring_may_receive(RingPhase::kReduce, node, NodeIndex{node}, nodes));
      EXPECT_FALSE(
          ring_may_receive(RingPhase::kGather, (node + 1) % nodes, NodeIndex{node}, nodes));
    }
  }
}

TEST(RingScheduleDeathTest, ActingOnAFrameThatCannotBeIsABug) {
  EXPECT_DEATH((void)ring_on_receive(RingPhase::kReduce, 1, NodeIndex{1}, 3), "check failed");
  EXPECT_DEATH((void)ring_on_receive(RingPhase::kGather, 2, NodeIndex{1}, 3), "check failed");
  EXPECT_DEATH((void)ring_on_receive(RingPhase::kReduce, 0, NodeIndex{0}, 1), "check failed");
}

TEST(RingSchedule, ABroadcastsChainReachesEverybodyOnce) {
  for (int nodes = 1; nodes <= kMaxNodes; ++nodes) {
    for (int root = 0; root < nodes; ++root) {
      std::bitset<kMaxNodes> reached;
      int node = root;
      reached.set(static_cast<size_t>(node));
      while (chain_forwards(NodeIndex{root}, NodeIndex{node}, nodes)) {
        node = (node + 1) % nodes;
        ASSERT_FALSE(reached.test(static_cast<size_t>(node))) << nodes << " nodes, root " << root;
        reached.set(static_cast<size_t>(node));
      }
      ASSERT_EQ(reached.count(), static_cast<size_t>(nodes)) << "root " << root;
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

TEST(RingCut, NoMorePiecesThanNeeded) {
  EXPECT_EQ(RingCut(0, 4, 10).pieces(), 1);  // a barrier still goes round
  EXPECT_EQ(RingCut(0, 4, 10).chunks(), 4);
  EXPECT_EQ(RingCut(40, 4, 10).pieces(), 1);
  EXPECT_EQ(RingCut(41, 4, 10).pieces(), 2);  // the first shard has 11
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
