// Where the launchers of a job's nodes, or its ranks one by one, meet and agree on who runs what.
// No gRPC type in here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/base/layout.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Who meets. Ranks that mpirun or the like has started come one by one, and several use one daemon.
enum class Meeting { kNodes, kRanks };

// What one node says of itself; where ranks meet, they are numbered instead of nodes, and nproc
// is 1.
struct Arrival {
  int node_rank = 0;
  int nnodes = 0;
  int nproc = 0;
  std::string node_id;
  std::string control_address;
  std::string rdzv_id;
  // Random (new_launcher()), another one for each launcher.
  std::string launcher;
  // The host of control_address is no more than a guess.
  bool guesses_host = false;
};

inline constexpr size_t kLauncherBytes = 16;

// Who has arrived; pure, for one thread.
class RendezvousTable {
 public:
  RendezvousTable(int nnodes, std::string rdzv_id, Meeting meeting = Meeting::kNodes)
      : nnodes_(nnodes), rdzv_id_(std::move(rdzv_id)), meeting_(meeting) {}

  // kUnavailable: not now, the caller may try again (another job's rendezvous is still here).
  // The same launcher may arrive again; another one with its number is refused.
  Status arrive(const Arrival& arrival);
  // Before all have arrived: forget this one, its launcher has gone.
  void depart(int node_rank);
  bool is_complete() const { return static_cast<int>(arrivals_.size()) == nnodes_; }
  // "1, 3": the numbers that have not arrived.
  std::string missing() const;
  // Of number 0, which has the rendezvous.
  bool guesses_own_host() const;
  // Once complete: the nodes by number with their ranks, and with it nobody can depart any more.
  // Ranks that use one daemon are on one node; nodes are then in the order of their first ranks.
  Result<std::vector<NodeLayout>> lay_out();

 private:
  Status check(const Arrival& arrival, const std::string& who) const;

  const int nnodes_;
  const std::string rdzv_id_;
  const Meeting meeting_;
  bool is_laid_out_ = false;
  std::map<int, Arrival> arrivals_;
};

// Everything of a JobLayout but its nodes, made by node 0.
struct JobIdentity {
  JobId job_id;
  std::string token;
  std::string master_addr;
  int master_port = 0;
};

struct RendezvousSetting {
  std::string endpoint;  // HOST:PORT or "unix:PATH"
  int nnodes = 0;
  std::string rdzv_id;
  // What all launchers of the job know and nobody else; empty: whoever is first is let in.
  std::string secret;
  Meeting meeting = Meeting::kNodes;
  // Somebody was refused, or an address was taken from a connection. On one of gRPC's threads.
  std::function<void(const std::string&)> note;
};

class RendezvousServer {
 public:
  // kUnavailable if the port is taken. See RendezvousGate for where it listens.
  static Result<std::unique_ptr<RendezvousServer>> start(RendezvousSetting setting,
                                                         JobIdentity identity);
  // Refuses who still waits, and blocks until they have heard of it, for half a second at most.
  virtual ~RendezvousServer() = default;
  // Thread-safe, as is the rest.
  //
  // The numbers of the nodes, or ranks, that have not come.
  virtual std::string missing() const = 0;
  // Why the last one that was refused was; empty: none was.
  virtual std::string last_refusal() const = 0;
  // Tells all who wait that nothing comes of it.
  virtual void give_up(const std::string& why) = 0;
  // Where this machine's own launcher enters.
  virtual std::string local_endpoint() const = 0;
};

// One attempt to meet. The callback comes once, on one of its threads. kUnavailable: try again;
// kShutDown: node 0 has given the job up, and says why.
class RendezvousCall {
 public:
  struct Events {
    std::function<void(Result<JobLayout>)> done;
    // Node 0 is there, and these have not come: "1, 3".
    std::function<void(std::string)> waiting;
  };
  // Waits up to `timeout_ms` for the endpoint and then for the other nodes.
  static std::unique_ptr<RendezvousCall> start(const std::string& endpoint, const Arrival& arrival,
                                               const std::string& secret, int64_t timeout_ms,
                                               Events events);
  // Cancels; nothing is called back any more. Not to be called from a callback.
  virtual ~RendezvousCall() = default;
};

// A launcher's random id.
Result<std::string> new_launcher();

}  // namespace rueda::agent
