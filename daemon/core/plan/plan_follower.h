// How far a node is in a plan that repeats: which batches may be next, and what stands against
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/messages/messages.h"
#include "daemon/core/order/begun_groups.h"
#include "daemon/core/order/submissions.h"

namespace rueda::core {

class PlanFollower {
 public:
  // find_flaw(plan) finds none. What comes after the batch `at` is operation `first`.
  PlanFollower(Plan plan, Seq first, PlanPlace at);
  PlanFollower(const PlanFollower&) = delete;
  PlanFollower& operator=(const PlanFollower&) = delete;

  const Plan& plan() const { return plan_; }
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  bool has_alternatives() const { return has_alternatives_; }
  // What the next batch will be called.
  Seq next() const { return next_; }
  // How many rounds have ended with each batch.
  const std::map<PlanPlace, uint64_t>& ended() const { return ended_; }
  uint64_t rounds() const;  // all of them

  // A tensor of the lockable track is ready on this node. Why that is a deviation (L6); empty: it
  // is none.
  std::string on_ready(const ReadyTensor& tensor);
  // Of the batches that may be next, the one that was ready first, if any is: it is launched (L9).
  std::optional<OrderedOperation> take_next();
  // The batches that may be next, whether they are ready or not; and one of them, which is launched
  // though its tensors were not told to be ready. Nothing is_held_up().
  const std::vector<uint32_t>& next_batches() const {
    return successors_[static_cast<size_t>(at_ + 1)];
  }
  PlanPlace at() const { return at_; }
  OrderedOperation advance(uint32_t batch);
  // Why the ranks of this node cannot go on as they are, by what else is ready and who waits for
  // what; empty: they can. Only while take_next() has nothing.
  std::string find_deviation(const SubmissionTable& submissions) const;
  // A tensor of the plan is ready, and nothing that may be next is. Likewise.
  bool is_held_up() const { return ready_tensors_ > 0; }

  // Operations up to here are complete: nobody will ask where in the plan they were, but for this
  // one.
  void forget_before(Seq seq);
  // Of the operations from the oldest not forgotten on: their batches.
  std::vector<uint32_t> walked() const { return {walked_.begin(), walked_.end()}; }
  // The batch before the operation, which is not forgotten.
  PlanPlace place_before(Seq seq) const;
  // The groups that the operation's round of the plan has begun before it, and has not ended.
  BegunGroups begun_before(Seq seq) const;
  // The tensors that are missing for what may be next: for people.
  std::string describe_next() const;

 private:
  struct Place {
    std::vector<uint32_t> batches;  // in several branches
    DescriptorPtr descriptor;
    bool ready = false;
  };
  struct Batch {
    std::vector<std::string> names;
    std::vector<Place*> places;
    uint64_t hash = 0;
    size_t ready = 0;          // of its tensors, for their next turn
    uint64_t ready_since = 0;  // all of them; by a count of what became ready
  };

  bool is_ready(uint32_t batch) const {
    return batches_[batch].ready == batches_[batch].names.size();
  }
  std::string find_repeated() const;
  // The batch's tensor that the rank has not submitted; null: it has all.
  const std::string* find_missing(uint32_t batch, LocalRank rank,
                                  const SubmissionTable& submissions) const;
  // The rank has submitted a way from what may be next to the tensor.
  bool has_a_way(PlanPlace from, const std::string& tensor, LocalRank rank,
                 const SubmissionTable& submissions, std::set<uint32_t>& seen) const;

  Plan plan_;
  std::vector<std::vector<uint32_t>> successors_;
  bool has_alternatives_ = false;
  std::vector<Batch> batches_;
  std::unordered_map<std::string, Place> places_;  // its nodes stay where they are
  PlanPlace at_;
  Seq next_;
  uint64_t walk_hash_ = 0;  // over the batches since the lock
  size_t ready_tensors_ = 0;
  uint64_t moment_ = 0;
  std::deque<uint32_t> walked_;  // the last one is operation next_ - 1
  PlanPlace before_walked_;      // where the first of them began
  std::map<PlanPlace, uint64_t> ended_;
};

}  // namespace rueda::core
