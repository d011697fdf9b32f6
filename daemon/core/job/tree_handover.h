// Lets a node leave the tree of a job that goes on: its children move to its parent
// (docs/protocol.md, "Leaving"). This is one node's part, as the node that leaves, as a child that
// moves, or as the parent that takes children over. A link is empty before the next one is used, so
// no message is lost, comes twice or overtakes another. JobCore (job.h) owns it; without a tree it
// does nothing. The class is pure.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/job/goodbyes.h"
#include "daemon/core/job/job_events.h"
#include "daemon/core/job/job_options.h"
#include "daemon/core/job/message_router.h"
#include "daemon/core/messages/messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

class TreeHandover {
 public:
  // All of these are the job's, and outlive this object. The links of `router` change when a node
  // has left.
  TreeHandover(const Layout& layout, NodeIndex self, const JobOptions& options,
               const Goodbyes& goodbyes, MessageRouter& router);

  // Sets the time at which everything that is called afterwards happens.
  void set_now(TicksMs now) { now_ = now; }
  // The epoch is over: forgets who leaves and who moves.
  void forget() { state_ = {}; }

  // This node, which is not the coordinator, is to leave. Its children are asked to move when all
  // of its ranks have left and the grace period is over, in which they may leave, too.
  void depart(Output& output);
  // Goes on with leaving, if something that it waited for has changed.
  void hand_over_children(Output& output);

  // Takes the first message of a handover, and messages of the next parent that come too early.
  // Returns false if the message is neither; then nothing has been done.
  bool is_for_later(const Message& message, Output& output);
  // Takes the other messages of a handover. Returns messages that were kept until now and are next
  // in their order. An error ends the epoch.
  Result<std::vector<Message>> on_message(const Message& message, const Handover& handover,
                                          Output& output);
  // The message went through this node.
  void on_passed_on(const Message& message, Output& output);
  // The link to the child is gone, and nobody behind it is missed.
  void on_child_gone(NodeIndex child, Output& output);

  // Returns an error, which ends the epoch, if the next parent has not answered in time.
  Status on_time(Output& output);
  // Returns when on_time() has something to do next, or none if that is not before something else
  // happens.
  std::optional<TicksMs> wakes_at() const;

  // Returns the node that is going to be this node's parent, while this node moves.
  std::optional<NodeIndex> next_parent() const;
  // Returns, after depart(), whether no other node depends on this one any more.
  bool may_go() const;
  // Returns whether the link to the neighbour leads to ranks, other than the neighbour's, that have
  // not left.
  bool leads_to_ranks(NodeIndex neighbour) const;

 private:
  // This node moves to another parent.
  struct Move {
    NodeIndex to;
    TicksMs deadline = 0;
    TicksMs next_attach = 0;
    bool is_drained = false;     // Nothing more comes through the old parent.
    std::vector<Message> early;  // Messages that came from the new parent before that.
  };
  struct State {
    // The node leaves.
    std::optional<TicksMs> departs_at;
    std::set<NodeIndex> told;  // The children that were asked to move.
    bool has_gone = false;
    // The node moves.
    std::optional<Move> move;
    // The node takes children over: those that have a link with it, and those of which nothing
    // more comes through their old parent.
    std::set<NodeIndex> attached;
    std::set<NodeIndex> drained;
  };

  bool is_coordinator() const { return self_ == layout_.coordinator(); }
  const TreeLinks& links() const { return router_.links(); }
  // Returns an error if the parent, which asks for the move, has no reason to.
  Status move_to(NodeIndex parent, Output& output);
  void attach(Output& output);
  void go_on_under_new_parent(Output& output);
  void adopt_if_ready(NodeIndex child, Output& output);

  const Layout& layout_;
  const NodeIndex self_;
  const JobOptions& options_;
  const Goodbyes& goodbyes_;
  MessageRouter& router_;
  TicksMs now_ = 0;
  State state_;
};

}  // namespace rueda::core
