#include "daemon/engine/operation/build_operation.h"

#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/reduce/kernels.h"
#include "daemon/session/memory/arena.h"

namespace rueda::engine {
namespace {

// Returns ranks 0, 2 and 3 on node a, and 1 and 4 on node b.
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

struct Item {
  core::DescriptorPtr tensor;
  std::vector<std::optional<Ticket>> tickets;  // by local rank
};

core::Launch launch_of(const std::vector<Item>& items) {
  core::Launch launch;
  std::vector<core::LaunchTensor> tensors;
  for (const Item& item : items) {
    tensors.push_back({item.tensor, item.tensor->elements()});
    launch.tickets.insert(launch.tickets.end(), item.tickets.begin(), item.tickets.end());
  }
  launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(std::move(tensors));
  return launch;
}

class BuildOperationTest : public ::testing::Test {
 protected:
  // Returns a submission. Buffers are told apart by their addresses, which nobody reads, so a test
  // may claim that they are longer.
  SubmittedBuffers& submission(int local_rank, uint64_t ticket) {
    SubmittedBuffers& made = submissions_[{local_rank, ticket}];
    made.input = &memory_[static_cast<size_t>(local_rank) * 100 + ticket * 2];
    made.output = &memory_[static_cast<size_t>(local_rank) * 100 + ticket * 2 + 1];
    made.input_bytes = made.output_bytes = 1'000;
    return made;
  }
  FindSubmission find() {
    return [this](LocalRank rank, Ticket ticket) -> const SubmittedBuffers& {
      return submissions_.at({rank.value, ticket.value});
    };
  }

  std::array<std::byte, 1000> memory_{};
  std::map<std::pair<int, uint64_t>, SubmittedBuffers> submissions_;
};

TEST_F(BuildOperationTest, PutsTheTensorsOfABatchInARow) {
  core::TensorDescriptor as;
  as.dtype = DType::kFloat64;
  as.op = ReduceOp::kMax;
  as.prescale = 0.5;
  as.postscale = 3.0;
  core::Launch launch = launch_of({{tensor("x", {2, 3}, as), {Ticket{1}, Ticket{11}}},
                                   {tensor("y", {0}, as), {Ticket{2}, Ticket{12}}},
                                   {tensor("z", {}, as), {Ticket{3}, Ticket{13}}}});
  launch.epoch = Epoch{4};
  launch.seq = Seq{9};
  launch.plan_hash = 77;
  for (const uint64_t ticket : {1u, 2u, 3u}) {
    submission(0, ticket);
    submission(1, ticket + 10);
  }
  submission(0, 3).urgency = {5, 3};
  submission(1, 12).urgency = {5, 12};
  submission(1, 13).urgency = {0, 13};
  const auto operation = build_operation(launch, layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->urgency, (SendPriority{5, 12})) << "that of its most urgent tensor";
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
      const SubmittedBuffers& from = submission(rank, t + 1 + static_cast<size_t>(rank) * 10);
      const RankBuffers& buffers = operation->tensors[t].ranks[static_cast<size_t>(rank)];
      EXPECT_EQ(buffers.input, from.input);
      EXPECT_EQ(buffers.output, from.output);
    }
  }
  EXPECT_TRUE(operation->arenas.empty());
}

