// The launcher's side of agent.proto: describing a daemon, and keeping a job registered with it.
// No gRPC type in this header, so that units that include it can be built with ThreadSanitizer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/base/layout.h"
#include "agent/cli/agreement_settings.h"
#include "agent/launch/supervisor.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Keeps gRPC's own log off the terminal unless $GRPC_VERBOSITY asks for it: what matters is in the
// errors that are reported. Before any other call.
void quiet_grpc();

struct DaemonDescription {
  std::string node_id;
  std::string version;
  int control_port = 0;
  int http_port = 0;
  // host:port that other daemons reach it by; may be empty.
  std::string advertised_control_address;
  std::string cpus;  // that it keeps to, as in "0-3,8"; empty: where the system puts it
};

// Asks the daemon at a socket who it is; blocks for `timeout_ms` at most. kDaemonLost: nobody
// listens there, or it does not answer.
Result<DaemonDescription> describe_daemon(const std::string& socket, int64_t timeout_ms);

struct JobRegistration {
  JobLayout job;
  int node_index = 0;
  std::string user;
  AgreementSettings agreement;
  int64_t start_timeout_ms = 0;
  std::optional<int64_t> stall_check_ms;
  std::optional<int64_t> stall_shutdown_ms;
  // One of several registrations of this job on the node: it lasts until the last is closed.
  bool is_shared = false;
  // Of node 0: a timeline from the beginning, into this file; empty: none.
  std::string timeline;
  bool timeline_has_chunks = false;
  // Reductions of this node's ranks are looked at for NaN and infinity.
  bool checks_finite = false;
};

// One job's registration with one daemon: it lasts as long as the stream.
class AgentLink {
 public:
  // Called on gRPC's threads, one at a time. on_closed comes last, once, always.
  struct Events {
    std::function<void()> on_registered;
    std::function<void(JobFailure)> on_failed;
    // For people: where a timeline is, or why it is not; likewise of autotuning and of plans.
    std::function<void(std::string)> on_note;
    // OK: closed from here.
    std::function<void(Status)> on_closed;
  };

  static std::unique_ptr<AgentLink> open(const std::string& socket, const JobRegistration& job,
                                         Events events);
  // Cancels, and returns once on_closed has: not to be called from an event.
  virtual ~AgentLink() = default;

  virtual void report_rank_failed(Rank rank, const std::string& text) = 0;
  // Ends the job on that node: what was reported is sent, a timeline that is being written comes to
  // its end, then the stream is closed.
  virtual void close() = 0;
  virtual void cancel() = 0;
};

}  // namespace rueda::agent
