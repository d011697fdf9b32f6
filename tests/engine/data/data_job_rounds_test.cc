// Tests operations whose inputs come round by round, while other rounds are on the network. Every
// interleaving is drawn from a seed.

#include <algorithm>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "tests/engine/fake_gpu_adder.h"
#include "tests/engine/ring.h"
#include "tests/support/scale.h"

namespace rueda::engine::testing {
namespace {

// Holds one operation's rounds on one node. Values that have not come are rubbish.
class Arrivals {
 public:
  Arrivals(OperationFixture& work, int node, std::vector<int64_t> ends, bool gives)
      : work_(work), rank_{node}, ends_(std::move(ends)), gives_(gives) {
    if (!gives_) return;
    const size_t bytes = row().size();
    given_.assign(row().begin(), row().end());
    std::memset(row().data(), 0xa5, bytes);
  }

  std::unique_ptr<Operation> operation(int nodes) const {
    std::unique_ptr<Operation> operation = work_.operation(NodeIndex{rank_.value});
    const int shards = core::shards_of(operation->kind, nodes);
    int64_t begin = 0;
    for (const int64_t end : ends_) {
      auto& parts = operation->rounds.emplace_back();
      for (int shard = 0; shard < shards; ++shard) {
        parts.push_back(core::nearly_equal_part({begin, end}, shard, shards));
      }
      begin = end;
    }
    operation->rounds_here = here_;
    return operation;
  }

  bool has_more() const { return here_->load() < static_cast<int>(ends_.size()); }
  void next_comes() {
    const auto round = static_cast<size_t>(here_->load());
    if (gives_) std::ranges::copy(part(given_, round), part(row(), round).begin());
    here_->fetch_add(1);
  }

  void note_done(int rounds) {
    EXPECT_GT(rounds, done_) << "told again";
    EXPECT_LT(rounds, static_cast<int>(ends_.size())) << "the last one is the operation's end";
    EXPECT_LE(rounds, here_->load()) << "done before it came";
    for (; done_ < rounds; ++done_) {
      const auto values = part(row(), static_cast<size_t>(done_));
      finals_.insert(finals_.end(), values.begin(), values.end());
    }
  }
  // Returns whether the values that were there when a round was reported as done have stayed.
  bool was_final() { return std::ranges::equal(finals_, row().first(finals_.size())); }
  int done() const { return done_; }

 private:
  std::span<std::byte> row() { return {work_.output_of(rank_, 0), work_.input_bytes(rank_, 0)}; }
  std::span<std::byte> part(std::span<std::byte> all, size_t round) const {
    const auto size = static_cast<int64_t>(element_bytes(work_.spec().dtype));
    const int64_t begin = round == 0 ? 0 : ends_[round - 1];
    return all.subspan(static_cast<size_t>(begin * size),
                       static_cast<size_t>((ends_[round] - begin) * size));
  }

  OperationFixture& work_;
  const Rank rank_;
  const std::vector<int64_t> ends_;
  const bool gives_;
  Bytes given_;
  Bytes finals_;
  int done_ = 0;
  std::shared_ptr<std::atomic<int>> here_ = std::make_shared<std::atomic<int>>(0);
};

class Rounds {
 public:
  explicit Rounds(uint64_t seed) : random_(seed) {
    options_.ranks_per_node.assign(static_cast<size_t>(draw(2, 4)), 1);
    options_.shares_staging = draw(0, 1) == 1;
    ring_ = std::make_unique<Ring>(options_);
    const int count = draw(1, 6);
    for (int i = 0; i < count; ++i) add(static_cast<uint64_t>(i + 1));
    launched_.resize(options_.ranks_per_node.size());
    for (int node = 0; node < ring_->size(); ++node) {
      ring_->node(node).on_rounds_done = [this, node](Seq seq, int rounds) {
        at(seq.value, node).note_done(rounds);
      };
    }
  }