// The sum of five ranks does not fit into float16, and their average does: -60000, 60000 and so on.
TEST_F(BuildOperationTest, AnAverageOfHalvesBetweenNodesDoesNotOverflow) {
  const auto half_of = [](float value) {
    const float source = value;
    uint16_t half = 0;
    const void* const sources[] = {&source};
    reduce::reduce({.dtype = DType::kFloat32,
                    .sum_dtype = DType::kFloat16,
                    .dst = &half,
                    .sources = sources,
                    .count = 1});
    return half;
  };
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const float value : {60'000.0F, -60'000.0F, 0.25F}) {
      core::TensorDescriptor as;
      as.dtype = dtype;
      as.op = ReduceOp::kAverage;
      if (dtype == DType::kFloat32) as.wire_dtype = WireDType::kFloat16;
      const core::DescriptorPtr gradient = tensor("g", {1}, as);
      std::array<float, 3> singles{};
      std::array<uint16_t, 3> halves{};
      float single_output = 0;
      uint16_t half_output = 0;
      for (int rank = 0; rank < 3; ++rank) {
        singles[static_cast<size_t>(rank)] = value;
        halves[static_cast<size_t>(rank)] = half_of(value);
        SubmittedBuffers& buffers = submission(rank, 1);
        const bool is_half = dtype == DType::kFloat16;
        const auto at = static_cast<size_t>(rank);
        buffers.input = reinterpret_cast<std::byte*>(is_half ? static_cast<void*>(&halves[at])
                                                             : static_cast<void*>(&singles[at]));
        buffers.output = reinterpret_cast<std::byte*>(is_half ? static_cast<void*>(&half_output)
                                                              : static_cast<void*>(&single_output));
      }
      const auto on_a = build_operation(launch_of({{gradient, {Ticket{1}, Ticket{1}, Ticket{1}}}}),
                                        layout(), NodeIndex{0}, find())
                            .value();
      const auto on_b = build_operation(launch_of({{gradient, {Ticket{1}, Ticket{1}}}}), layout(),
                                        NodeIndex{1}, find())
                            .value();
      OperationKernels kernels;
      uint16_t sum = 0;
      auto* const bytes = reinterpret_cast<std::byte*>(&sum);
      kernels.reduce_local(*on_a, {0, 1}, nullptr, false, bytes);
      kernels.reduce_local(*on_b, {0, 1}, bytes, true, bytes);
      EXPECT_EQ(sum, half_of(value)) << value;
    }
  }
}

TEST_F(BuildOperationTest, OnlyAveragesOfHalvesHaveHeadroom) {
  const auto scales_of = [&](DType dtype, ReduceOp op) {
    core::TensorDescriptor as;
    as.dtype = dtype;
    as.op = op;
    as.prescale = 3;
    submission(0, 1);
    const auto operation = build_operation(launch_of({{tensor("g", {1}, as), {Ticket{1}, {}, {}}}}),
                                           layout(), NodeIndex{0}, find())
                               .value();
    return std::pair(operation->prescale, operation->postscale);
  };
  EXPECT_EQ(scales_of(DType::kFloat16, ReduceOp::kAverage), std::pair(3.0 / 8, 8.0));
  EXPECT_EQ(scales_of(DType::kFloat16, ReduceOp::kSum), std::pair(3.0, 1.0));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt32}) {
    EXPECT_EQ(scales_of(dtype, ReduceOp::kAverage), std::pair(3.0, 1.0));
  }
}

TEST_F(BuildOperationTest, AnAverageDividesByAllRanksOfTheJob) {
  const core::Launch launch = launch_of({{tensor("x", {4}), {Ticket{1}}}});
  submission(0, 1);
  EXPECT_EQ(build_operation(launch, layout(), NodeIndex{0}, find()).value()->divisor, 5);
}

TEST_F(BuildOperationTest, RanksThatHaveJoinedHaveNoBuffers) {
  const core::Launch launch =
      launch_of({{tensor("x", {4}), {std::nullopt, Ticket{1}, std::nullopt}},
                 {tensor("y", {4}), {std::nullopt, std::nullopt, std::nullopt}}});
  submission(1, 1);
  const auto operation = build_operation(launch, layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->divisor, 5);
  ASSERT_EQ(operation->tensors.size(), 2u);
  ASSERT_EQ(operation->tensors[0].ranks.size(), 1u);
  EXPECT_EQ(operation->tensors[0].ranks[0].input, submission(1, 1).input);
  EXPECT_TRUE(operation->tensors[1].ranks.empty());
}

// An Adasum's tree is that of ranks and nodes, whatever the ring and whoever has joined. Its
// tensors stay apart, though these lie behind each other.
TEST_F(BuildOperationTest, AnAdasumKnowsItsTree) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAdasum;
  const core::Launch launch =
      launch_of({{tensor("x", {1}, as), {std::nullopt, Ticket{1}, std::nullopt}},
                 {tensor("y", {1}, as), {std::nullopt, Ticket{2}, std::nullopt}}});
  std::byte* const given = submission(1, 1).input;
  submissions_.at({1, 1}).output = given;
  SubmittedBuffers& behind = submission(1, 2);
  behind.input = behind.output = given + sizeof(float);
  core::Layout turned = layout();
  ASSERT_TRUE(turned.set_ring({NodeIndex{1}, NodeIndex{0}}).is_ok());
  const auto operation = build_operation(launch, turned, NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->tree, (std::vector<std::vector<size_t>>{{1}, {0}}));
  ASSERT_EQ(operation->tensors.size(), 2u);
  ASSERT_EQ(operation->tensors[0].ranks.size(), 3u);
  EXPECT_EQ(operation->tensors[0].ranks[0].input, nullptr);
  EXPECT_EQ(operation->tensors[0].ranks[1].input, given);
}

