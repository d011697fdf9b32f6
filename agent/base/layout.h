// The layout of a job: how ranks are dealt to nodes, and what a rank is told about it. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/base/status.h"

namespace rueda::agent {

struct NodeLayout {
  std::string node_id;
  // The host:port of the daemon's control service.
  std::string control_address;
  // The node's ranks, ascending; a rank's local rank is its position in the list.
  std::vector<Rank> ranks;
  // In an elastic job, the number of this life of the job on the node (agent.proto's NodeSpec).
  uint64_t incarnation = 0;

  bool operator==(const NodeLayout&) const = default;
};

// Describes a job as all its launchers agree on it.
struct JobLayout {
  JobId job_id;
  // The job's secret: limits::kTokenBytes random bytes. It is never printed, never on a command
  // line, and no rank gets it.
  std::string token;
  std::vector<NodeLayout> nodes;
  std::string master_addr;
  int master_port = 0;
  // Of an elastic job that runs already: control addresses of its nodes. `nodes` is then the node
  // that comes late, with the ranks that it would have if all nodes were there, and all of them
  // together would have `whole_size` ranks.
  std::vector<std::string> contacts = {};
  int whole_size = 0;
  // If true, all daemons of the job are private, and have certificates of the job's authority
  // (agent/launch/job_certificates.h).
  bool has_certificates = false;

  bool is_late() const { return !contacts.empty(); }
  int world_size() const;
};

// Deals ranks to nodes in contiguous blocks as even as can be; the first nodes get one more (5 on
// 2: 3 and 2). Fails when a node would get no rank, or more than limits::kMaxLocalRanks.
Result<std::vector<std::vector<Rank>>> deal_evenly(int ranks, int nodes);

// Deals ranks to nodes in contiguous blocks of the given sizes, in order. Fails as deal_evenly()
// does.
Result<std::vector<std::vector<Rank>>> deal_by_counts(const std::vector<int>& counts);

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the variables that the rank at `local_rank` of node `node_index` gets on top of the
// launcher's environment, but for its token. `http_addresses` are those of the daemons that this
// launcher knows.
Environment rank_environment(const JobLayout& job, int node_index, Rank rank, int local_rank,
                             const std::string& socket,
                             const std::vector<std::string>& http_addresses);

// The variables by which a rank gets its token: the number of a descriptor that it inherits, or the
// token itself, which every child of the rank and every dump of its environment would have, too.
inline constexpr char kTokenFdVariable[] = "RUEDA_JOB_TOKEN_FD";
inline constexpr char kTokenVariable[] = "RUEDA_JOB_TOKEN";
// Returns the rank's token in hexadecimal, as librueda takes it.
std::string token_text(const JobLayout& job, const std::string& node_id, Rank rank, int local_rank,
                       bool is_elastic);

}  // namespace rueda::agent
