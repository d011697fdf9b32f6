#include "daemon/core/schedules/pairwise_schedule.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

constexpr Algorithm kExchanges[] = {Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling,
                                    Algorithm::kDirect, Algorithm::kCentral};

// Holds, as text, how the sums of the nodes in a block were put together.
struct Block {
  std::string sum;
  int nodes = 1;
  bool is_final = false;
};

struct Message {
  BlockRange range;
  std::vector<Block> blocks;
  bool is_final;
};

// Runs all nodes' programs, in any order of turns.
class Cluster {
 public:
  Cluster(Algorithm algorithm, int nodes, uint32_t seed, int servers = 1) : random_(seed) {
    for (int i = 0; i < nodes; ++i) {
      Node& node = nodes_.emplace_back();
      node.program = make_exchange(algorithm, nodes, NodeIndex{i}, servers);
      node.blocks.assign(static_cast<size_t>(node.program.blocks), {std::to_string(i)});
    }
  }

  // Runs the programs. Returns "", or what is wrong.
  std::string run() {
    while (true) {
      std::vector<size_t> able;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (can_send(i) || can_receive(i)) able.push_back(i);
      }
      if (able.empty()) break;
      const size_t node = able[random_() % able.size()];
      std::string wrong = can_send(node) ? send(node) : receive(node);
      if (!wrong.empty()) return "node " + std::to_string(node) + ": " + wrong;
    }
    return check_end();
  }
  const std::vector<Block>& blocks(int node) const {
    return nodes_[static_cast<size_t>(node)].blocks;
  }

 private:
  struct Node {
    PairwiseProgram program;
    std::vector<Block> blocks;
    size_t sent = 0;
    size_t received = 0;
  };

  bool can_send(size_t i) const {
    const Node& node = nodes_[i];
    return node.sent < node.program.sends.size() &&
           static_cast<size_t>(node.program.sends[node.sent].after) <= node.received;
  }
  // Returns whether all values that are added together have come.
  bool can_receive(size_t i) {
    const std::vector<PairwiseReceive>& receives = nodes_[i].program.receives;
    size_t next = nodes_[i].received;
    if (next == receives.size()) return false;
    do {
      if (links_[{receives[next].from.value, static_cast<int>(i)}].empty()) return false;
    } while (receives[next++].joins_next);
    return true;
  }

  std::string send(size_t i) {
    Node& node = nodes_[i];
    const PairwiseSend& item = node.program.sends[node.sent++];
    Message message{item.blocks, {}, item.is_final};
    for (int b = item.blocks.begin; b < item.blocks.end; ++b) {
      message.blocks.push_back(node.blocks[static_cast<size_t>(b)]);
      if (item.is_final && !message.blocks.back().is_final) return "calls a partial sum final";
    }
    const std::pair link{static_cast<int>(i), item.to.value};
    if (++messages_[link] > kMaxMessages) return "sends too many messages to one node";
    links_[link].push_back(std::move(message));
    return {};
  }

  std::string receive(size_t i) {
    Node& node = nodes_[i];
    std::map<int, std::vector<Block>> addends;  // the blocks to be added, by node
    while (true) {
      const PairwiseReceive& item = node.program.receives[node.received++];
      std::vector<Message>& link = links_[{item.from.value, static_cast<int>(i)}];
      const Message message = link.front();
      link.erase(link.begin());
      if (message.range != item.blocks) return "gets other blocks than it waits for";
      if (message.is_final == item.adds) return "adds what is final, or keeps what is not";
      addends[item.from.value] = message.blocks;
      if (item.joins_next) continue;
      if (item.adds) addends[static_cast<int>(i)] = own(node, item.blocks);
      return take(node, item, addends);
    }
  }

  static std::vector<Block> own(const Node& node, BlockRange blocks) {
    return {node.blocks.begin() + blocks.begin, node.blocks.begin() + blocks.end};
  }

  static std::string take(Node& node, const PairwiseReceive& item,
                          const std::map<int, std::vector<Block>>& addends) {
    for (int b = item.blocks.begin; b < item.blocks.end; ++b) {
      const auto index = static_cast<size_t>(b - item.blocks.begin);
      Block sum{"", 0, item.becomes_final};
      for (const auto& [from, blocks] : addends) {
        if (item.adds && blocks[index].is_final) return "adds to what is final";
        sum.sum += (sum.sum.empty() ? "" : "+") + blocks[index].sum;
        sum.nodes += blocks[index].nodes;
      }
      if (item.adds) sum.sum = "(" + sum.sum + ")";
      if (!item.adds) sum.is_final = true;
      node.blocks[static_cast<size_t>(b)] = sum;
    }
    return {};
  }

  std::string check_end() const {
    const auto all = static_cast<int>(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const std::string name = "node " + std::to_string(i);
      if (node.sent < node.program.sends.size()) return name + " stands still, sending";
      if (node.received < node.program.receives.size()) return name + " stands still, receiving";
      for (size_t b = 0; b < node.blocks.size(); ++b) {
        if (node.blocks[b].nodes != all || !node.blocks[b].is_final) {
          return name + " ends with " + node.blocks[b].sum;
        }
        if (node.blocks[b].sum != nodes_[0].blocks[b].sum) return name + " has other sums";
      }
    }
    for (const auto& [link, messages] : links_) {
      if (!messages.empty()) return "a message was left on the way";
    }
    return {};
  }

  std::mt19937 random_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, std::vector<Message>> links_;  // by sender, receiver
  std::map<std::pair<int, int>, int> messages_;
};

