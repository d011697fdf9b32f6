// The interface through which the engine uses the connections between daemons. service/ implements
// it with gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "daemon/base/status.h"
#include "daemon/core/generations/generations.h"
#include "daemon/core/messages/messages.h"
#include "daemon/engine/ports/nonfinite.h"
#include "daemon/engine/ports/proof.h"
#include "daemon/gpu/communicator.h"
#include "daemon/observe/trace.h"

namespace rueda::engine {

// A stream between this daemon and another one; dialled by either side.
using LinkId = uint64_t;

// A core's message on its way between two daemons.
struct Envelope {
  JobId job;
  core::Message message;
  Proof proof;  // With Join, Start, Fail, and a Handover that attaches.
};

// The messages of a job's daemons about its timeline (timeline.h).
//
// This one goes up to the node that has it written: somebody wants it to begin, or to end.
struct TimelineRequest {
  bool begins = false;
  std::string path;  // To begin: the file, as the launcher of node 0 finds it.
  bool wants_chunks = false;
};
// These go down to all: record from here on, and record no longer.
struct TimelineBegin {
  bool wants_chunks = false;
};
struct TimelineEnd {};
// Batches of events go up; this comes back when one has been taken, so that the next may come.
struct TimelineTaken {};
// A node asks its parent what the parent's clock says, and the parent answers.
struct ClockAsk {
  int64_t asked_ns = 0;
};
struct ClockAnswer {
  int64_t asked_ns = 0;
  int64_t heard_ns = 0;
  int64_t replied_ns = 0;
};
struct TimelineMessage {
  JobId job;
  std::variant<TimelineRequest, TimelineBegin, TimelineEnd, observe::TraceBatch, TimelineTaken,
               ClockAsk, ClockAnswer>
      body;
};

// The messages of a job's daemons about values that are not finite (finite_watch.h).
//
// The first goes up: a value has been found. The second goes down: what all nodes are told.
struct FoundNonfinite {
  Nonfinite value;
};
struct FirstNonfinite {
  Nonfinite value;
};
// The first asks upwards whether there is such a value; the second says downwards that there is
// none.
struct AskNonfinite {};
struct NoNonfinite {};
struct NonfiniteMessage {
  JobId job;
  std::variant<FoundNonfinite, FirstNonfinite, AskNonfinite, NoNonfinite> body;
};

// The message, sent to all nodes of a job, by which the GPU workers of a process set find each
// other (nccl_sets.h).
struct CommunicatorMessage {
  JobId job;
  uint32_t process_set = 0;
  gpu::CommunicatorId id{};
};

// Carries a GenerationMessage of an elastic job's. It goes between any two nodes, so each has a
// proof (generation_links.h).
struct GenerationPacket {
  JobId job;
  std::string body;  // See ControlPlane::encode().
  Proof proof;
};

// The events of links. They are told on the control loop.
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  // Returns whether a job of that name runs here, or has been over for a while: messages about it
  // are worth a look.
  virtual bool knows(const JobId& job) const = 0;
  virtual void on_envelope(LinkId link, Envelope envelope) = 0;
  virtual void on_timeline(LinkId link, TimelineMessage message) = 0;
  virtual void on_nonfinite(LinkId link, NonfiniteMessage message) = 0;
  virtual void on_communicator(LinkId link, const CommunicatorMessage& message) = 0;
  virtual void on_generation(LinkId link, const GenerationPacket& packet) = 0;
  // Says that nothing more comes over this link, over which nothing has come for so long. A dialled
  // link is dialled again, under the same id.
  virtual void on_link_lost(LinkId link, const Status& status, TicksMs quiet_ms) = 0;
};

// The links to other daemons. The methods are called on the control loop.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  // Dials a daemon's control address, again and again until released. Callers with the same address
  // share one link. The id is never 0.
  virtual LinkId acquire(const std::string& address) = 0;
  virtual void release(LinkId link) = 0;
  // Returns why a dialled link is not up, as "its daemon at HOST:PORT ...", or "" if it is up, or
  // has not failed.
  virtual std::string trouble(LinkId) const { return {}; }
  // Returns the id of the node that the certificate of a link's peer is for; "" without
  // certificates, or if the link is not up.
  virtual std::string node_of(LinkId) const { return {}; }
  // Tells that whoever is behind a link, which another daemon has dialled, has proved to belong to
  // the job. Before that it is a stranger's link: nothing that it says of the job comes through,
  // but that it wants to join, or has failed. A link that no job is bound to is closed after a
  // while, or if there are too many. It is bound until it is unbound as often, or lost.
  virtual void bind(LinkId /*link*/, const JobId& /*job*/) {}
  virtual void unbind(LinkId /*link*/, const JobId& /*job*/) {}
  // Sends the message, with a proof if it has a key for one. It is dropped if the link is not up:
  // what matters is sent again, or its loss is noticed. But Fails are kept for a link that is
  // dialled, for a while after its release.
  virtual void send(LinkId link, const Envelope& envelope) = 0;
  // These messages, too, are dropped for a link that is not up.
  virtual void send(LinkId link, const TimelineMessage& message) = 0;
  virtual void send(LinkId link, const NonfiniteMessage& message) = 0;
  virtual void send(LinkId link, const CommunicatorMessage& message) = 0;
  // Of each job and kind, the newest packet is kept for a dialled link that is not up yet.
  virtual void send(LinkId link, const GenerationPacket& packet) = 0;

  // These translate the bodies of packets, and what a launcher keeps for its job (ElasticJob). What
  // comes from elsewhere is checked.
  virtual std::string encode(const core::GenerationMessage& message) const = 0;
  virtual Result<core::GenerationMessage> decode(const std::string& body) const = 0;
  virtual std::string encode(const core::GenerationVotes& votes) const = 0;
  virtual Result<core::GenerationVotes> decode_votes(const std::string& bytes) const = 0;
};

}  // namespace rueda::engine
