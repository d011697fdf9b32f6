// The rules of docs/protocol.md as a judge: it sees every event and everything that the cores say,
// on all nodes at once, and names the first rule that is broken. It knows nothing of how the cores
// work.
//
//   I5  one order of operations on all nodes of an epoch, none spans two, every submission ends
//   once L1  what needs every member is delivered when every member has launched it L5  launched in
//   seq order, at most W launched and not complete R3  a sealed epoch launches and delivers nothing
//   agreement  nothing is launched or delivered on descriptors that differ
//   credit     a lane of the data plane holds one operation, and is free in the end
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/job.h"

namespace rueda::sim {

class Checkers {
 public:
  Checkers(const core::Layout& layout, int window);

  // Before the core has seen the event.
  void before_step(NodeIndex node, const core::JobCore& core, const core::Event& event);
  // After, with what the core said to it alone.
  void after_step(NodeIndex node, const core::JobCore& core, const core::Event& event,
                  const core::Output& output);
  // The node's daemon has died, and its ranks with it.
  void on_node_died(NodeIndex node);
  // The rank has died: nobody is told of its submissions.
  void on_rank_died(Rank rank);
  // Nothing more will happen.
  void at_end();

  // Empty as long as all rules held; the first word is the rule.
  const std::string& violation() const { return violation_; }
  void violated(const std::string& what);

  size_t open_submissions(Rank rank) const { return open(rank).size(); }
  // Whether any node that lives waits for something.
  bool anything_open() const;
  uint64_t operations_launched() const { return operations_.size(); }

 private:
  struct Operation {
    uint64_t plan_hash = 0;
    CollectiveKind kind = CollectiveKind::kAllreduce;
    std::vector<core::DescriptorPtr> tensors;
    std::set<int> launched_on;
    bool failed = false;  // decreed as an error, or passed over
  };
  struct Node {
    bool alive = true;
    bool sealed = false;
    bool failed = false;  // its submissions have ended with the job
    uint32_t epoch = 0;   // running; 0: none
    uint64_t last_launched = 0;
    std::set<uint64_t> under_way;
    std::set<uint64_t> completed;  // of the epoch
  };
  using OpenSubmissions = std::map<uint64_t, core::DescriptorPtr>;  // by ticket

  static uint64_t key(Epoch epoch, Seq seq) { return (uint64_t{epoch.value} << 48) | seq.value; }
  Node& at(NodeIndex node) { return nodes_[static_cast<size_t>(node.value)]; }
  OpenSubmissions& open(Rank rank) { return open_[static_cast<size_t>(rank.value)]; }
  const OpenSubmissions& open(Rank rank) const { return open_[static_cast<size_t>(rank.value)]; }
  Rank rank_of(NodeIndex node, LocalRank local) const {
    return layout_.node(node).ranks[static_cast<size_t>(local.value)];
  }

  void on_launch(NodeIndex node, const core::Launch& launch);
  void check_order(NodeIndex node, const core::Launch& launch);
  void check_window(NodeIndex node, const core::Launch& launch);
  void check_descriptors(NodeIndex node, const core::Launch& launch);
  void check_same_everywhere(NodeIndex node, const core::Launch& launch);
  void on_delivery(NodeIndex node, const core::Delivery& delivery);
  void check_value(NodeIndex node, const core::Delivery& delivery,
                   const core::TensorDescriptor& descriptor);
  bool has_submitted(Rank rank, const core::TensorDescriptor& descriptor) const;

  const core::Layout& layout_;
  const uint64_t window_;
  std::vector<Node> nodes_;
  std::vector<OpenSubmissions> open_;  // by rank
  std::vector<bool> dead_;             // by rank
  std::map<uint64_t, Operation> operations_;
  std::string violation_;
};

}  // namespace rueda::sim
