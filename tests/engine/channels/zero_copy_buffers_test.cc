// Tests sending from a rank's arena without a copy, as one ZeroCopyBuffers and in whole rings.
#include "daemon/engine/channels/zero_copy_buffers.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/session/memory/arena.h"
#include "daemon/session/memory/sigbus_guard.h"
#include "tests/engine/loop_ring.h"
#include "tests/engine/ring.h"
#include "tests/support/scale.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine {
namespace {

using testing::LoopRing;
using testing::OperationFixture;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;

constexpr size_t kChunkBytes = 256 << 10;  // less goes at once than is lent at once

// An arena whose file the test can take away, because it is not sealed; a client's arena must be.
struct TestArena {
  explicit TestArena(size_t bytes) : file(::memfd_create("arena", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    auto mapping = session::Mapping::map(file.get(), bytes, "a test's arena");
    EXPECT_TRUE(mapping.is_ok());
    arena = std::make_shared<session::Arena>(
        session::ArenaMemory{std::move(mapping).value(), {}, {}}, Principal::user(::getuid()),
        std::make_shared<session::ArenaTotals>());
  }
  void vanish() { EXPECT_EQ(::ftruncate(file.get(), 0), 0); }

  UniqueFd file;
  std::shared_ptr<session::Arena> arena;
};

class ZeroCopyBuffersTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(session::install_sigbus_guard().is_ok()); }

  static constexpr int64_t kElements = 64 << 10;

  // Makes an operation of two tensors with a gap between them, of which the rank gives everything.
  Operation operation(int givers = 1) {
    Operation made;
    made.first_element = {0};
    std::byte* at = memory_.arena->data();
    for (int tensor = 0; tensor < 2; ++tensor) {
      std::vector<RankBuffers> ranks(static_cast<size_t>(givers), {at, at});
      ranks.push_back({nullptr, at});
      made.add(kElements, ranks);
      at += kElements * 4 + 64;
    }
    made.arenas = {memory_.arena};
    return made;
  }
  bool is_lent(const Operation& operation, core::ElementRange range) {
    const bool is = lent_.to_send(operation, range, 0).has_value();
    lent_.give_back(0);
    return is;
  }

  boost::asio::io_context io_;
  std::unique_ptr<transport::Transport> transport_ =
      transport::make_mem_transport(io_, transport::make_mem_network());
  TestArena memory_{4 * kElements * 4};
  ZeroCopyBuffers lent_{*transport_, 4};
};