TEST(PairwiseSchedule, EveryNodeGetsEverySumOnceInAnyTurns) {
  for (const Algorithm algorithm : kExchanges) {
    for (int nodes = 2; nodes <= 17; ++nodes) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        Cluster cluster(algorithm, nodes, seed);
        ASSERT_EQ(cluster.run(), "") << to_string(algorithm) << " with " << nodes << " nodes";
      }
    }
  }
}

// The bits follow from the nodes alone, whichever of the two algorithms an operation uses.
TEST(PairwiseSchedule, DoublingAndHalvingAddInTheSameOrderEverywhere) {
  for (int nodes = 2; nodes <= 17; ++nodes) {
    Cluster doubling(Algorithm::kRecursiveDoubling, nodes, 1);
    Cluster halving(Algorithm::kHalvingDoubling, nodes, 2);
    ASSERT_EQ(doubling.run() + halving.run(), "");
    for (const Block& block : halving.blocks(0)) {
      EXPECT_EQ(block.sum, doubling.blocks(0).front().sum);
    }
  }
}

TEST(PairwiseSchedule, WhoeverAddsAllAddsThemInTheOrderOfNodes) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kCentral}) {
    Cluster cluster(algorithm, 4, 1);
    ASSERT_EQ(cluster.run(), "");
    for (const Block& block : cluster.blocks(2)) EXPECT_EQ(block.sum, "(0+1+2+3)");
  }
}

TEST(PairwiseSchedule, AnyNumberOfServersGivesEveryNodeEverySumInTheOrderOfNodes) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    for (int servers = 1; servers <= nodes + 1; ++servers) {
      for (uint32_t seed = 0; seed < 10; ++seed) {
        Cluster cluster(Algorithm::kCentral, nodes, seed, servers);
        ASSERT_EQ(cluster.run(), "") << servers << " servers of " << nodes << " nodes";
        std::string sum = "(0";
        for (int i = 1; i < nodes; ++i) sum += "+" + std::to_string(i);
        ASSERT_EQ(cluster.blocks(0).size(), static_cast<size_t>(std::min(servers, nodes)));
        for (const Block& block : cluster.blocks(nodes - 1)) EXPECT_EQ(block.sum, sum + ")");
      }
    }
  }
}

// A worker that is no server speaks with servers alone, and pushes each of them one part.
TEST(PairwiseSchedule, WorkersPushOnePartToEachServerAndPullItFromThere) {
  const PairwiseProgram worker = make_exchange(Algorithm::kCentral, 7, NodeIndex{5}, 3);
  ASSERT_EQ(worker.sends.size(), 3u);
  ASSERT_EQ(worker.receives.size(), 3u);
  for (const PairwiseSend& push : worker.sends) {
    EXPECT_EQ(push.blocks, (BlockRange{push.to.value, push.to.value + 1}));
    EXPECT_FALSE(push.is_final);
  }
  for (const PairwiseReceive& pull : worker.receives) {
    EXPECT_EQ(pull.blocks, (BlockRange{pull.from.value, pull.from.value + 1}));
    EXPECT_FALSE(pull.adds);
  }
  const PairwisePeers peers = peers_of({Algorithm::kCentral}, 7, NodeIndex{5}, 3);
  EXPECT_EQ(peers.to, (std::vector<NodeIndex>{NodeIndex{0}, NodeIndex{1}, NodeIndex{2}}));
  EXPECT_EQ(peers.from, peers.to);
}

TEST(PairwiseSchedule, PeersAreThoseOfTheProgramsOnBothSides) {
  for (const Algorithm algorithm : kExchanges) {
    for (int nodes = 2; nodes <= 9; ++nodes) {
      for (int i = 0; i < nodes; ++i) {
        const PairwisePeers mine = peers_of({algorithm}, nodes, NodeIndex{i});
        for (const NodeIndex peer : mine.to) {
          const PairwisePeers theirs = peers_of({algorithm}, nodes, peer);
          EXPECT_TRUE(std::binary_search(theirs.from.begin(), theirs.from.end(), NodeIndex{i}));
        }
        EXPECT_FALSE(std::binary_search(mine.to.begin(), mine.to.end(), NodeIndex{i}));
      }
    }
  }
}

TEST(PairwiseSchedule, OfManyNodesEachTalksToFew) {
  const auto peers =
      peers_of({Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling}, 1000, NodeIndex{0});
  EXPECT_EQ(peers.to.size(), 10u) << "nine in the 512, and the one that is its guest";
}

}  // namespace
}  // namespace rueda::core