  void run() {
    for (int idle = 0; !is_over() && idle < 20'000; ++idle) {
      act(draw(0, ring_->size() - 1));
      for (int i = draw(0, 8); i > 0; --i) {
        if (ring_->poll()) idle = 0;
      }
    }
    ASSERT_TRUE(is_over()) << "it hangs";
    EXPECT_EQ(ring_->check(), "");
    for (const auto& work : works_)
      EXPECT_EQ(work->check(), "") << "operation " << work->seq().value;
    for (auto& nodes : arrivals_) {
      for (auto& arrivals : nodes) {
        EXPECT_TRUE(arrivals->was_final()) << "a round was told to be done that was not";
        told_ += arrivals->done();
      }
    }
  }
  // Returns the number of rounds that were done before their operations.
  int told() const { return told_; }
  size_t added_elsewhere() const { return elsewhere_.added(); }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void add(uint64_t seq) {
    OperationSpec spec;
    spec.in_place = true;
    spec.dtype = draw(0, 1) == 0 ? DType::kFloat32 : DType::kInt64;
    if (spec.dtype == DType::kFloat32) spec.postscale = draw(1, 2);
    if (draw(0, 3) == 0) {
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = Rank{draw(0, ring_->size() - 1)};
    }
    const int64_t elements = draw(1, 40'000);
    spec.sizes = {elements};
    works_.push_back(std::make_unique<OperationFixture>(spec, options_.ranks_per_node, Seq{seq}));
    std::vector<int64_t> ends;
    for (int i = draw(0, 4); i > 0; --i) ends.push_back(draw(0, static_cast<int>(elements)));
    std::sort(ends.begin(), ends.end());
    ends.push_back(elements);
    auto& nodes = arrivals_.emplace_back();
    for (int node = 0; node < ring_->size(); ++node) {
      const bool gives = spec.kind == CollectiveKind::kAllreduce || spec.root.value == node;
      nodes.push_back(std::make_unique<Arrivals>(*works_.back(), node, ends, gives));
    }
  }

  Arrivals& at(uint64_t seq, int node) { return *arrivals_[seq - 1][static_cast<size_t>(node)]; }

  // Makes the node launch its next operation, or a round of some operation come, possibly before
  // the launch.
  void act(int node) {
    if (elsewhere_.waiting() > 0 && draw(0, 1) == 0) {
      return elsewhere_.add(
          static_cast<size_t>(draw(0, static_cast<int>(elsewhere_.waiting()) - 1)));
    }
    size_t& launched = launched_[static_cast<size_t>(node)];
    DataJob& job = *ring_->node(node).job;
    if (launched < works_.size() && has_room(node) && draw(0, 3) == 0) {
      Arrivals& arrivals = at(++launched, node);
      std::unique_ptr<Operation> operation = arrivals.operation(ring_->size());
      // Nodes need not behave alike.
      if (options_.shares_staging && draw(0, 2) > 0) {
        elsewhere_.take_over(*operation, arrivals.operation(ring_->size()));
      }
      job.run(std::move(operation));
      return;
    }
    const auto seq = static_cast<uint64_t>(draw(1, static_cast<int>(works_.size())));
    if (!at(seq, node).has_more()) return;
    at(seq, node).next_comes();
    job.rounds_came(Seq{seq});
  }

  // Checks core's window: a lane belongs to one operation.
  bool has_room(int node) {
    const std::vector<Seq>& done = ring_->node(node).done;
    uint64_t oldest = 1;  // the oldest operation that is not done
    while (std::ranges::count(done, Seq{oldest}) > 0) ++oldest;
    return launched_[static_cast<size_t>(node)] + 1 - oldest < static_cast<size_t>(options_.lanes);
  }

  bool is_over() {
    for (int node = 0; node < ring_->size(); ++node) {
      if (ring_->node(node).done.size() < works_.size()) return false;
    }
    return true;
  }

  std::mt19937_64 random_;
  RingOptions options_;
  FakeGpuAdder elsewhere_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<OperationFixture>> works_;
  std::vector<std::vector<std::unique_ptr<Arrivals>>> arrivals_;  // by operation, then node
  std::vector<size_t> launched_;                                  // number by node
  int told_ = 0;
};

TEST(DataJobRounds, NothingIsReadBeforeItComesAndWhatIsDoneStays) {
  int told = 0;
  size_t added_elsewhere = 0;
  const uint64_t seeds = testing_support::scaled(300, 30);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Rounds rounds(seed);
    rounds.run();
    told += rounds.told();
    added_elsewhere += rounds.added_elsewhere();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(told, 300) << "rounds overlap with nothing";
  EXPECT_GT(added_elsewhere, 300u);
}

TEST(DataJobRounds, WhatCannotBeAddedElsewhereIsTheOperationsError) {
  RingOptions options;
  options.ranks_per_node = {1, 1};
  options.shares_staging = true;
  FakeGpuAdder elsewhere;
  Ring ring(options);
  const OperationFixture& work = ring.add({.sizes = {2000}});
  for (int node = 0; node < 2; ++node) {
    auto operation = work.operation(NodeIndex{node});
    if (node == 1) elsewhere.take_over(*operation, work.operation(NodeIndex{node}));
    ring.node(node).job->run(std::move(operation));
  }
  ASSERT_TRUE(ring.run_until([&] { return elsewhere.waiting() > 0; }));
  elsewhere.add(0, {Code::kInternal, "the adder has no hands"});
  ASSERT_TRUE(ring.run_until([&] { return !ring.node(1).failed.empty(); }));
  EXPECT_EQ(ring.node(1).failed[0].first, Seq{1});
  EXPECT_EQ(ring.node(1).failed[0].second.message(), "the adder has no hands");
}

TEST(DataJobRounds, SlotsOfFramesThatWaitAreFreeAfterACancel) {
  RingOptions options;
  options.ranks_per_node = {1, 1, 1};
  Ring ring(options);
  const std::vector<int64_t> ends{10'000, 20'000};
  OperationSpec spec;
  spec.in_place = true;
  spec.sizes = {20'000};
  const core::Cancel cancel{.first = Seq{1}, .generation = 2};
  OperationFixture cancelled(spec, options.ranks_per_node, Seq{1});
  std::vector<std::unique_ptr<Arrivals>> before;
  for (int node = 0; node < 2; ++node) {  // the third node has not launched it
    before.push_back(std::make_unique<Arrivals>(cancelled, node, ends, true));
    auto operation = before.back()->operation(3);
    operation->locked = true;
    operation->generation = 1;
    ring.node(node).job->run(std::move(operation));
  }
  for (int i = 0; i < 2; ++i) before[0]->next_comes();
  ring.node(0).job->rounds_came(Seq{1});
  ring.settle();  // node 1 has frames of both rounds, and none of its own values
  for (int node = 0; node < 3; ++node) ring.node(node).job->cancel(cancel);

  OperationFixture again(spec, options.ranks_per_node, Seq{1});
  std::vector<std::unique_ptr<Arrivals>> after;
  for (int node = 0; node < 3; ++node) {
    after.push_back(std::make_unique<Arrivals>(again, node, ends, true));
    for (int i = 0; i < 2; ++i) after.back()->next_comes();
    auto operation = after.back()->operation(3);
    operation->generation = 2;
    ring.node(node).job->run(std::move(operation));
  }
  ASSERT_TRUE(ring.run_until([&] {
    return std::ranges::all_of(std::vector<int>{0, 1, 2},
                               [&](int node) { return ring.node(node).done.size() == 1; });
  }));
  EXPECT_EQ(again.check(), "");
}

}  // namespace
}  // namespace rueda::engine::testing
