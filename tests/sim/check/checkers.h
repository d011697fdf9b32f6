// Judges a run by the rules of docs/protocol.md: it sees every event and everything that the cores
// say about one process set (checker_set.h), on all nodes at once, and names the first rule that is
// broken. It knows nothing of how the cores work.
//
// clang-format off
//   I5  one order of operations on all nodes of an epoch, none spans two, every submission ends once
//   L1  what needs every member is delivered when every member has launched it, in one generation
//   L3  nothing is launched in a generation that is over
//   L4  a lock begins right above what is decreed, and its generation is the next
//   L5  launched in seq order, at most W launched and not complete
//   L9  in a plan, batches that may be next have no tensor in common, and no batch has a tensor of
//       several alternatives with one of fewer
//   L2  a change of process sets has the same result on all nodes
//   tuning  an operation has the same tuning on all nodes, and none without a plan
//   plan  a declared plan has its tensors, and no batch with one that comes after another
//   L7  an unlock cancels from 1 + the minimum of the reports on, nothing that any node completed,
//       and the same on all nodes
//   L11 an operation lacks a rank only if that has joined, and has not submitted it before; only
//       sums, averages and barriers lack one, and no plan's; who has got the result of one that
//       lacks a rank joins later than that
//   R1  P and F are let go of when nobody needs them any more (data_plane.h)
//   R2  the bytes of unstable operations are bounded (data_plane.h)
//   R3  a sealed epoch launches and delivers nothing
//   R4  a quorum has accepted each next epoch, all enter the same one, and what somebody who goes on
//       has delivered is neither repeated nor returned
//   R5  a node that was left out delivers nothing
//   R6  a completion names its epoch and its contributors, the same on all nodes
//   agreement  nothing is launched or delivered on descriptors that differ
//   ring       all nodes of an epoch have the same ring
//   credit     a lane of the data plane holds one operation, and is free in the end
//   fault      no error without a fault, a goodbye or a mismatch that explains it
//   liveness   every wait ends
// clang-format on
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/job/job.h"

namespace rueda::sim {

class Checkers {
 public:
  // Makes the checkers of a set, whose layout outlives them. Local ranks in events and outputs are
  // places among the set's ranks on the node.
  Checkers(const core::Layout& layout, int window, uint32_t process_set, bool has_witness);

  // Must be called before the core has seen the event.
  void before_step(NodeIndex node, const core::JobCore& core, const core::Event& event);
  // Must be called after that, with what the core said to it alone.
  void after_step(NodeIndex node, const core::JobCore& core, const core::Output& output);
  // Sees what the witness says.
  void on_witness(const core::Output& output);
  // Hears that the node's daemon has died, and its ranks with it.
  void on_node_died(NodeIndex node);
  // Hears that the rank has died, so that nobody is told of its submissions.
  void on_rank_died(Rank rank);
  // Hears that nothing more will happen.
  void at_end();

  // Returns "" as long as all rules held; otherwise the first word is the rule.
  const std::string& violation() const { return violation_; }
  void violated(const std::string& what);

  // Returns, by rank, which ranks have joined (L11). The set of all ranks sees joins, and the other
  // sets are told.
  const std::vector<bool>& joined() const { return joined_; }
  void set_joined(const std::vector<bool>& joined) { joined_ = joined; }
  bool is_open(Rank rank, Ticket ticket) const { return open(rank).contains(ticket.value); }
  // Returns whether any rank that lives waits for something.
  bool anything_open() const;
  // Returns the number of messages about order that nodes sent under a plan that was in force and
  // stayed so, before the first rank left.
  uint64_t messages_while_locked() const { return messages_while_locked_; }
  // Returns the number of all messages about order, before the first rank left.
  uint64_t order_messages() const { return order_messages_; }
  uint64_t locked_launches() const { return locked_launches_; }
  uint64_t cancels() const { return cancels_; }
  uint64_t recovered() const { return epochs_.size(); }
  uint64_t completed_by_decision() const { return completed_by_decision_; }
  uint64_t repeated() const { return repeated_; }

 private:
  // Names an operation of a number. Each generation is another operation, and under a plan so is
  // each alternative that nodes have chosen. Operations that are always decreed are never
  // cancelled, and have generation 0 here.
  struct Name {
    uint32_t generation = 0;
    uint64_t walk = 0;  // the plan hash, for what a plan launched
    auto operator<=>(const Name&) const = default;
  };
  using Key = std::tuple<uint32_t, Seq, Name>;  // begins with the epoch
  struct Operation {
    uint64_t plan_hash = 0;
    core::DataTuning tuning;
    CollectiveKind kind = CollectiveKind::kAllreduce;
    std::vector<core::DescriptorPtr> tensors;
    std::set<int> launched_on;
    std::set<int> completed_on;
    std::set<int> cancelled_on;
    std::set<int> delivered_on;
    std::set<Rank> without;  // the ranks that have joined (L11)
    bool failed = false;     // was decreed as an error, or passed over
    // The epoch of the result. Under policy `shrink` an operation that is completed by decision has
    // the result of the epoch that it was launched in.
    uint32_t epoch = 0;
    std::vector<NodeIndex> members;
    bool carried = false;  // was completed by decision: nobody launches it here
  };
  // Describes a recovered epoch, as the first node entered it.
  struct EntryOfEpoch {
    std::vector<NodeIndex> before;  // the members of the epoch before
    core::NextEpoch next;
  };
  // Describes an operation that one node has launched in its epoch and that is not over.
  struct Launched {
    Name name;
    core::Launch launch;
  };
  struct Node {
    bool alive = true;
    bool sealed = false;
    bool failed = false;  // its submissions have ended with the job
    bool was_locked = false;
    uint32_t epoch = 0;
    std::vector<NodeIndex> members;
    uint32_t generation = 0;  // the generation of the last cancel,
    Seq resumed_at;           // and the number from which older operations are over
    Seq last[core::kTracks];
    std::map<Seq, Launched> under_way;
    std::map<Seq, Name> completed;  // in this epoch
  };
  // Holds what the nodes of one generation say about its end.
  struct Unlocking {
    std::map<int, Seq> reports;  // by node; the coordinator sends no report
    std::optional<Seq> first;
  };
  using OpenSubmissions = std::map<uint64_t, core::DescriptorPtr>;  // by ticket

