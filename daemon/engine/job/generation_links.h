// The links by which an elastic job's node agrees with others on the next generation. Whoever has
// spoken is answered over the link by which it did; others are dialled, by address. Links over
// which nothing has been said for a while are let go: a job that runs has none. They belong to the
// control loop.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/engine/ports/control_plane.h"

namespace rueda::engine {

class GenerationLinks {
 public:
  // The control plane must outlive the object.
  GenerationLinks(ControlPlane& control_plane, JobId job, const std::string& token)
      : control_plane_(control_plane),
        job_(std::move(job)),
        proof_key_(make_proof_key(token, job_)) {}
  ~GenerationLinks();
  GenerationLinks(const GenerationLinks&) = delete;
  GenerationLinks& operator=(const GenerationLinks&) = delete;

  void send(TicksMs now, const std::string& address, const core::GenerationMessage& message);
  // Returns what the packet says, or nothing if its sender does not know the job's token, speaks
  // for another node than its certificate is for, or says nothing that can be understood. Its link
  // is needed by the job from then on.
  std::optional<core::GenerationMessage> open(LinkId link, const GenerationPacket& packet);

  // Forgets the link. Returns the address that was behind it, or "" if this node has not dialled
  // it.
  std::string lose(LinkId link);
  // Returns the addresses that have been dialled and cannot be reached.
  std::vector<std::string> unreachable() const;
  bool has_any() const { return !dialled_.empty(); }
  // Lets go of links over which nothing has been said since that time.
  void release_unused(TicksMs since);

 private:
  struct Dialled {
    LinkId link = 0;
    TicksMs used = 0;
  };

  // Returns 0 if there are too many.
  LinkId link_to(TicksMs now, const std::string& address);
  bool has_dialled(LinkId link) const;
  void warn_once(const std::string& what);

  ControlPlane& control_plane_;
  const JobId job_;
  const std::string proof_key_;
  std::map<std::string, Dialled> dialled_;  // By address.
  std::set<LinkId> bound_;                  // Those over which others have said something.
  std::map<std::string, LinkId> accepted_;  // By the address of who has dialled it.
  bool has_warned_ = false;  // It warns once, because a stranger must not fill the log.
};

}  // namespace rueda::engine
