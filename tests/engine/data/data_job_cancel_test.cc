// Tests L3 and L7 on the data plane: operations of a plan that some nodes have launched are
// cancelled, their numbers come again in a new generation, and frames of the old one are on the
// way. Every interleaving is drawn from a seed.

#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/fake_gpu_adder.h"
#include "tests/engine/ring.h"
#include "tests/support/scale.h"

namespace rueda::engine::testing {
namespace {

class Cancelling {
 public:
  // With an algorithm, another process adds; otherwise the seed says how the job is set up.
  explicit Cancelling(uint64_t seed, std::optional<core::AlgorithmChoice> algorithm = {})
      : random_(seed) {
    options_.ranks_per_node.assign(static_cast<size_t>(draw(2, 4)), 1);
    options_.ranks_per_node[0] = draw(1, 2);
    if (draw(0, 1) == 1) options_.policy = core::DeathPolicy::kShrink;
    options_.algorithm = static_cast<core::AlgorithmChoice>(draw(0, 6));
    options_.shares_staging = draw(0, 1) == 1;
    if (algorithm) {
      options_.policy = core::DeathPolicy::kFail;
      options_.algorithm = *algorithm;
      options_.shares_staging = true;
    }
    ring_ = std::make_unique<Ring>(options_);
    nodes_.resize(options_.ranks_per_node.size());
  }

  // Adds operations that every node launches.
  void whole_round() {
    for (int i = draw(1, 4); i > 0; --i) {
      OperationFixture* work = plan(next_++, false);
      for (Node& node : nodes_) node.todo.push_back({work, {}, generation_, false});
      wanted_.push_back(work);
    }
  }

  // Adds operations of a plan. Each node launches at least the first `m`, and no node launches more
  // than one further; then the lock is undone.
  void cancelled_round() {
    ++generation_;
    const int count = draw(1, 4);
    const int m = draw(0, count - 1);
    const size_t slowest = static_cast<size_t>(draw(0, static_cast<int>(nodes_.size()) - 1));
    std::vector<OperationFixture*> works;
    for (int i = 0; i < count; ++i) works.push_back(plan(next_ + static_cast<uint64_t>(i), true));
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int launched = i == slowest ? m : draw(m, count);
      for (int j = 0; j < launched; ++j) {
        nodes_[i].todo.push_back({works[static_cast<size_t>(j)], {}, generation_, true});
      }
    }
    next_ += static_cast<uint64_t>(m);
    ++generation_;
    for (Node& node : nodes_) node.todo.push_back({nullptr, {Seq{next_}, generation_}, 0, false});
    for (int i = 0; i < count; ++i) {
      OperationFixture* work = works[static_cast<size_t>(i)];
      if (i < m) {
        wanted_.push_back(work);
      } else {
        cancelled_.emplace_back(work, outputs_of(*work));
      }
    }
  }

  void run() {
    // Turns in which nothing happens are possible, but not this many in a row.
    for (int idle = 0; !is_over() && idle < 10'000; ++idle) {
      for (int i = draw(0, 3); i > 0; --i) act(static_cast<size_t>(draw(0, ring_->size() - 1)));
      for (int i = draw(0, 8); i > 0; --i) {
        if (ring_->poll()) idle = 0;
      }
    }
    ASSERT_TRUE(is_over()) << "it hangs";
    ring_->settle();
    EXPECT_EQ(ring_->check(), "");
    for (int i = 0; i < ring_->size(); ++i) {
      EXPECT_EQ(ring_->node(i).job->unstable_bytes(core::Track::kLockable), 0)
          << "what is held of a cancelled operation stays";
    }
    for (OperationFixture* work : wanted_)
      EXPECT_EQ(work->check(), "") << "operation " << work->seq().value;
    for (const auto& [work, before] : cancelled_) {
      EXPECT_EQ(outputs_of(*work), before) << "a cancelled operation wrote";
    }
  }

  size_t added_elsewhere() const { return elsewhere_.added(); }

 private:
  struct Action {
    OperationFixture* work;  // the operation to launch; null: a cancel
    core::Cancel cancel;
    uint32_t generation;
    bool locked;
  };
  struct Node {
    std::vector<Action> todo;
    size_t next = 0;
    std::set<uint64_t> under_way;
    size_t seen_done = 0;
  };

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  OperationFixture* plan(uint64_t seq, bool in_place) {
    OperationSpec spec;
    spec.sizes = {draw(0, 5000), draw(1, 3)};
    spec.plan_hash = random_();
    spec.in_place = in_place;
    const bool has_adasum = options_.policy == core::DeathPolicy::kFail;
    if (has_adasum && draw(0, 2) == 0) spec.op = ReduceOp::kAdasum;
    works_.push_back(std::make_unique<OperationFixture>(spec, options_.ranks_per_node, Seq{seq}));
    return works_.back().get();
  }

  static std::vector<Bytes> outputs_of(const OperationFixture& work) {
    std::vector<Bytes> outputs;
    for (int rank = 0; rank < work.ranks(); ++rank) outputs.push_back(work.output(Rank{rank}));
    return outputs;
  }

