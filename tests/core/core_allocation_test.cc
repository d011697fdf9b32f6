// Tests that the allocations of a step that repeats as it was do not grow with its tensors
// (plan_fast_path.h).
#include <gtest/gtest.h>

#include "daemon/core/job/job.h"
#include "tests/core/builders.h"
#include "tests/support/allocations.h"

namespace rueda::core {
namespace {

using testing_support::allocations_of_this_thread;

// Runs a job of two ranks on one node, whose steps have so many tensors.
class Trainer {
 public:
  explicit Trainer(int tensors) : core_(layout_of({2}), NodeIndex{0}, options()) {
    for (int i = 0; i < tensors; ++i) tensors_.push_back(tensor("t" + std::to_string(i), 4));
    for (const LocalRank rank : kRanks) tell(RankAttached{rank});
    while (!core_.is_locked()) EXPECT_EQ(step(), 0u) << "ended before it was locked";
  }

  // Makes a step, and returns how many of its submissions took the fast path.
  size_t step() {
    size_t again = 0;
    for (const LocalRank rank : kRanks) {
      for (const DescriptorPtr& item : tensors_) {
        const Ticket ticket{++tickets_};
        if (core_.submit_again(0, rank, ticket, item)) {
          ++again;
        } else {
          tell(Submitted{{rank, ticket, item, 0, {}}});
        }
      }
    }
    tell(TurnEnded{});
    for (const Launch& launch : std::exchange(launched_, {})) tell(OperationDone{launch.seq});
    EXPECT_EQ(std::exchange(ended_, 0), tensors_.size() * std::size(kRanks));
    return again;
  }

 private:
  static constexpr LocalRank kRanks[] = {LocalRank{0}, LocalRank{1}};

  static JobOptions options() {
    JobOptions options;
    options.agreement.mode = Coordination::kLocked;
    options.agreement.fusion.threshold_bytes = 1 << 20;
    return options;
  }
  void tell(Event event) {
    Output output;
    core_.step(0, std::move(event), output);
    for (Launch& launch : output.launches) launched_.push_back(std::move(launch));
    ended_ += output.deliveries.size();
  }

  JobCore core_;
  std::vector<DescriptorPtr> tensors_;
  std::vector<Launch> launched_;
  uint64_t tickets_ = 0;
  size_t ended_ = 0;
};

uint64_t allocations_of_a_step(int tensors) {
  Trainer trainer(tensors);
  trainer.step();
  const uint64_t before = allocations_of_this_thread();
  EXPECT_EQ(trainer.step(), static_cast<size_t>(2 * tensors));
  return allocations_of_this_thread() - before;
}

TEST(CoreAllocation, AStepThatRepeatsAllocatesNoMoreForAThousandTensorsThanForTen) {
  const uint64_t of_ten = allocations_of_a_step(10);
  EXPECT_GT(of_ten, 0u) << "nothing is counted";
  // Queues grow by a block now and then, hence the 10.
  EXPECT_LE(allocations_of_a_step(1000), of_ten + 10);
}

uint64_t allocations_of_a_check(const Plan& plan, bool is_sound) {
  const uint64_t before = allocations_of_this_thread();
  EXPECT_EQ(find_flaw(plan).empty(), is_sound);
  return allocations_of_this_thread() - before;
}

// Each name that is looked at is put into a set, which allocates: so allocations count the steps.
// Every name of the chain was once put into a set for each leaf.
TEST(CoreAllocation, CheckingAPlanTakesStepsInProportionToItsBatches) {
  for (const int length : {1'000, 10'000}) {
    Plan chain;
    for (int i = 0; i < length; ++i)
      chain.batches.push_back({{tensor(std::to_string(i))}, i - 1, false});
    for (size_t leaf = 0; leaf < kMaxBranchesOfAPlan; ++leaf) {
      chain.batches.push_back({{tensor("leaf" + std::to_string(leaf))}, length - 1, true});
    }
    EXPECT_LE(allocations_of_a_check(chain, true), 8 * chain.batches.size());
    // All batches begin a round, and end one: there was once a number for each pair of them.
    Plan roots;
    for (int i = 0; i < length; ++i)
      roots.batches.push_back({{tensor(std::to_string(i))}, kPlanStart, true});
    EXPECT_LE(allocations_of_a_check(roots, false), 8 * roots.batches.size());
  }
}

}  // namespace
}  // namespace rueda::core
