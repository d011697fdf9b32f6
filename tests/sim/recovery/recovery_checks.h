// Checks recovery, by checkers that are named after the rules that they watch. They see all nodes
// at once, and count votes and look into memories themselves; they do not ask the cores what they
// believe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/setup/recovery_model.h"

namespace rueda::sim {

class RecoveryChecks {
 public:
  explicit RecoveryChecks(std::shared_ptr<const Plan> plan);

  // Returns "" while every rule was kept, or else "RULE: what happened", of the first that was not.
  const std::string& violation() const { return violation_; }

  // --- The world calls these at the moment when something happens.
  void on_sent(int from, const core::RecoveryMessage& message, const std::vector<NodeModel>& nodes);
  void on_launch(int node, Epoch epoch, Seq seq, int operation, const NodeModel& model);
  void on_added(const Frame& frame, int node, const Memory& memory);
  void on_served(int node, const Memory* memory, size_t chunk);
  void on_delivery(int node, const core::CompletedOperation& completed,
                   const std::vector<NodeModel>& nodes);
  void on_tensor_ended(int node, int tensor, int times);
  void on_partial_freed(int node, Seq seq, const std::vector<NodeModel>& nodes);
  void on_final_freed(int node, Seq seq, const std::vector<NodeModel>& nodes);
  void on_whole(int node, Epoch epoch, Seq seq);
  void on_epoch(int node, const core::NextEpoch& next, const NodeModel& before);
  void on_ended(int node, const core::JobEnd& end, const NodeModel& model);
  void violated(const std::string& what);

  // Returns the decision that began the epoch, once a quorum has accepted it.
  const core::DecisionPtr* chosen(Epoch epoch) const;
  // Returns the members of the last epoch that was decided; there are none if the decision was to
  // end the job.
  std::vector<NodeIndex> survivors() const;
  // Returns whether the votes are a quorum by a count of our own, apart from core's.
  bool is_quorum(const std::set<int>& votes, const std::vector<NodeIndex>& members) const;
  const std::vector<NodeIndex>& members_of(Epoch epoch) const;
  uint32_t epochs() const { return static_cast<uint32_t>(members_.size()); }
  uint64_t redone() const { return redone_; }
  uint64_t completed_by_decision() const { return completed_; }
  uint64_t diverged() const { return diverged_; }
  void hash(Fnv1a& hash) const;

 private:
  struct Proposal {
    core::DecisionPtr decision;
    std::set<int> accepted_by;
  };

  void on_vote(Epoch epoch, core::Ballot ballot, int voter, const std::vector<NodeModel>& nodes);
  void on_chosen(Epoch before, const core::DecisionPtr& decision,
                 const std::vector<NodeModel>& nodes);
  void check_verdict(const core::Decision& decision, size_t index,
                     const std::vector<NodeModel>& nodes);
  void check_same_bits(int operation, const std::vector<NodeModel>& nodes);

  std::shared_ptr<const Plan> plan_;
  std::string violation_;
  std::map<Epoch, std::vector<NodeIndex>> members_;               // by epoch that was decided
  std::map<Epoch, core::DecisionPtr> chosen_;                     // by the epoch that begins
  std::map<std::pair<Epoch, core::Ballot>, Proposal> proposals_;  // by the epoch that ends
  std::map<std::pair<Epoch, Seq>, int> seqs_;                     // the operation of each number
  std::map<std::pair<Epoch, Seq>, std::set<int>> whole_;          // nodes that once held all of F
  uint64_t redone_ = 0;
  uint64_t completed_ = 0;
  uint64_t diverged_ = 0;
};

}  // namespace rueda::sim