  static Key key(Epoch epoch, Seq seq, Name name);
  static Name name_in(const core::Launch& launch);
  Node& at(NodeIndex node) { return nodes_[static_cast<size_t>(node.value)]; }
  OpenSubmissions& open(Rank rank) { return open_[static_cast<size_t>(rank.value)]; }
  const OpenSubmissions& open(Rank rank) const { return open_[static_cast<size_t>(rank.value)]; }
  Rank rank_of(NodeIndex node, LocalRank local) const {
    return layout_.node(node).ranks[static_cast<size_t>(local.value)];
  }

  bool is_locked(const core::JobCore& core) const;
  void on_started(NodeIndex node, const core::EpochStarted& started);
  void check_ring(NodeIndex node, const core::Layout& layout, Epoch epoch);
  void on_done(NodeIndex node, const core::OperationDone& done);
  void on_message(NodeIndex node, const core::Message& message);
  void on_lock(const core::Lock& lock);
  void check_alternatives(const core::Plan& plan);
  void check_declared(const core::Plan& plan);
  void on_cancel(NodeIndex node, const core::Cancel& cancel);
  void check_cancelled(const Operation& operation, Seq seq);
  void on_launch(NodeIndex node, const core::Launch& launch);
  void check_order(NodeIndex node, const core::Launch& launch);
  void check_window(NodeIndex node, const core::Launch& launch);
  void check_descriptors(NodeIndex node, const core::Launch& launch);
  bool is_in_another(NodeIndex node, Seq seq, size_t local, Ticket ticket);
  void check_same_everywhere(NodeIndex node, const core::Launch& launch);
  // --- The functions of checkers_joins.cc
  void check_absent(NodeIndex node, const core::Launch& launch,
                    const core::TensorDescriptor& descriptor, size_t local);
  void note_absent(Rank rank, const Operation& of);
  void on_join_ended(Rank rank, const core::Delivery& delivery);
  // --- The functions of checkers_recovery.cc
  void on_vote(NodeIndex node, const core::Message& message);
  bool is_quorum(const std::set<int>& votes, const std::vector<NodeIndex>& members) const;
  void on_recovered(NodeIndex node, const core::NextEpoch& next);
  void check_epoch(NodeIndex node, const core::NextEpoch& next);
  void check_verdicts(const Node& model, const core::NextEpoch& next);
  void check_fenced(NodeIndex node);
  uint32_t ranks_of(const std::vector<NodeIndex>& members) const;
  void on_delivery(NodeIndex node, const core::Delivery& delivery);
  void on_error(NodeIndex node, const core::Delivery& delivery);
  void check_change(const core::Delivery& delivery);
  void check_value(NodeIndex node, const core::Delivery& delivery,
                   const core::TensorDescriptor& descriptor);
  bool has_submitted(Rank rank, const core::TensorDescriptor& descriptor) const;

  const core::Layout& layout_;
  const int window_;
  const uint32_t process_set_;
  const bool has_witness_;
  std::vector<Node> nodes_;
  std::vector<OpenSubmissions> open_;                 // by rank
  std::vector<bool> dead_;                            // by rank
  std::vector<bool> joined_;                          // by rank
  std::map<uint32_t, std::vector<NodeIndex>> rings_;  // by epoch
  std::vector<std::set<Rank>> gone_on_without_;       // by rank: the ranks after which it joins
  std::set<std::pair<int32_t, uint64_t>> ending_;     // ranks and tickets that end in this step
  std::map<Key, Operation> operations_;
  std::map<std::pair<uint32_t, Seq>, uint32_t> changes_;           // results of changes, by epoch
  std::map<std::pair<uint32_t, uint32_t>, Unlocking> unlockings_;  // by epoch and new generation
  // The coordinator's last message about order: its epoch, and its highest lockable decree.
  uint32_t decreed_epoch_ = 0;
  Seq decreed_;
  uint32_t last_generation_ = 0;
  core::DescriptorPtr declared_;  // what the last rank that declared a plan has declared
  bool anybody_leaves_ = false;
  uint64_t messages_while_locked_ = 0;
  uint64_t order_messages_ = 0;
  uint64_t locked_launches_ = 0;
  uint64_t cancels_ = 0;
  std::map<std::pair<uint32_t, core::Ballot>, std::set<int>> votes_;  // by the epoch that ends
  std::map<uint32_t, EntryOfEpoch> epochs_;                           // the recovered epochs
  uint64_t completed_by_decision_ = 0;
  uint64_t repeated_ = 0;
  std::string violation_;
};

}  // namespace rueda::sim
