// How far a node is in a plan that repeats: which batch is next, and what stands against it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/messages.h"
#include "daemon/core/submissions.h"

namespace rueda::core {

class PlanFollower {
 public:
  // `plan` has at least one batch, and no tensor twice.
  PlanFollower(Plan plan, Seq first);
  PlanFollower(const PlanFollower&) = delete;
  PlanFollower& operator=(const PlanFollower&) = delete;

  const Plan& plan() const { return plan_; }
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  // What the next batch will be called.
  Seq next() const { return next_; }

  // A tensor of the lockable track is ready on this node. Why that is a deviation (L6); empty: it
  // is none.
  std::string on_ready(const ReadyTensor& tensor);
  // The head batch, if all of it is ready: it is launched, and the next one is the head.
  std::optional<OrderedOperation> take_head();
  // Why the ranks of this node cannot go on as they are, by what else is ready and who waits for
  // what; empty: they can. Only while the head is not ready.
  std::string find_deviation(const SubmissionTable& submissions) const;
  // A tensor of the plan is ready, and the head it waits for is not.
  bool is_held_up() const { return ready_tensors_ > 0 && !is_ready(head_); }
  // Tensors from the operation on to the end of its round of the plan, of groups of which others
  // come before it.
  std::set<std::string> cut_off_by(Seq seq) const;
  // The head's tensors that are not ready here: for people.
  std::string describe_head() const;

 private:
  struct Place {
    size_t batch;
    DescriptorPtr descriptor;
    bool ready = false;
  };
  struct Batch {
    std::vector<std::string> names;
    std::vector<Place*> places;
    uint64_t hash = 0;
    size_t ready = 0;  // of its tensors, for their next turn
  };

  bool is_ready(size_t batch) const {
    return batches_[batch].ready == batches_[batch].names.size();
  }

  Plan plan_;
  std::vector<Batch> batches_;
  std::unordered_map<std::string, Place> places_;  // its nodes stay where they are
  size_t head_ = 0;
  size_t ready_tensors_ = 0;
  Seq next_;
};

}  // namespace rueda::core