TEST_F(BuildOperationTest, ByDeviceRanksOfANodeMeetFirst) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAdasum;
  submission(0, 1);
  const core::Launch launch = launch_of({{tensor("x", {1}, as), {Ticket{1}}}});
  const auto operation = build_operation(launch, layout().by_rank(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->tree, (std::vector<std::vector<size_t>>{{0, 1, 2}, {3, 4}}));
}

TEST_F(BuildOperationTest, ABroadcastKnowsItsRootsNode) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  submission(0, 1);
  const std::vector<NodeIndex> nodes{NodeIndex{0}, NodeIndex{1}, NodeIndex{0}, NodeIndex{0},
                                     NodeIndex{1}};
  for (int root = 0; root < 5; ++root) {
    as.root = Rank{root};
    const core::Launch launch = launch_of({{tensor("x", {4}, as), {Ticket{1}}}});
    const auto operation = build_operation(launch, layout(), NodeIndex{0}, find()).value();
    EXPECT_EQ(operation->root_node, nodes[static_cast<size_t>(root)]) << "rank " << root;
    EXPECT_EQ(operation->divisor, 1);
  }
}

// Ranks 0, 2 and 3 are here, 1 and 4 on the other node; the parts have 1, 2, 0, 3 and 4 rows of two
// elements.
TEST_F(BuildOperationTest, PartsLieInTheOrderInWhichTheyTravel) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kAllgather;
  as.counts = {1, 2, 0, 3, 4};
  const core::Launch launch =
      launch_of({{tensor("x", {10, 2}, as), {Ticket{1}, Ticket{2}, Ticket{3}}}});
  for (int i = 0; i < 3; ++i) submission(i, static_cast<uint64_t>(i) + 1);
  const std::byte* given = submission(2, 3).input;
  std::byte* got = submission(1, 2).output;
  const auto operation = build_operation(launch, layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->first_element, (std::vector<int64_t>{0, 2, 8, 12, 20}));
  EXPECT_EQ(operation->rounds, (std::vector<std::vector<core::ElementRange>>{{{0, 8}, {8, 20}}}));
  // Rank 3's part is read from its own input, and written where every rank gets it.
  const OperationTensor& part = operation->tensors[1];
  ASSERT_EQ(part.ranks.size(), 3u);
  EXPECT_EQ(part.ranks[2].input, given);
  EXPECT_EQ(part.ranks[1].input, nullptr);
  EXPECT_EQ(part.ranks[1].output, got + 3 * 2 * sizeof(float));
  // Rank 4's part comes from the other node.
  EXPECT_EQ(operation->tensors[3].ranks[1].output, got + 6 * 2 * sizeof(float));
  EXPECT_EQ(operation->tensors[3].ranks[2].input, nullptr);
}

TEST_F(BuildOperationTest, ABarrierHasNoElements) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBarrier;
  submission(0, 1);
  const core::Launch launch = launch_of({{tensor("b", {}, as), {Ticket{1}}}});
  const auto operation = build_operation(launch, layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->elements(), 0);
  EXPECT_EQ(operation->kind, CollectiveKind::kBarrier);
}

TEST_F(BuildOperationTest, EachArenaIsHeldOnce) {
  constexpr uint64_t kBytes = 4096;
  session::ArenaTable arenas(std::make_shared<session::ArenaTotals>());
  const auto add = [&] {
    UniqueFd memory(::memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memory.get(), kBytes), 0);
    EXPECT_EQ(::fallocate(memory.get(), 0, 0, kBytes), 0);
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return arenas.find(
        arenas.add(session::ArenaTable::map(memory.get(), kBytes, {}).value()).value());
  };
  const auto a = add();
  const auto b = add();
  std::vector<Item> items;
  for (uint64_t ticket = 1; ticket <= 20; ++ticket) {
    SubmittedBuffers& made = submission(0, ticket);
    made.input_arena = ticket % 2 ? a.get() : b.get();
    made.output_arena = a.get();
    items.push_back({tensor("t" + std::to_string(ticket), {1}), {Ticket{ticket}}});
  }
  const long held_before = a.use_count();
  const auto operation = build_operation(launch_of(items), layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->arenas.size(), 2u);
  EXPECT_EQ(a.use_count(), held_before + 1);
}

