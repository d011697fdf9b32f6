// The position of one node in a plan that repeats: which batches may be next, and what stands
// against them.
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
  // The plan must have passed find_flaw(). The batch that comes after the batch `at` is operation
  // `first`.
  PlanFollower(Plan plan, Seq first, PlanPlace at);
  PlanFollower(const PlanFollower&) = delete;
  PlanFollower& operator=(const PlanFollower&) = delete;

  const Plan& plan() const { return plan_; }
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  bool has_alternatives() const { return has_alternatives_; }
  // Returns the number of the operation that the next batch will be.
  Seq next() const { return next_; }
  // Returns how many rounds have ended with each batch.
  const std::map<PlanPlace, uint64_t>& ended() const { return ended_; }
  uint64_t rounds() const;  // The number of all rounds that have ended.
  // Returns whether a round has ended, or nothing need follow in the first one.
  bool has_led_through_a_round() const;

  // Takes in that a tensor of the lockable track is ready on this node. Returns why that is a
  // deviation (L6), or "" if it is none.
  std::string on_ready(const ReadyTensor& tensor);
  // Launches the batch that was ready first among those that may be next, if one of them is ready
  // (L9). The returned operation is the launched one.
  std::optional<OrderedOperation> take_next();
  // These return the batches that may be next, whether or not they are ready, and where in the plan
  // the node is.
  const std::vector<uint32_t>& next_batches() const {
    return successors_[static_cast<size_t>(at_ + 1)];
  }
  PlanPlace at() const { return at_; }
  // Launches `batch`, one of next_batches(), though its tensors were not told to be ready. Must not
  // be called while is_held_up().
  OrderedOperation advance(uint32_t batch);
  // Returns why the ranks of this node cannot go on as they are, which follows from what else is
  // ready and who waits for what, or "" if they can. This and is_held_up() may be called only while
  // take_next() returns none.
  std::string find_deviation(const SubmissionTable& submissions) const;
  // Returns whether a tensor of the plan is ready, and nothing that may be next is.
  bool is_held_up() const { return ready_tensors_ > 0; }
  // Returns how many tensors of the plan are ready and not launched.
  size_t ready_tensors() const { return ready_tensors_; }

  // Operations up to `seq` are complete, so nobody will ask where in the plan those before `seq`
  // were: forgets them.
  void forget_before(Seq seq);
  // Returns the batches of the launched operations, from the oldest that is not forgotten on.
  std::vector<uint32_t> walked() const { return {walked_.begin(), walked_.end()}; }
  // Returns the batch before the operation, which must not be forgotten.
  PlanPlace place_before(Seq seq) const;
  // Returns the groups that the operation's round of the plan has begun before the operation, and
  // has not ended.
  BegunGroups begun_before(Seq seq) const;
  // Returns, for people, which tensors are missing for what may be next.
  std::string describe_next() const;

 private:
  struct Place {
    std::vector<uint32_t> batches;  // There are several if the tensor is in several branches.
    DescriptorPtr descriptor;
    bool ready = false;
  };
  struct Batch {
    std::vector<std::string> names;
    std::vector<Place*> places;
    uint64_t hash = 0;
    size_t ready = 0;          // How many of its tensors are ready, for their next turn.
    uint64_t ready_since = 0;  // The moment_ at which the last of its tensors became ready.
  };

  bool is_ready(uint32_t batch) const {
    return batches_[batch].ready == batches_[batch].names.size();
  }
  std::string find_repeated() const;
  // Returns a tensor of the batch that the rank has not submitted, or null if it has submitted all.
  const std::string* find_missing(uint32_t batch, LocalRank rank,
                                  const SubmissionTable& submissions) const;
  // Returns whether there is a way through the plan, from what may be next to the tensor, of which
  // the rank has submitted everything. Batches in `seen` are not tried again.
  bool has_a_way(PlanPlace from, const std::string& tensor, LocalRank rank,
                 const SubmissionTable& submissions, std::set<uint32_t>& seen) const;

  Plan plan_;
  std::vector<std::vector<uint32_t>> successors_;
  bool has_alternatives_ = false;
  std::vector<Batch> batches_;
  // The nodes of this map keep their addresses, which batches_ refer to.
  std::unordered_map<std::string, Place> places_;
  PlanPlace at_;
  Seq next_;
  uint64_t walk_hash_ = 0;  // A hash over the batches since the lock.
  size_t ready_tensors_ = 0;
  uint64_t moment_ = 0;
  std::deque<uint32_t> walked_;  // The last one is operation next_ - 1.
  PlanPlace before_walked_;      // The place before the first of walked_.
  std::map<PlanPlace, uint64_t> ended_;
};

}  // namespace rueda::core
