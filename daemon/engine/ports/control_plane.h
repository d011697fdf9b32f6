// The interface through which the engine uses the connections between daemons. service/ implements
// it with gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "daemon/base/status.h"
#include "daemon/core/messages/messages.h"
#include "daemon/engine/ports/nonfinite.h"
#include "daemon/gpu/communicator.h"
#include "daemon/observe/trace.h"

namespace rueda::engine {

// A stream between this daemon and another one; dialled by either side.
using LinkId = uint64_t;

// A core's message on its way between two daemons.
struct Envelope {
  JobId job;
  core::Message message;
  std::string proof;  // with Join, Start and Fail: that the sender belongs to the job (proof.h)
};

// What the daemons of a job say to each other of its timeline (timeline.h).
//
// Up to the node that has it written: somebody wants it to begin, or to end.
struct TimelineRequest {
  bool begins = false;
  std::string path;  // to begin: the file, as the launcher of node 0 finds it
  bool wants_chunks = false;
};
// Down to all: record, and no longer.
struct TimelineBegin {
  bool wants_chunks = false;
};
struct TimelineEnd {};
// Up: events; and back, that one has been taken: the next may come.
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

// What the daemons of a job say to each other of values that are not finite (finite_watch.h).
//
// Up: one has been found. Down: what all are told.
struct FoundNonfinite {
  Nonfinite value;
};
struct FirstNonfinite {
  Nonfinite value;
};
// Up: is there one? Down: there is none.
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

// Called on the control loop.
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  // Whether a job of that name runs here, or has been over for a while: what others say of it to
  // come in is worth a look.
  virtual bool knows(const JobId& job) const = 0;
  virtual void on_envelope(LinkId link, Envelope envelope) = 0;
  virtual void on_timeline(LinkId link, TimelineMessage message) = 0;
  virtual void on_nonfinite(LinkId link, NonfiniteMessage message) = 0;
  virtual void on_communicator(LinkId link, const CommunicatorMessage& message) = 0;
  // Says that nothing more comes over this link. A dialled link is dialled again, under the same
  // id.
  virtual void on_link_lost(LinkId link, const Status& status) = 0;
};

// Called on the control loop.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  // Dials a daemon's control address, again and again until released. Callers with the same address
  // share one link. Never 0.
  virtual LinkId acquire(const std::string& address) = 0;
  virtual void release(LinkId link) = 0;
  // Why a dialled link is not up, as "its daemon at HOST:PORT ..."; empty: it is, or has not
  // failed.
  virtual std::string trouble(LinkId) const { return {}; }
  // Of a link that another daemon has dialled: who is behind it has proved to belong to the job.
  // Before that it is a stranger's: nothing that it says of the job comes through, but that it
  // wants to join, or has failed. What no job is bound to is closed after a while, or where there
  // are too many. Bound until unbound, or lost.
  virtual void bind(LinkId /*link*/, const JobId& /*job*/) {}
  virtual void unbind(LinkId /*link*/, const JobId& /*job*/) {}
  // Messages for a link that is not up are dropped: what matters is sent again, or its loss is
  // noticed. But Fails are kept for a link that is dialled, for a while after its release.
  virtual void send(LinkId link, const Envelope& envelope) = 0;
  // These messages, too, are dropped for a link that is not up.
  virtual void send(LinkId link, const TimelineMessage& message) = 0;
  virtual void send(LinkId link, const NonfiniteMessage& message) = 0;
  virtual void send(LinkId link, const CommunicatorMessage& message) = 0;
};

}  // namespace rueda::engine
