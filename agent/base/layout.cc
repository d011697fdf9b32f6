#include "agent/base/layout.h"

#include "agent/base/text.h"
#include "daemon/base/limits.h"
#include "daemon/base/rank_token.h"

namespace rueda::agent {

int JobLayout::world_size() const {
  if (is_late()) return whole_size;
  size_t count = 0;
  for (const NodeLayout& node : nodes) count += node.ranks.size();
  return static_cast<int>(count);
}

Result<std::vector<std::vector<Rank>>> deal_by_counts(const std::vector<int>& counts) {
  if (counts.size() > static_cast<size_t>(limits::kMaxNodes)) {
    return Status(Code::kInvalidArgument, std::to_string(counts.size()) +
                                              " nodes are too many: a job has at most " +
                                              std::to_string(limits::kMaxNodes));
  }
  std::vector<std::vector<Rank>> blocks(counts.size());
  int next = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1 || counts[i] > limits::kMaxLocalRanks) {
      return Status(Code::kInvalidArgument,
                    "node " + std::to_string(i) + " would get " + std::to_string(counts[i]) +
                        " ranks: a node takes 1 to " + std::to_string(limits::kMaxLocalRanks));
    }
    for (int k = 0; k < counts[i]; ++k) blocks[i].push_back(Rank(next++));
  }
  if (next > limits::kMaxRanks) {
    return Status(Code::kInvalidArgument, std::to_string(next) +
                                              " ranks are too many: a job has at most " +
                                              std::to_string(limits::kMaxRanks));
  }
  return blocks;
}

Result<std::vector<std::vector<Rank>>> deal_evenly(int ranks, int nodes) {
  if (nodes < 1 || ranks < nodes) {
    return Status(Code::kInvalidArgument, std::to_string(ranks) + " ranks cannot fill " +
                                              std::to_string(nodes) +
                                              " nodes: every node needs one rank at least");
  }
  std::vector<int> counts;
  for (int i = 0; i < nodes; ++i) counts.push_back(ranks / nodes + (i < ranks % nodes ? 1 : 0));
  return deal_by_counts(counts);
}

Environment rank_environment(const JobLayout& job, int node_index, Rank own, int local_rank,
                             const std::string& socket,
                             const std::vector<std::string>& http_addresses) {
  const NodeLayout& node = job.nodes.at(job.is_late() ? 0 : node_index);
  const std::string node_text = std::to_string(node_index);
  std::string http;
  for (const std::string& address : http_addresses) {
    if (!http.empty()) http += ',';
    http += address;
  }
  const std::string rank = std::to_string(own.value);
  const std::string size = std::to_string(job.world_size());
  const std::string local_size = std::to_string(node.ranks.size());
  const std::string node_count = std::to_string(job.nodes.size() + job.contacts.size());
  return {
      {"RANK", rank},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", size},
      {"LOCAL_WORLD_SIZE", local_size},
      {"NODE_RANK", node_text},
      {"GROUP_RANK", node_text},
      {"MASTER_ADDR", job.master_addr},
      {"MASTER_PORT", std::to_string(job.master_port)},
      // The other variables of torchrun's. Frameworks take a rank from the ones above only if a run
      // has an id. ruedarun starts no set of ranks again, and has no roles, so all have one role.
      {"TORCHELASTIC_RUN_ID", job.job_id},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"GROUP_WORLD_SIZE", node_count},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", size},
      {"RUEDA_SOCKET", socket},
      {"RUEDA_JOB_ID", job.job_id},
      {"RUEDA_NODE_RANK", node_text},
      {"RUEDA_NNODES", node_count},
      {"RUEDA_HTTP_ADDRESSES", http},
      // Scripts that were written for Horovod read these variables.
      {"HOROVOD_RANK", rank},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", std::to_string(local_rank)},
      {"HOROVOD_LOCAL_SIZE", local_size},
      {"HOROVOD_CROSS_RANK", node_text},
      {"HOROVOD_CROSS_SIZE", node_count},
  };
}

std::string token_text(const JobLayout& job, const std::string& node_id, Rank rank, int local_rank,
                       bool is_elastic) {
  return to_hex(is_elastic ? slot_token(job.token, job.job_id, node_id, LocalRank{local_rank})
                           : rank_token(job.token, job.job_id, rank));
}

}  // namespace rueda::agent