// Tests the last check before memory is touched: a batch stays within the buffers that were
// submitted.
class BuildOperationBoundsTest : public BuildOperationTest {
 protected:
  // Returns the refusal of a batch of one rank of node 0, which is rank 0, with buffers of so many
  // bytes.
  std::string refusal(const std::vector<core::DescriptorPtr>& tensors, size_t input_bytes,
                      size_t output_bytes, bool is_locked = false) {
    std::vector<Item> items;
    for (uint64_t ticket = 1; ticket <= tensors.size(); ++ticket) {
      SubmittedBuffers& made = submission(0, ticket);
      made.input_bytes = input_bytes;
      made.output_bytes = output_bytes;
      if (input_bytes == 0) made.input = nullptr;
      if (output_bytes == 0) made.output = nullptr;
      items.push_back({tensors[ticket - 1], {Ticket{ticket}}});
    }
    core::Launch launch = launch_of(items);
    launch.seq = Seq{7};
    launch.locked = is_locked;
    const auto operation = build_operation(launch, layout(), NodeIndex{0}, find());
    return operation.is_ok() ? std::string() : operation.status().message();
  }
  static core::DescriptorPtr of_kind(CollectiveKind kind, int root = -1) {
    core::TensorDescriptor as;
    as.kind = kind;
    as.op = ReduceOp::kSum;
    as.root = Rank{root};
    return tensor("x", {10}, as);
  }
};

TEST_F(BuildOperationBoundsTest, ABufferIsAsLongAsTheOperationAsksFor) {
  const auto x = tensor("x", {10});
  EXPECT_EQ(refusal({x}, 40, 40), "");
  const std::string begin = "operation 7 cannot be carried out here: tensor \"x\" ";
  EXPECT_EQ(refusal({x}, 39, 40),
            begin + "has 40 bytes, and a rank has given an input of 39 and an output of 40");
  EXPECT_EQ(refusal({x}, 40, 39),
            begin + "has 40 bytes, and a rank has given an input of 40 and an output of 39");
  EXPECT_NE(refusal({x}, 0, 40), "");
  EXPECT_NE(refusal({x}, 40, 0), "");
}

// The second tensor's bytes were once taken for int64, by a plan or without one.
TEST_F(BuildOperationBoundsTest, TheFirstTensorsDtypeIsNotTheOthers) {
  core::TensorDescriptor as;
  as.dtype = DType::kInt64;
  const auto wide = tensor("a", {10}, as);
  as.dtype = DType::kUInt8;
  const auto narrow = tensor("b", {80}, as);
  EXPECT_EQ(refusal({wide, narrow}, 80, 80),
            "operation 7 cannot be carried out here: it has tensors \"a\" and \"b\", which are not "
            "alike");
  EXPECT_EQ(
      refusal({wide, narrow}, 80, 80, true),
      "operation 7 cannot be carried out here: tensor \"b\" has 640 bytes, and a rank has given "
      "an input of 80 and an output of 80");
}

TEST_F(BuildOperationBoundsTest, ARootGivesAndGets) {
  EXPECT_EQ(refusal({of_kind(CollectiveKind::kBroadcast, 0)}, 40, 40), "");
  EXPECT_THAT(refusal({of_kind(CollectiveKind::kBroadcast, 0)}, 0, 40),
              testing::EndsWith("lacks what its root gives"));
  EXPECT_EQ(refusal({of_kind(CollectiveKind::kBroadcast, 4)}, 0, 40), "");
  EXPECT_THAT(refusal({of_kind(CollectiveKind::kReduce, 0)}, 40, 0),
              testing::EndsWith("has no place at its root"));
  EXPECT_EQ(refusal({of_kind(CollectiveKind::kReduce, 4)}, 40, 0), "");
  for (const int root : {-1, 5, 1 << 30}) {
    EXPECT_THAT(refusal({of_kind(CollectiveKind::kBroadcast, root)}, 40, 40),
                testing::HasSubstr("with root rank " + std::to_string(root)));
  }
}

