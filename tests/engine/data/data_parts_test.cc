#include "daemon/engine/data/data_parts.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using ::testing::ElementsAre;

// Returns ranks 0, 2 and 3 on node a, and 1 and 4 on node b.
core::Layout two_nodes() {
  return core::Layout::make(
             {{"a", "a:1", {Rank{0}, Rank{2}, Rank{3}}}, {"b", "b:1", {Rank{1}, Rank{4}}}})
      .value();
}

// Returns a launch of two tensors; of node a's ranks the second has joined.
core::Launch launch_of_node_a() {
  core::TensorDescriptor descriptor;
  descriptor.name = "t";
  descriptor.shape = {5};
  descriptor.op = ReduceOp::kAverage;
  const auto tensor = std::make_shared<const core::TensorDescriptor>(descriptor);
  core::Launch launch;
  launch.seq = Seq{7};
  launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(
      std::vector<core::LaunchTensor>{{tensor, 5}, {tensor, 5}});
  launch.tickets = {Ticket{10}, std::nullopt, Ticket{30}, Ticket{11}, std::nullopt, Ticket{31}};
  return launch;
}

class DataPartsTest : public ::testing::Test {
 protected:
  // Returns an address that tells inputs apart; nobody reads there.
  std::byte* input_of(int local_rank, uint64_t ticket) {
    return &memory_[static_cast<size_t>(local_rank) * 300 + ticket];
  }
  FindSubmission find() {
    return [this](LocalRank rank, Ticket ticket) -> const SubmittedBuffers& {
      found_ = {};
      found_.input = found_.output = input_of(rank.value, ticket.value);
      found_.input_bytes = found_.output_bytes = 20;
      return found_;
    };
  }

  std::array<std::byte, 1000> memory_{};
  SubmittedBuffers found_;
};

TEST_F(DataPartsTest, ByNodeThereIsOneWithAllRanks) {
  const DataParts parts(core::Reducer::kNode, two_nodes(), NodeIndex{0});
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts.max_on_a_node(), 1u);
  EXPECT_THAT(parts.ring(), ElementsAre(NodeIndex{0}, NodeIndex{1}));
  EXPECT_EQ(parts.place(0), NodeIndex{0});
  const auto operation = parts.build(launch_of_node_a(), 0, find()).value();
  ASSERT_EQ(operation->tensors.size(), 2u);
  EXPECT_EQ(operation->tensors[0].ranks.size(), 2u);
  EXPECT_EQ(operation->divisor, 5);
}

TEST_F(DataPartsTest, ByDeviceEachRankHasOne) {
  const DataParts parts(core::Reducer::kDevice, two_nodes(), NodeIndex{0});
  EXPECT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts.max_on_a_node(), 3u);
  EXPECT_EQ(DataParts(core::Reducer::kDevice, two_nodes(), NodeIndex{1}).max_on_a_node(), 3u);
  EXPECT_THAT(parts.ring(),
              ElementsAre(NodeIndex{0}, NodeIndex{0}, NodeIndex{0}, NodeIndex{1}, NodeIndex{1}));
  for (const int part : {0, 2}) {
    EXPECT_EQ(parts.place(static_cast<size_t>(part)), NodeIndex{part});
    const auto operation =
        parts.build(launch_of_node_a(), static_cast<size_t>(part), find()).value();
    EXPECT_EQ(operation->seq, Seq{7});
    EXPECT_EQ(operation->divisor, 5);
    ASSERT_EQ(operation->tensors.size(), 2u);
    const uint64_t first_ticket = part == 0 ? 10 : 30;
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(operation->tensors[i].ranks.size(), 1u);
      EXPECT_EQ(operation->tensors[i].ranks[0].input, input_of(part, first_ticket + i));
    }
  }
  // The rank has joined, and gives nothing.
  const auto operation = parts.build(launch_of_node_a(), 1, find()).value();
  EXPECT_EQ(operation->elements(), 10);
  for (const OperationTensor& tensor : operation->tensors) EXPECT_TRUE(tensor.ranks.empty());
}

TEST_F(DataPartsTest, OfAProcessSetOnlyItsRanksAreMembers) {
  const core::Layout set = two_nodes().subset({Rank{2}, Rank{4}});
  const DataParts parts(core::Reducer::kDevice, set, NodeIndex{1});
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_THAT(parts.ring(), ElementsAre(NodeIndex{0}, NodeIndex{1}));
  EXPECT_EQ(parts.place(0), NodeIndex{1});
}

}  // namespace
}  // namespace rueda::engine
