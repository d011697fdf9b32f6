#include "daemon/engine/build_operation.h"

#include <map>

#include <gtest/gtest.h>

#include "daemon/session/arena.h"

namespace rueda::engine {
namespace {

// Ranks 0, 2 and 3 on node a; 1 and 4 on node b.
core::Layout layout() {
  auto made = core::Layout::make(
      {{"a", "a:1", {Rank{0}, Rank{2}, Rank{3}}}, {"b", "b:1", {Rank{1}, Rank{4}}}});
  return std::move(made).value();
}

core::DescriptorPtr tensor(const std::string& name, std::vector<int64_t> shape,
                           core::TensorDescriptor as = {}) {
  as.name = name;
  as.shape = std::move(shape);
  return std::make_shared<core::TensorDescriptor>(std::move(as));
}

class BuildOperationTest : public ::testing::Test {
 protected:
  // Buffers are told apart by their addresses, which nobody reads.
  session::Submission& submission(int local_rank, uint64_t ticket) {
    session::Submission& made = submissions_[{local_rank, ticket}];
    made.ticket = Ticket{ticket};
    made.input.data = &memory_[static_cast<size_t>(local_rank) * 100 + ticket * 2];
    made.output.data = &memory_[static_cast<size_t>(local_rank) * 100 + ticket * 2 + 1];
    return made;
  }
  FindSubmission find() {
    return [this](LocalRank rank, Ticket ticket) -> const session::Submission& {
      return submissions_.at({rank.value, ticket.value});
    };
  }

  std::array<std::byte, 1000> memory_{};
  std::map<std::pair<int, uint64_t>, session::Submission> submissions_;
};

TEST_F(BuildOperationTest, PutsTheTensorsOfABatchInARow) {
  core::TensorDescriptor as;
  as.dtype = DType::kFloat64;
  as.op = ReduceOp::kMax;
  as.prescale = 0.5;
  as.postscale = 3.0;
  core::Launch launch;
  launch.epoch = Epoch{4};
  launch.seq = Seq{9};
  launch.plan_hash = 77;
  launch.tensors = {{tensor("x", {2, 3}, as), {Ticket{1}, Ticket{11}}},
                    {tensor("y", {0}, as), {Ticket{2}, Ticket{12}}},
                    {tensor("z", {}, as), {Ticket{3}, Ticket{13}}}};
  for (const uint64_t ticket : {1u, 2u, 3u}) {
    submission(0, ticket);
    submission(1, ticket + 10);
  }
  const auto operation = build_operation(launch, layout(), find());
  EXPECT_EQ(operation->epoch, Epoch{4});
  EXPECT_EQ(operation->seq, Seq{9});
  EXPECT_EQ(operation->plan_hash, 77u);
  EXPECT_EQ(operation->kind, CollectiveKind::kAllreduce);
  EXPECT_EQ(operation->dtype, DType::kFloat64);
  EXPECT_EQ(operation->op, ReduceOp::kMax);
  EXPECT_EQ(operation->prescale, 0.5);
  EXPECT_EQ(operation->postscale, 3.0);
  EXPECT_EQ(operation->divisor, 1);
  EXPECT_EQ(operation->first_element, (std::vector<int64_t>{0, 6, 6, 7}));
  EXPECT_EQ(operation->elements(), 7);
  EXPECT_EQ(operation->bytes(), 56);
  ASSERT_EQ(operation->tensors.size(), 3u);
  for (size_t t = 0; t < 3; ++t) {
    ASSERT_EQ(operation->tensors[t].ranks.size(), 2u);
    for (int rank = 0; rank < 2; ++rank) {
      const session::Submission& from = submission(rank, t + 1 + static_cast<size_t>(rank) * 10);
      const RankBuffers& buffers = operation->tensors[t].ranks[static_cast<size_t>(rank)];
      EXPECT_EQ(buffers.input, from.input.data);
      EXPECT_EQ(buffers.output, from.output.data);
    }
  }
  EXPECT_TRUE(operation->arenas.empty());
}

TEST_F(BuildOperationTest, AnAverageDividesByAllRanksOfTheJob) {
  core::Launch launch;
  launch.tensors = {{tensor("x", {4}), {Ticket{1}}}};
  submission(0, 1);
  EXPECT_EQ(build_operation(launch, layout(), find())->divisor, 5);
}

TEST_F(BuildOperationTest, ABroadcastKnowsItsRootsPlace) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  submission(0, 1);
  const std::vector<std::pair<NodeIndex, LocalRank>> places{{NodeIndex{0}, LocalRank{0}},
                                                            {NodeIndex{1}, LocalRank{0}},
                                                            {NodeIndex{0}, LocalRank{1}},
                                                            {NodeIndex{0}, LocalRank{2}},
                                                            {NodeIndex{1}, LocalRank{1}}};
  for (int root = 0; root < 5; ++root) {
    as.root = Rank{root};
    core::Launch launch;
    launch.tensors = {{tensor("x", {4}, as), {Ticket{1}}}};
    const auto operation = build_operation(launch, layout(), find());
    EXPECT_EQ(operation->root_node, places[static_cast<size_t>(root)].first) << "rank " << root;
    EXPECT_EQ(operation->root_local, places[static_cast<size_t>(root)].second) << "rank " << root;
    EXPECT_EQ(operation->divisor, 1);
  }
}

TEST_F(BuildOperationTest, ABarrierHasNoElements) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBarrier;
  submission(0, 1);
  core::Launch launch;
  launch.tensors = {{tensor("b", {}, as), {Ticket{1}}}};
  const auto operation = build_operation(launch, layout(), find());
  EXPECT_EQ(operation->elements(), 0);
  EXPECT_EQ(operation->kind, CollectiveKind::kBarrier);
}

// Arenas of no memory, told apart by their owners; who holds them is what matters.
TEST_F(BuildOperationTest, EachArenaIsHeldOnce) {
  const auto first = std::make_shared<int>(1);
  const auto second = std::make_shared<int>(2);
  const std::shared_ptr<session::Arena> a(first, reinterpret_cast<session::Arena*>(first.get()));
  const std::shared_ptr<session::Arena> b(second, reinterpret_cast<session::Arena*>(second.get()));
  core::Launch launch;
  for (uint64_t ticket = 1; ticket <= 20; ++ticket) {
    session::Submission& made = submission(0, ticket);
    made.input.arena = ticket % 2 ? a : b;
    made.output.arena = a;
    launch.tensors.push_back({tensor("t" + std::to_string(ticket), {1}), {Ticket{ticket}}});
  }
  const long held_before = first.use_count();
  const auto operation = build_operation(launch, layout(), find());
  EXPECT_EQ(operation->arenas.size(), 2u);
  EXPECT_EQ(first.use_count(), held_before + 1);
}

}  // namespace
}  // namespace rueda::engine