TEST_F(ZeroCopyBuffersTest, ARangeInOnePieceIsSentFromWhereItIs) {
  const Operation made = operation();
  const auto buffer = lent_.to_send(made, {100, 20'100}, 3);
  ASSERT_TRUE(buffer.has_value());
  EXPECT_EQ(buffer->data, made.tensors[0].ranks[0].input + 400);
  EXPECT_EQ(buffer->bytes, 80'000u);
  const auto second = lent_.to_send(made, {kElements + 7, 2 * kElements}, 2);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->data, made.tensors[1].ranks[0].input + 28);
  EXPECT_EQ(second->region, buffer->region) << "an arena is registered once";
}

TEST_F(ZeroCopyBuffersTest, WhatIsNotAsItGoesIsCopied) {
  constexpr core::ElementRange kWhole{0, kElements};
  EXPECT_TRUE(is_lent(operation(), kWhole));
  EXPECT_FALSE(is_lent(operation(), {kElements - 20'000, kElements + 20'000})) << "two places";
  EXPECT_FALSE(is_lent(operation(), {0, 1'000})) << "a copy of little costs nothing";
  EXPECT_FALSE(is_lent(operation(2), kWhole)) << "two ranks: their sum is sent";
  EXPECT_FALSE(is_lent(operation(0), kWhole)) << "no rank";
  Operation scaled = operation();
  scaled.prescale = 0.5;
  EXPECT_FALSE(is_lent(scaled, kWhole));
  Operation rounded = operation();
  rounded.wire_dtype = WireDType::kBFloat16;
  EXPECT_FALSE(is_lent(rounded, kWhole));
  Operation truths = operation();
  truths.dtype = DType::kBool;
  EXPECT_FALSE(is_lent(truths, kWhole)) << "any value but 0 is true, and goes as 1";
  Operation foreign = operation();
  foreign.arenas.clear();
  EXPECT_FALSE(is_lent(foreign, kWhole)) << "nobody keeps it mapped";
}

TEST_F(ZeroCopyBuffersTest, TheOnlyOutputIsReceivedInto) {
  Operation made = operation();
  made.tensors[0].ranks.pop_back();
  made.prescale = 0.5;  // was applied before
  EXPECT_EQ(lent_.to_receive(made, {100, 20'100}, 1), made.tensors[0].ranks[0].output + 400);
  EXPECT_EQ(lent_.to_receive(made, {100, 20'100}, 1), nullptr) << "a peer that sends it twice";
  EXPECT_TRUE(lent_.give_back(1));
  EXPECT_FALSE(lent_.give_back(1)) << "it was";
  EXPECT_EQ(lent_.to_receive(made, {kElements, 2 * kElements}, 1), nullptr) << "two ranks get it";
  made.tensors[1].ranks.clear();
  EXPECT_EQ(lent_.to_receive(made, {kElements, 2 * kElements}, 1), nullptr) << "nobody gets it";
  made.wire_dtype = WireDType::kBFloat16;
  EXPECT_EQ(lent_.to_receive(made, {100, 20'100}, 1), nullptr) << "it is widened";
}

TEST_F(ZeroCopyBuffersTest, AnArenaStaysMappedUntilItsFrameIsSent) {
  std::weak_ptr<session::Arena> arena = memory_.arena;
  {
    const Operation made = operation();
    ASSERT_TRUE(lent_.to_send(made, {0, kElements}, 1).has_value());
  }
  memory_.arena.reset();
  EXPECT_FALSE(arena.expired());
  lent_.give_back(1);
  EXPECT_TRUE(arena.expired()) << "what is registered is not held";
}

TEST_F(ZeroCopyBuffersTest, AnArenaThatCameLaterIsRegisteredAnew) {
  const auto first = lent_.to_send(operation(), {0, kElements}, 1);
  ASSERT_TRUE(first.has_value());
  lent_.give_back(1);
  memory_.arena.reset();
  memory_ = TestArena(4 * kElements * 4);
  const auto second = lent_.to_send(operation(), {0, kElements}, 1);
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->region == first->region);
}

TEST_F(ZeroCopyBuffersTest, MemoryThatIsGoneIsNoticedWhenItIsLent) {
  const Operation made = operation();
  memory_.vanish();
  (void)lent_.to_send(made, {0, kElements}, 1);
  EXPECT_TRUE(made.has_lost_memory());
}

TEST_F(ZeroCopyBuffersTest, MemoryThatIsGoneSinceIsNoticedWhenTouched) {
  const Operation made = operation();
  ASSERT_TRUE(lent_.to_send(made, {0, kElements}, 1).has_value());
  memory_.vanish();
  EXPECT_FALSE(made.has_lost_memory());
  lent_.touch();
  EXPECT_TRUE(made.has_lost_memory());
}

// --- In whole rings

// Holds the operation of one node, with all inputs and outputs of its ranks in an arena.
class InArena {
 public:
  InArena(const OperationFixture& work, NodeIndex node)
      : memory_(1 << 25), operation_(work.operation(node)) {
    std::byte* at = memory_.arena->data();
    const auto size = static_cast<int64_t>(element_bytes(operation_->dtype));
    for (OperationTensor& tensor : operation_->tensors) {
      const auto bytes = static_cast<size_t>(tensor.elements * size);
      for (RankBuffers& rank : tensor.ranks) {
        const bool is_in_place = rank.input == rank.output;
        if (rank.input) {
          std::memcpy(at, rank.input, bytes);
          rank.input = at;
          at += bytes;
        }
        if (!rank.output) continue;
        std::byte* const output = is_in_place ? at - bytes : at;
        results_.push_back({rank.output, output, bytes});
        rank.output = output;
        at = output + bytes;
      }
    }
    operation_->arenas = {memory_.arena};
  }

  std::unique_ptr<Operation> take() { return std::move(operation_); }
  long holders() const { return memory_.arena.use_count(); }
  void vanish() { memory_.vanish(); }
  void drop() { memory_.arena.reset(); }
  // Does what a rank may do as soon as it is told that its operation is done: takes the results (to
  // where the work looks for them), and overwrites all of its memory.
  void use_again() {
    for (const Result& result : results_) std::memcpy(result.to, result.from, result.bytes);
    std::memset(memory_.arena->data(), 0x5A, memory_.arena->bytes());
  }

 private:
  struct Result {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  TestArena memory_;
  std::unique_ptr<Operation> operation_;
  std::vector<Result> results_;
};

RingOptions ring_of(std::vector<int> ranks_per_node) {
  RingOptions options;
  options.ranks_per_node = std::move(ranks_per_node);
  options.chunk_bytes = kChunkBytes;
  return options;
}

std::vector<OperationSpec> all_kinds_of_work(const std::vector<int>& ranks_per_node) {
  std::vector<OperationSpec> specs;
  for (const bool in_place : {false, true}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      specs.push_back({.op = op, .sizes = {500'003, 5, 0, 170'000}, .in_place = in_place});
    }
  }
  // The first values that come are not results.
  specs.push_back({.op = ReduceOp::kAdasum, .sizes = {300'003, 90'000}, .in_place = true});
  specs.push_back({.dtype = DType::kBFloat16, .sizes = {400'001}});
  specs.push_back({.sizes = {400'001}, .wire_dtype = WireDType::kBFloat16});
  specs.push_back({.dtype = DType::kBool, .sizes = {900'001}});
  specs.push_back({.kind = CollectiveKind::kBroadcast, .sizes = {500'000}, .in_place = true});
  for (const int root : {0, 1}) {
    specs.push_back({.kind = CollectiveKind::kReduce, .sizes = {900'000}, .root = Rank{root}});
  }
  for (const CollectiveKind kind : {CollectiveKind::kAllgather, CollectiveKind::kReduceScatter,
                                    CollectiveKind::kScatter, CollectiveKind::kGather}) {
    OperationSpec spec{.kind = kind, .sizes = {0}};
    for (const int ranks : ranks_per_node) {
      for (int i = 0; i < ranks; ++i) spec.counts.push_back(90'001 + i);
    }
    for (const int64_t count : spec.counts) spec.sizes.front() += count;
    specs.push_back(spec);
  }
  // Slow builds take every second shape, or fewer.
  const size_t kept = testing_support::scaled(specs.size(), 5);
  std::vector<OperationSpec> some;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i * kept / specs.size() != (i + 1) * kept / specs.size() || kept >= specs.size()) {
      some.push_back(specs[i]);
    }
  }
  return some;
}

class DataJobLent : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override { ASSERT_TRUE(session::install_sigbus_guard().is_ok()); }
};

TEST_P(DataJobLent, ResultsAreRight) {
  Ring ring(ring_of(GetParam()));
  for (const OperationSpec& spec : all_kinds_of_work(GetParam())) {
    const OperationFixture& work = ring.add(spec);
    std::vector<std::unique_ptr<InArena>> memory;
    for (int node = 0; node < ring.size(); ++node) {
      memory.push_back(std::make_unique<InArena>(work, NodeIndex{node}));
      ring.node(node).job->run(memory.back()->take());
    }
    std::vector<bool> is_done(memory.size());
    ASSERT_TRUE(ring.run_until([&] {
      for (size_t node = 0; node < memory.size(); ++node) {
        const bool is = ring.node(static_cast<int>(node)).done.size() == ring.works();
        if (is && !is_done[node]) memory[node]->use_again();
        is_done[node] = is;
      }
      return std::find(is_done.begin(), is_done.end(), false) == is_done.end();
    })) << "operation "
        << ring.works();
    EXPECT_EQ(work.check(), "");
    ring.settle();
    for (const auto& arena : memory) EXPECT_EQ(arena->holders(), 1) << "nothing is lent any more";
  }
}

// Over TCP, received values go straight into outputs, too.
TEST_P(DataJobLent, ResultsAreRightOverTcp) {
  for (const uint32_t streams : {1u, 3u}) {
    LoopRing ring(GetParam(), streams, kChunkBytes);
    ring.begin_epoch();
    uint64_t seq = 0;
    for (const OperationSpec& spec : all_kinds_of_work(GetParam())) {
      const OperationFixture work(spec, GetParam(), Seq{++seq});
      std::vector<std::unique_ptr<InArena>> memory;
      for (int node = 0; node < ring.size(); ++node) {
        memory.push_back(std::make_unique<InArena>(work, NodeIndex{node}));
        ring.loop(node).run("ring", Epoch{1}, 0, memory.back()->take());
      }
      ASSERT_EQ(ring.wait_for(seq), "");
      for (const auto& arena : memory) arena->use_again();
      EXPECT_EQ(work.check(), "");
    }
    EXPECT_TRUE(ring.end_epoch());
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DataJobLent,
                         ::testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                           std::vector<int>{1, 2, 1, 1}));

class LentInRing : public ZeroCopyBuffersTest {
 protected:
  // Launches an operation on node 0 of two, before anything has been sent.
  void begin() {
    ring_.settle();  // opens the channels
    const OperationFixture& work = ring_.add({.sizes = {2'000'000}});
    memory_of_0_ = std::make_unique<InArena>(work, NodeIndex{0});
    ring_.node(0).job->run(memory_of_0_->take());
  }

  Ring ring_{ring_of({1, 1})};
  std::unique_ptr<InArena> memory_of_0_;
};

TEST_F(LentInRing, ACancelledOperationIsSentFromMemoryThatIsThere) {
  begin();
  EXPECT_GT(memory_of_0_->holders(), 2) << "the operation, and what is lent";
  ring_.node(0).job->cancel({.first = Seq{1}, .generation = 2});
  EXPECT_GT(memory_of_0_->holders(), 1);
  memory_of_0_->drop();
  ring_.settle();
  EXPECT_TRUE(ring_.node(0).lost.empty());
}

TEST_F(LentInRing, MemoryThatIsGoneIsNotTakenForALostNode) {
  begin();
  memory_of_0_->vanish();
  ring_.node(1).job.reset();  // breaks a channel that sends from such memory
  ring_.settle();
  ASSERT_EQ(ring_.node(0).failed.size(), 1u);
  EXPECT_NE(ring_.node(0).failed[0].second.message().find("the memory of a rank on node n0"),
            std::string::npos)
      << ring_.node(0).failed[0].second.message();
}

}  // namespace
}  // namespace rueda::engine