  void note_done(size_t index) {
    Node& node = nodes_[index];
    const std::vector<Seq>& done = ring_->node(static_cast<int>(index)).done;
    for (; node.seen_done < done.size(); ++node.seen_done) {
      const uint64_t seq = done[node.seen_done].value;
      EXPECT_EQ(node.under_way.erase(seq), 1u)
          << "operation " << seq << " ended, and was not there";
    }
  }

  // Additions end in any order.
  void add_one() {
    elsewhere_.add(static_cast<size_t>(draw(0, static_cast<int>(elsewhere_.waiting()) - 1)));
  }

  // Makes the node's next launch, if core's window lets it, or its cancel.
  void act(size_t index) {
    note_done(index);
    if (elsewhere_.waiting() > 0 && draw(0, 2) == 0) add_one();
    Node& node = nodes_[index];
    if (node.next == node.todo.size()) return;
    const Action& action = node.todo[node.next];
    DataJob& job = *ring_->node(static_cast<int>(index)).job;
    if (!action.work) {
      job.cancel(action.cancel);
      node.under_way.erase(node.under_way.lower_bound(action.cancel.first.value),
                           node.under_way.end());
    } else {
      const uint64_t seq = action.work->seq().value;
      const auto lanes = static_cast<uint64_t>(options_.lanes);
      if (!node.under_way.empty() && seq >= *node.under_way.begin() + lanes) return;
      auto operation = action.work->operation(NodeIndex{static_cast<int>(index)});
      operation->generation = action.generation;
      operation->locked = action.locked;
      if (options_.shares_staging && operation->op != ReduceOp::kAdasum && draw(0, 2) > 0) {
        elsewhere_.take_over(*operation,
                             action.work->operation(NodeIndex{static_cast<int>(index)}));
      }
      job.run(std::move(operation));
      node.under_way.insert(seq);
    }
    ++node.next;
  }

  bool is_over() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      note_done(i);
      if (nodes_[i].next != nodes_[i].todo.size() || !nodes_[i].under_way.empty()) return false;
    }
    return true;
  }

  std::mt19937_64 random_;
  RingOptions options_;
  std::vector<std::unique_ptr<OperationFixture>>
      works_;               // outlive the ring, which may still read them
  FakeGpuAdder elsewhere_;  // outlives the ring, too
  std::unique_ptr<Ring> ring_;
  std::vector<Node> nodes_;
  std::vector<OperationFixture*> wanted_;
  std::vector<std::pair<OperationFixture*, std::vector<Bytes>>> cancelled_;
  uint64_t next_ = 1;
  uint32_t generation_ = 0;
};

TEST(DataJobCancel, CancelledOperationsWriteNothingAndTheirNumbersComeAgain) {
  const uint64_t seeds = testing_support::scaled(100, 12);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    Cancelling story(seed);
    for (int round = 0; round < 6; ++round) {
      if (round % 2 == 1 || seed % 3 == 0) {
        story.cancelled_round();
      } else {
        story.whole_round();
      }
    }
    story.whole_round();
    story.run();
    if (::testing::Test::HasFailure()) return;
  }
}

// The slots with a cancelled operation's frames are given back. Otherwise the lane, which this many
// cancels use again and again, would stand still.
TEST(DataJobCancel, NoCreditLeaks) {
  Cancelling story(4711);
  const uint64_t rounds = testing_support::scaled(200, 80);
  for (uint64_t round = 0; round < rounds; ++round) story.cancelled_round();
  story.whole_round();
  story.run();
}

// Slots and work buffers of an exchange stay taken while they are added up elsewhere, and no
// longer.
TEST(DataJobCancel, WhatIsAddedUpElsewhereIsGivenBackAfterACancel) {
  for (const auto algorithm :
       {core::AlgorithmChoice::kHalvingDoubling, core::AlgorithmChoice::kDirect}) {
    Cancelling story(815, algorithm);
    const uint64_t rounds = testing_support::scaled(100, 40);
    for (uint64_t round = 0; round < rounds; ++round) story.cancelled_round();
    story.whole_round();
    story.run();
    EXPECT_GT(story.added_elsewhere(), 50u);
  }
}

// A node waits without a deadline for an application that has not launched its part.
TEST(DataJobCancel, AnOperationOfAPlanWaitsForTheOthersApplications) {
  RingOptions options;
  options.timeout_ms = 100;
  Ring ring(options);
  OperationFixture work({.sizes = {1000}}, options.ranks_per_node, Seq{1});
  const auto launch = [&](int node) {
    auto operation = work.operation(NodeIndex{node});
    operation->generation = 1;
    operation->locked = true;
    ring.node(node).job->run(std::move(operation));
  };
  launch(0);
  const TicksMs until = steady_now_ms() + 5 * options.timeout_ms;
  ring.run_until([&] { return steady_now_ms() > until; });
  EXPECT_EQ(ring.node(0).lost.size(), 0u);
  launch(1);
  EXPECT_TRUE(
      ring.run_until([&] { return ring.node(0).done.size() + ring.node(1).done.size() == 2; }));
  EXPECT_EQ(work.check(), "");
}

}  // namespace
}  // namespace rueda::engine::testing
