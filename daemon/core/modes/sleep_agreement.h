// How the nodes of a job agree on one sleep, in mode `global-sleep` (Pumma et al., section IV-A,
// GS): each tells the sleep that it would have taken by itself, and all take the least. Members
// tell the coordinator; in a tree (tree.h) a node waits for those below it and tells its parent the
// least, until a rank leaves the job: from then on each node's sleep goes to the coordinator by
// itself, because nodes that leave hand their children over. The class is pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/model/tree.h"
#include "daemon/core/order/agreement.h"

namespace rueda::core {

class SleepAgreement {
 public:
  // The layout must outlive this object. No sleep is longer than options.cycle_time_us.
  SleepAgreement(const Layout& layout, NodeIndex self, const AgreementOptions& options);

  // The round is over on this node, which would sleep `own_us` now. From here until end() the
  // agreement on the sleep after that round is under way. A coordinator that is no member of the
  // process set has no sleep of its own, and its `own_us` does not count.
  void begin(uint64_t round, TicksUs own_us);
  void end() { is_under_way_ = false; }
  bool is_under_way() const { return is_under_way_; }
  uint64_t round() const { return round_; }

  // Takes in a message with a sleep. An error says that the peer broke the protocol.
  Status on_sleep(NodeIndex from, const Ready& ready);
  void on_rank_left();  // Nothing is combined any more, and what waited for that goes up.
  // On the coordinator: the node has left, and no sleep of its is waited for.
  void on_node_gone(NodeIndex node) { gone_.insert(node); }

  // Appends what this node has to tell those above.
  void say(AgreementOutput& output);
  // Returns, on the coordinator, the least of all sleeps once it knows all of them, and none
  // before, and while no agreement is under way.
  std::optional<TicksUs> agreed() const;

 private:
  // Returns the nodes whose sleep the message tells.
  Result<std::vector<NodeIndex>> tellers(NodeIndex from, const Ready& ready) const;
  Ready of_node(uint64_t round, NodeIndex node, TicksUs sleep_us) const;
  TicksUs least() const;

  const Layout& layout_;
  const NodeIndex self_;
  const TicksUs cycle_time_us_;
  std::optional<Tree> tree_;     // None: all tell the coordinator.
  std::set<NodeIndex> awaited_;  // Whose sleeps are told here, this node's own among them.
  bool is_combining_ = false;    // Sleeps of nodes below go up as one.

  bool is_under_way_ = false;
  bool has_said_ = false;  // What this node has to tell of the round has gone up, or is in up_.
  uint64_t round_ = 0;
  std::map<NodeIndex, TicksUs> told_;
  std::set<NodeIndex> gone_;
  std::vector<Ready> up_;  // Messages to the coordinator, each of one node.
};

}  // namespace rueda::core
