// Tests autotuning in a job, and plans that were recorded. Settings belong to plans, so all nodes
// change them between the same two operations.

#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Autotune : public LockedTest {
 protected:
  static TuningOptions small_search() {
    TuningOptions tuning;
    tuning.is_enabled = true;
    tuning.space.fusion_bytes = {1 << 20, 4};
    tuning.space.chunk_bytes = {0, 64 << 10};
    tuning.window_rounds = 3;
    tuning.window_ms = 30;
    return tuning;
  }

  void start_tuned(const std::vector<int>& ranks_by_node, bool records = false) {
    JobOptions options;
    options.agreement.tuning = small_search();
    options.agreement.fusion.threshold_bytes = 1 << 20;
    options.agreement.records_plans = records;
    start_with(ranks_by_node, options);
  }
  void start_with(const std::vector<int>& ranks_by_node, const JobOptions& options) {
    cluster_.emplace(ranks_by_node, options);
    cluster_->start();
    ranks_ = cluster_->layout().world_size();
  }

  // Says how long steps take with the setting of their last launch.
  using Cost = std::function<TicksMs(const Launch&)>;
  void run(int steps, const Cost& cost) {
    for (int i = 0; i < steps; ++i) {
      step(tensors_);
      expect_like_launches();
      cluster_->pass(cost(cluster_->node(0).launches.back()));
    }
  }

  // Checks I5: the last launches by a number are alike on all nodes.
  void expect_like_launches() {
    std::map<std::pair<uint64_t, uint32_t>, const Launch*> first;
    for (int node = 0; node < cluster_->layout().node_count(); ++node) {
      for (const Launch& launch : cluster_->node(node).launches) {
        const Launch*& of = first[{launch.seq.value, launch.generation}];
        if (!of) of = &launch;
        ASSERT_EQ(of->plan_hash, launch.plan_hash) << launch.seq.value;
        ASSERT_EQ(of->tuning, launch.tuning) << launch.seq.value;
      }
    }
  }

  const TuningLine& last_line() { return cluster_->node(0).tuning.back(); }

  const std::vector<DescriptorPtr> tensors_{tensor("a"), tensor("b"), tensor("c")};
};

TEST_F(Autotune, ASettingThatIsBetterIsInForceOnAllNodes) {
  start_tuned({2, 1, 1});
  run(500, [](const Launch& launch) { return launch.tuning.chunk_bytes == 64 << 10 ? 20 : 30; });
  EXPECT_EQ(last_line().phase, "settled");
  EXPECT_EQ(last_line().verdict, "chosen");
  for (int node = 0; node < 3; ++node) {
    ASSERT_TRUE(is_locked(node));
    EXPECT_EQ(cluster_->node(node).core->plan()->tuning.chunk_bytes, 64u << 10);
    EXPECT_EQ(cluster_->node(node).launches.back().tuning.chunk_bytes, 64u << 10);
    EXPECT_EQ(cluster_->node(node).tuning.empty(), node > 0) << "the coordinator tells";
  }
}

TEST_F(Autotune, FusionIsThatOfThePlans) {
  start_tuned({1, 1});
  run(500, [](const Launch& launch) { return launch.tensors->size() == 1 ? 20 : 30; });
  EXPECT_EQ(last_line().setting.fusion_bytes, 4);
  EXPECT_EQ(cluster_->node(1).core->plan()->batches.size(), 3u) << "each tensor by itself";
}

TEST_F(Autotune, WithNoGainTheDefaultsAreKept) {
  start_tuned({1, 1});
  run(500, [](const Launch&) { return 20; });
  EXPECT_EQ(last_line().verdict, "no gain, defaults kept");
  ASSERT_TRUE(is_locked(1));
  EXPECT_EQ(cluster_->node(1).core->plan()->tuning, DataTuning{});
  EXPECT_EQ(cluster_->node(1).core->plan()->batches.size(), 1u);
}

// After the search has settled, no message is sent.
TEST_F(Autotune, AfterTheSearchStepsSayNothing) {
  start_tuned({1, 1});
  run(500, [](const Launch&) { return 20; });
  for (const DescriptorPtr& item : tensors_) cluster_->submit_everywhere(item);
  cluster_->end_turns();
  for (const int from : {0, 1}) EXPECT_THAT(cluster_->stream(from, 1 - from), IsEmpty());
}