TEST_F(BuildOperationBoundsTest, APartGoesNoFurtherThanItsBuffer) {
  const core::Layout two = core::Layout::make({{"a", {}, {Rank{0}}}, {"b", {}, {Rank{1}}}}).value();
  for (const CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kReduceScatter, CollectiveKind::kAlltoall}) {
    const auto parted = tensor("x", {8}, *of_kind(kind));
    const Extent extent = extent_of(parted->parted(), 0, 2, false);
    for (const int64_t missing : {0, 1}) {
      for (const bool is_input : {false, true}) {
        SubmittedBuffers& made = submission(0, 1);
        made.input_bytes = static_cast<size_t>(extent.input * 4 - (is_input ? missing : 0));
        made.output_bytes = static_cast<size_t>(extent.output * 4 - (is_input ? 0 : missing));
        const auto operation =
            build_operation(launch_of({{parted, {Ticket{1}}}}), two, NodeIndex{0}, find());
        EXPECT_EQ(operation.is_ok(), missing == 0) << to_string(kind) << is_input;
        if (missing == 0) continue;
        EXPECT_THAT(operation.status().message(), testing::HasSubstr("of what rank 0 has given"));
      }
    }
    core::Launch joined = launch_of({{parted, {std::nullopt}}});
    EXPECT_THAT(build_operation(joined, two, NodeIndex{0}, find()).status().message(),
                testing::EndsWith("lacks the part of a rank"));
  }
}

class NeighboursTest : public BuildOperationTest {
 protected:
  // Adds tensors of four bytes an element, for two ranks.
  void add(std::vector<int64_t> shape, size_t input_of_0, size_t output_of_0,
           size_t in_place_of_1) {
    const uint64_t ticket = items_.size() + 1;
    SubmittedBuffers& of_0 = submission(0, ticket);
    of_0.input = &memory_[input_of_0];
    of_0.output = &memory_[output_of_0];
    SubmittedBuffers& of_1 = submission(1, ticket);
    of_1.input = of_1.output = &memory_[in_place_of_1];
    items_.push_back(
        {tensor(std::to_string(ticket), std::move(shape)), {Ticket{ticket}, Ticket{ticket}}});
  }
  std::vector<int64_t> elements() {
    const auto operation =
        build_operation(launch_of(items_), layout(), NodeIndex{0}, find()).value();
    std::vector<int64_t> found;
    for (const OperationTensor& item : operation->tensors) found.push_back(item.elements);
    return found;
  }

  std::vector<Item> items_;
};

TEST_F(NeighboursTest, BecomeOne) {
  add({2}, 0, 100, 200);
  add({3, 2}, 8, 108, 208);
  add({}, 32, 132, 232);
  EXPECT_EQ(elements(), (std::vector<int64_t>{9}));
  const auto operation = build_operation(launch_of(items_), layout(), NodeIndex{0}, find()).value();
  EXPECT_EQ(operation->first_element, (std::vector<int64_t>{0, 9}));
  EXPECT_EQ(operation->tensors[0].ranks[0].output, &memory_[100]);
  EXPECT_EQ(operation->tensors[0].ranks[1].input, &memory_[200]);
}

TEST_F(NeighboursTest, OnlyIfTheyAreOnEveryRankAndBothSides) {
  add({2}, 0, 100, 200);
  add({2}, 8, 108, 212);   // is apart from the one before on rank 1
  add({2}, 16, 120, 220);  // is apart in the output of rank 0
  add({2}, 28, 128, 228);  // is apart in the input of rank 0
  add({2}, 36, 136, 236);
  add({2}, 28, 128, 228);  // does not lie behind itself
  EXPECT_EQ(elements(), (std::vector<int64_t>{2, 2, 2, 4, 2}));
}

TEST_F(NeighboursTest, NothingHasNone) {
  add({0}, 0, 100, 200);
  add({2}, 0, 100, 200);
  add({0}, 8, 108, 208);
  add({2}, 8, 108, 208);
  EXPECT_EQ(elements(), (std::vector<int64_t>{0, 4}));
}

}  // namespace
}  // namespace rueda::engine
