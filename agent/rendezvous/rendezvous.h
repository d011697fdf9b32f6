// The place where the launchers of a job's nodes, or its ranks one by one, meet and agree on who
// runs what. This header has no type of gRPC's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/base/layout.h"
#include "agent/rendezvous/rendezvous_auth.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Keeps gRPC's own log off the terminal unless $GRPC_VERBOSITY asks for it: errors that are
// reported have what matters. Must be called before any other call.
void quiet_grpc();

// Says who meets. Ranks that mpirun or the like has started come one by one, and several of them
// use one daemon.
enum class Meeting { kNodes, kRanks };

// Holds a node's description of itself. Where ranks meet, ranks are numbered instead of nodes, and
// nproc is 1.
struct Arrival {
  int node_rank = 0;
  int nnodes = 0;
  int nproc = 0;
  std::string node_id;
  std::string control_address;
  std::string rdzv_id;
  // A random id of the launcher (new_launcher()).
  std::string launcher;
  // True if the host of control_address is only a guess.
  bool guesses_host = false;
  uint64_t incarnation = 0;  // See NodeLayout.
  // Of an elastic job: with how many nodes it begins; nnodes is the most that it may have.
  // Otherwise 0.
  int min_nodes = 0;
  // If true, the daemon is the launcher's own, and waits for a certificate.
  bool awaits_certificate = false;
};

inline constexpr size_t kLauncherBytes = 16;

// Holds the arrivals at a rendezvous. The class is pure, and for one thread.
class RendezvousTable {
 public:
  // `min_nodes` is Arrival's. With `admits_late`, nodes may come when the others have met.
  RendezvousTable(int nnodes, std::string rdzv_id, Meeting meeting = Meeting::kNodes,
                  int min_nodes = 0, bool admits_late = false)
      : nnodes_(nnodes),
        rdzv_id_(std::move(rdzv_id)),
        meeting_(meeting),
        min_nodes_(min_nodes),
        admits_late_(admits_late) {}

  // The job runs already, as a node that is not among those who have arrived says: all are late,
  // and so is whoever still comes. Nobody may have met. `has_certificates` is what that node says.
  void take_up(bool has_certificates);
  // Returns why the arrival does not fit the others' job.
  Status fits(const Arrival& arrival) const;
  // Registers an arrival. The same launcher may arrive again; another launcher with its number is
  // refused. kUnavailable means that the caller may try again later (another job's rendezvous is
  // still here).
  Status arrive(const Arrival& arrival);
  // Forgets an arrival whose launcher has gone. Once all have met, that only frees its number.
  void depart(int node_rank);
  bool is_complete() const {
    return static_cast<int>(arrivals_.size()) >= (min_nodes_ > 0 ? min_nodes_ : nnodes_) &&
           arrivals_.contains(0);
  }
  bool has_met() const { return is_laid_out_; }
  // Returns whether the job's daemons have certificates, once all have met: each of them waits for
  // one.
  bool has_certificates() const { return has_certificates_; }
  // Returns the control address with which the node has arrived.
  const std::string& address_of(int node_rank) const {
    return arrivals_.at(node_rank).control_address;
  }
  // Returns whether the node has arrived once the others had met.
  bool is_late(int node_rank) const { return late_.contains(node_rank); }
  // Returns the numbers that have not arrived, such as "1, 3".
  std::string missing() const;
  // Returns whether number 0, which runs the rendezvous, guesses its own host.
  bool guesses_own_host() const;
  // Returns the nodes by number with their ranks, once all have arrived; nobody can depart after
  // that. Ranks that use one daemon are on one node; nodes are then in the order of their first
  // ranks.
  Result<std::vector<NodeLayout>> lay_out();
  // Fills in the nodes of the layout for a node that has arrived once the others have met.
  void lay_out_late(int node_rank, JobLayout& job) const;

 private:
  Status arrive_late(const Arrival& arrival, const std::string& who);
  std::string who(const Arrival& arrival) const;
  Status check_id(const Arrival& arrival) const;
  Status check(const Arrival& arrival, const std::string& who) const;
  Status check_size(const Arrival& arrival, const std::string& who) const;
  Status check_daemon(const Arrival& arrival, const std::string& who) const;

  const int nnodes_;
  const std::string rdzv_id_;
  const Meeting meeting_;
  const int min_nodes_;
  const bool admits_late_;
  bool is_laid_out_ = false;
  bool has_certificates_ = false;
  std::vector<NodeLayout> layout_;  // Once all have met.
  std::set<int> late_;
  std::map<int, Arrival> arrivals_;
  std::set<int> departed_;  // Numbers whose launcher has gone since all have met.
};

// Holds everything of a JobLayout except its nodes. Node 0 makes it.
struct JobIdentity {
  JobId job_id;
  std::string token;
  std::string master_addr;
  int master_port = 0;
  bool has_certificates = false;  // Of a job that runs; it is JobLayout's.
};

struct RendezvousSetting {
  std::string endpoint;  // HOST:PORT or "unix:PATH"
  int nnodes = 0;
  std::string rdzv_id;
  // How launchers know each other. With kNone the first to come with a number is admitted.
  RendezvousAuth auth;
  Meeting meeting = Meeting::kNodes;
  // Called on a thread of gRPC's when somebody was refused, or an address was taken from a
  // connection.
  std::function<void(const std::string&)> note;
  // Of an elastic job (Arrival), and whether nodes may come when the others have met.
  int min_nodes = 0;
  bool admits_late = false;
};

class RendezvousServer {
 public:
  // Starts to serve. kUnavailable means that the port is taken. See RendezvousGate for where it
  // listens.
  static Result<std::unique_ptr<RendezvousServer>> start(RendezvousSetting setting,
                                                         JobIdentity identity);
  // Refuses those who still wait, and blocks until they have been told, for at most half a second.
  virtual ~RendezvousServer() = default;
  // These methods are thread-safe.
  //
  // Returns the numbers of the nodes, or ranks, that have not come.
  virtual std::string missing() const = 0;
  // Returns the reason for the last refusal, or "" if nobody was refused.
  virtual std::string last_refusal() const = 0;
  // Tells all who wait that the job has been given up.
  virtual void give_up(const std::string& why) = 0;
  // Returns the endpoint at which this machine's own launcher enters.
  virtual std::string local_endpoint() const = 0;
};

// One attempt to meet. `done` is called once, on a thread of the call's. kUnavailable means that
// the caller may try again; kShutDown means that node 0 has given the job up, and has the reason.
class RendezvousCall {
 public:
  struct Events {
    std::function<void(Result<JobLayout>)> done;
    // Reports that node 0 is there, and that the numbers given, such as "1, 3", have not come.
    std::function<void(std::string)> waiting;
    // Reports, in an elastic job and after done() has had a layout, that node 0's launcher is gone.
    std::function<void()> ended = {};
  };
  // Waits up to `timeout_ms` for the endpoint and then for the other nodes. `running`, which needs
  // another `auth` than kNone, says that the caller's job runs already: a node 0 that has begun
  // none takes it up.
  static std::unique_ptr<RendezvousCall> start(const std::string& endpoint, const Arrival& arrival,
                                               const RendezvousAuth& auth, int64_t timeout_ms,
                                               Events events,
                                               std::optional<JobIdentity> running = {});
  // Cancels the attempt; after that nothing is called back. Must not be called from a callback.
  virtual ~RendezvousCall() = default;
};

// Returns a random id for a launcher.
Result<std::string> new_launcher();

}  // namespace rueda::agent