TEST_F(Autotune, ADeviationDuringTheSearchIsOneAsAlways) {
  start_tuned({1, 1});
  for (int i = 0; i < 60; ++i) {
    run(20, [](const Launch& launch) { return launch.tuning.chunk_bytes == 64 << 10 ? 20 : 30; });
    step({tensor("a"), tensor("validation" + std::to_string(i % 2))});
    cluster_->pass(25);
  }
  EXPECT_EQ(last_line().verdict, "chosen");
  for (const Status& failed : cluster_->node(0).failed) ADD_FAILURE() << failed.message();
}

TEST_F(Autotune, AddedSetsHaveNoSearchOfTheirOwn) {
  AgreementOptions agreement;
  agreement.tuning = small_search();
  agreement.records_plans = true;
  agreement.replayed = std::make_shared<const Plan>();
  agreement.be_of_added_set(1);
  EXPECT_FALSE(agreement.tuning.is_enabled);
  EXPECT_FALSE(agreement.records_plans);
  EXPECT_EQ(agreement.replayed, nullptr);
}

// --- Recorded plans ------------------------------------------------------------------------------

TEST_F(Autotune, WhatIsRecordedIsThePlanThatWasChosen) {
  start_tuned({1, 1}, true);
  run(500, [](const Launch& launch) { return launch.tuning.chunk_bytes == 64 << 10 ? 20 : 30; });
  ASSERT_EQ(cluster_->node(0).recorded_plans.size(), 1u) << "not those that were tried";
  EXPECT_EQ(cluster_->node(0).recorded_plans.front().tuning.chunk_bytes, 64u << 10);
  EXPECT_THAT(cluster_->node(1).recorded_plans, IsEmpty());
}

class Replayed : public Autotune {
 protected:
  Plan recorded() {
    JobOptions options;
    options.agreement.records_plans = true;
    options.agreement.fusion.threshold_bytes = 8;  // two tensors
    start_with({1, 1}, options);
    run(4, [](const Launch&) { return 20; });
    EXPECT_EQ(cluster_->node(0).recorded_plans.size(), 1u);
    return cluster_->node(0).recorded_plans.back();
  }
  void replay(const Plan& plan, bool is_tuned = false) {
    JobOptions options;
    if (is_tuned) options.agreement.tuning = small_search();
    options.agreement.replayed = std::make_shared<const Plan>(plan);
    done_.clear();
    start_with({1, 1}, options);
  }
};

TEST_F(Replayed, ItIsInForceFromTheFirstStepOn) {
  Plan plan = recorded();
  plan.tuning.chunk_bytes = 8192;
  replay(plan);
  for (const int node : {0, 1}) ASSERT_TRUE(is_locked(node));
  run(2, [](const Launch&) { return 20; });
  ASSERT_EQ(cluster_->node(1).launches.size(), 4u);
  EXPECT_EQ(cluster_->node(1).launches[0].tensors->size(), 2u);
  EXPECT_EQ(cluster_->node(1).launches[1].tensors->size(), 1u);
  EXPECT_EQ(cluster_->node(1).launches[1].tuning.chunk_bytes, 8192u);
  EXPECT_THAT(cluster_->node(1).notes, testing::Contains(HasSubstr("locked as recorded")));
}

TEST_F(Replayed, OneThatDoesNotFitIsAbandonedOnceAndTheScheduleLearned) {
  replay(recorded());
  for (int i = 0; i < 5; ++i) step({tensor("a"), tensor("x")});
  for (const int node : {0, 1}) {
    EXPECT_THAT(cluster_->node(node).abandoned_plans,
                ElementsAre(testing::AllOf(HasSubstr("the recorded plan is abandoned"),
                                           HasSubstr("\"x\" is not in the plan"),
                                           HasSubstr("Record the plan anew"))));
    EXPECT_TRUE(is_locked(node));
  }
}

TEST_F(Replayed, NothingIsSearchedBeside) {
  replay(recorded(), true);
  run(100, [](const Launch&) { return 20; });
  EXPECT_THAT(cluster_->node(0).tuning, IsEmpty());
}

}  // namespace
}  // namespace rueda::core
