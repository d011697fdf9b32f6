// Lets an epoch form: each node tells its parent which ranks are attached on it and below it, again
// and again, until the coordinator has heard of all ranks and says Start. JobCore (job.h) owns
// this, asks it only while the epoch forms, and starts the epoch. The class is pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/job/job_events.h"
#include "daemon/core/job/job_options.h"
#include "daemon/core/job/local_ranks.h"
#include "daemon/core/job/message_router.h"
#include "daemon/core/messages/messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

class Forming {
 public:
  // All of these are the job's, and outlive this object.
  Forming(const Layout& layout, NodeIndex self, const JobOptions& options, const LocalRanks& ranks,
          MessageRouter& router);

  // Sets the time at which everything that is called afterwards happens.
  void set_now(TicksMs now) { now_ = now; }

  // Tells the parent which ranks are attached here and below; the coordinator notes its own.
  void tell(Output& output);
  // Returns why the node may not join, if it was told something else about the job than this node.
  Status check(NodeIndex from, const Join& join) const;
  // Notes what the node, which check() has passed, says of itself and of the nodes below it. Tells
  // the parent, if that has waited for the news. An error ends the job.
  Status on_join(NodeIndex from, const Join& join, Output& output);
  // Returns, on the coordinator, whether all ranks are attached, so that the epoch can start.
  bool is_complete() const;
  // Returns the message that the coordinator sends to all nodes when is_complete().
  Start start() const;
  // Returns whether the node has said that it is there.
  bool has_heard_of(NodeIndex node) const { return joined_.contains(node); }
  // The epoch has started: forgets who has joined.
  void end();

  // Returns an error, which ends the job, if ranks are missing at the deadline.
  Status on_time(Output& output);
  // Returns when on_time() has something to do next, or none if nobody waits for the epoch.
  std::optional<TicksMs> wakes_at() const;

 private:
  // What is known of a node that is below this one. The coordinator has itself there, too.
  struct JoinedNode {
    std::set<Rank> attached;
    std::string data_address;
    std::string rack;
    bool operator==(const JoinedNode&) const = default;
  };

  bool is_coordinator() const { return self_ == layout_.coordinator(); }
  // Returns whether somebody here or below waits for the epoch, so that the parent has to be told,
  // again and again.
  bool tells_parent() const { return !is_coordinator() && !nobody_waits(); }
  bool nobody_waits() const;
  bool has_joined(NodeIndex node) const;
  // Returns whether all ranks on the nodes below are attached, as far as those nodes have said.
  bool all_below_joined() const;
  void set_deadline();
  // Returns whether what was said is news. An error says that the node `from` has no business to
  // say it.
  Result<bool> note(NodeIndex from, const Join::Below& said);
  std::vector<NodeIndex> choose_ring() const;
  Status describe_timeout() const;

  const Layout& layout_;
  const NodeIndex self_;
  const JobOptions& options_;
  const LocalRanks& ranks_;
  MessageRouter& router_;
  TicksMs now_ = 0;
  std::map<NodeIndex, JoinedNode> joined_;
  std::optional<TicksMs> deadline_;  // None while nobody has attached.
  TicksMs next_join_ = 0;
};

}  // namespace rueda::core
