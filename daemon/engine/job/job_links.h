// A job's control links to other nodes: one to its parent, which this node dials, and one from each
// child that has joined. They belong to the control loop.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/job/job.h"
#include "daemon/engine/job/job_spec.h"
#include "daemon/engine/ports/control_plane.h"

namespace rueda::engine {

class JobLinks {
 public:
  // All three must outlive the object. Dials the parent, if the core has one.
  JobLinks(ControlPlane& control_plane, const JobSpec& spec, const core::JobCore& core);
  // Lets go of all links.
  ~JobLinks();
  JobLinks(const JobLinks&) = delete;
  JobLinks& operator=(const JobLinks&) = delete;

  // Returns the node behind a link of the job, or nothing.
  std::optional<NodeIndex> node_behind(LinkId link) const;
  // Returns the node's parent, or nothing on the coordinator.
  std::optional<NodeIndex> parent() const;
  std::vector<NodeIndex> children() const;
  // Returns the link over which each child joined.
  const std::map<NodeIndex, LinkId>& child_links() const { return children_; }
  // Returns whether `child` is a child of this node, and `node` is that or stands below it.
  bool is_below_child(NodeIndex node, NodeIndex child) const;

  // Sends a message of the core, with a proof that it is of this node where one is wanted. Nothing
  // is sent to a node that has not joined: it will ask again.
  void send(NodeIndex to, core::Message message);
  // Sends a TimelineMessage, a NonfiniteMessage or a CommunicatorMessage. Nothing is sent to a node
  // that has not joined.
  template <class Told>
  void tell(NodeIndex to, const Told& message) {
    if (const std::optional<LinkId> link = link_to(to)) control_plane_.send(*link, message);
  }
  // Returns whether the message comes from the node that it names. A child that proves to be one is
  // known by this link from then on. A message that is refused is logged, once.
  bool accepts(LinkId link, const Envelope& envelope);
  // Forgets the link if a child came over it. Returns the nodes that were behind it.
  std::vector<NodeIndex> lose(LinkId link);
  // Lets go of nodes that are not this node's parent any more.
  void release_old_parents();
  // Returns `status`, and why links to parents are not up.
  Status with_trouble(const Status& status) const;

 private:
  bool is_parent(NodeIndex node) const;
  std::optional<LinkId> link_to(NodeIndex node);
  bool authenticate(LinkId link, const Envelope& envelope);
  // Returns false if the peer of the link has another node's certificate.
  bool may_be(LinkId link, NodeIndex node) const;

  ControlPlane& control_plane_;
  const JobSpec& spec_;
  const core::JobCore& core_;
  const std::string proof_key_;
  // The links that this node dials: to its parent, and to the one that is going to be.
  std::map<NodeIndex, LinkId> parents_;
  std::map<NodeIndex, LinkId> children_;  // The link over which each child joined.
  bool warned_of_stranger_ = false;  // It warns once, because a stranger must not fill the log.
};

}  // namespace rueda::engine
