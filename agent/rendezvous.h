// Where the launchers of a job's nodes, or its ranks one by one, meet and agree on who runs what.
// No gRPC type in here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/layout.h"
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
};

// Who has arrived; pure, for one thread.
class RendezvousTable {
 public:
  RendezvousTable(int nnodes, std::string rdzv_id, Meeting meeting = Meeting::kNodes)
      : nnodes_(nnodes), rdzv_id_(std::move(rdzv_id)), meeting_(meeting) {}

  // kUnavailable: not now, the caller may try again (another job's rendezvous is still here).
  // The same node may arrive again; another one with its number is refused.
  Status arrive(const Arrival& arrival);
  // Before all have arrived: forget this one, its launcher has gone.
  void depart(int node_rank);
  bool is_complete() const { return static_cast<int>(arrivals_.size()) == nnodes_; }
  // "1, 3": the numbers that have not arrived.
  std::string missing() const;
  // Once complete: the nodes by number with their ranks, and with it nobody can depart any more.
  // Ranks that use one daemon are on one node; nodes are then in the order of their first ranks.
  Result<std::vector<NodeLayout>> lay_out();

 private:
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

class RendezvousServer {
 public:
  // Listens at "unix:PATH", or at the endpoint's port: on the loopback only if its host is one,
  // else on all addresses, because its name may be a forwarded one. kUnavailable if the port is
  // taken.
  static Result<std::unique_ptr<RendezvousServer>> start(const std::string& endpoint, int nnodes,
                                                         const std::string& rdzv_id,
                                                         JobIdentity identity,
                                                         Meeting meeting = Meeting::kNodes);
  // Refuses who still waits, and blocks until they have heard of it, for half a second at most.
  virtual ~RendezvousServer() = default;
  // The numbers of the nodes, or ranks, that have not come. Thread-safe.
  virtual std::string missing() const = 0;
};

// One attempt to meet. The callback comes once, on one of gRPC's threads; kUnavailable: try again.
class RendezvousCall {
 public:
  using Callback = std::function<void(Result<JobLayout>)>;
  // Waits up to `timeout_ms` for the endpoint and then for the other nodes.
  static std::unique_ptr<RendezvousCall> start(const std::string& endpoint, const Arrival& arrival,
                                               int64_t timeout_ms, Callback callback);
  // Cancels, and returns once the callback has: not to be called from it.
  virtual ~RendezvousCall() = default;
};

}  // namespace rueda::agent
