// The launcher's side of agent.proto: it describes a daemon, and keeps a job registered with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/layout.h"
#include "agent/cli/agreement_settings.h"
#include "agent/cli/elastic_settings.h"
#include "agent/launch/supervisor.h"
#include "daemon/base/status.h"

namespace rueda::agent {

struct DaemonDescription {
  std::string node_id;
  std::string version;
  int control_port = 0;
  int http_port = 0;
  // The host:port by which other daemons reach this one; it may be empty.
  std::string advertised_control_address;
  std::string cpus;  // the CPUs that the daemon keeps to, as in "0-3,8"; empty: the system chooses
};

// Asks the daemon at a socket for its description; blocks for at most `timeout_ms` to connect, and
// as long again for the answer. kDaemonLost means that nobody listens there or that the connection
// broke, kTimeout that the daemon does not answer; other errors are those of connect_to_daemon
// (daemon/base/os/daemon_socket.h), and name their remedy.
Result<DaemonDescription> describe_daemon(const std::string& socket, int64_t timeout_ms);

struct JobRegistration {
  JobLayout job;
  int node_index = 0;
  std::string user;
  AgreementSettings agreement;
  int64_t start_timeout_ms = 0;
  std::optional<int64_t> stall_check_ms;
  std::optional<int64_t> stall_shutdown_ms;
  // True if this is one of several registrations of the job on the node: the job lasts until the
  // last is closed.
  bool is_shared = false;
  // The file that a timeline is written to from the beginning, on node 0. It is empty if there is
  // none.
  std::string timeline;
  bool timeline_has_chunks = false;
  // True if reductions of this node's ranks are checked for NaN and infinity.
  bool checks_finite = false;
  // Present if the job is elastic.
  std::optional<ElasticSettings> elastic = std::nullopt;
  // What the daemon before, which has died, asked to keep. It is empty if there was none.
  std::string votes;
  // The slots whose processes have ended since then: badly, and well.
  std::vector<int> ended_slots;
  std::vector<int> finished_slots;
  int slots = 0;  // How many processes are wanted on the node; 0: those of `job`.
};

// A job's registration with one daemon. It lasts as long as the stream.
class AgentLink {
 public:
  // These are called on the link's thread, one at a time. on_closed is always called, once, and
  // last.
  struct Events {
    std::function<void()> on_registered;
    std::function<void(JobFailure)> on_failed;
    // Gets a note for the user: where a timeline is, or why it is not written; also about
    // autotuning and plans.
    std::function<void(std::string)> on_note;
    // A process of an elastic job lives and has not come back; the text says for how long.
    std::function<void(Rank, std::string)> on_rank_silent = [](Rank, const std::string&) {};
    // A process of an elastic job waits in vain: others have ended well, or it is not wanted.
    std::function<void(Rank)> on_rank_unneeded = [](Rank) {};
    // Keeps what a daemon that follows this one needs, before it returns.
    std::function<void(std::string)> on_votes = [](const std::string&) {};
    // The status is OK if the stream was closed by this side.
    std::function<void(Status)> on_closed;
  };

  // Connects to the daemon, and begins to register the job. An error is that of connect_to_daemon
  // (daemon/base/os/daemon_socket.h): no event comes then.
  static Result<std::unique_ptr<AgentLink>> open(const std::string& socket,
                                                 const JobRegistration& job, Events events);
  // Cancels the stream, and returns once on_closed has returned: must not be called from an event.
  virtual ~AgentLink() = default;

  // In an elastic job, here and in the others, `rank` is the slot of the process: its position on
  // the node.
  virtual void report_rank_failed(Rank rank, const std::string& text) = 0;
  // In an elastic job: nobody waits for the rank any more.
  virtual void report_rank_ended(Rank rank) = 0;
  // In an elastic job: so many processes are wanted on the node from now on.
  virtual void want_slots(int slots) = 0;
  // Ends the job on that node: reports are sent, a timeline that is being written is finished, then
  // the stream is closed.
  virtual void close() = 0;
  virtual void cancel() = 0;
};

}  // namespace rueda::agent
