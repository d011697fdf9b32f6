#include <algorithm>

#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::agent {

Status RendezvousTable::arrive(const Arrival& arrival) {
  const std::string kind = meeting_ == Meeting::kNodes ? "node " : "rank ";
  const std::string who = kind + std::to_string(arrival.node_rank);
  if (arrival.rdzv_id != rdzv_id_) {
    return Status(Code::kUnavailable, "the rendezvous belongs to another --rdzv-id than \"" +
                                          arrival.rdzv_id + "\" of " + who);
  }
  if (is_laid_out_) {
    const auto found = arrivals_.find(arrival.node_rank);
    // The first answer to this launcher was lost on the way.
    if (found != arrivals_.end() && found->second.launcher == arrival.launcher) {
      return Status::ok();
    }
    return Status(Code::kUnavailable, "the job at this rendezvous has started without this " + who);
  }
  if (arrival.nnodes != nnodes_) {
    const std::string what = meeting_ == Meeting::kNodes ? " says --nnodes " : " counts ranks: ";
    return Status(Code::kInvalidArgument, who + what + std::to_string(arrival.nnodes) + ", " +
                                              kind + "0 says " + std::to_string(nnodes_) +
                                              ": give all the same");
  }
  if (Status status = check(arrival, who); !status.is_ok()) return status;
  if (arrival.node_rank < 0 || arrival.node_rank >= nnodes_) {
    return Status(Code::kInvalidArgument, "--node-rank " + std::to_string(arrival.node_rank) +
                                              " is not one of " + std::to_string(nnodes_) +
                                              " nodes: the first is 0");
  }
  const auto [found, is_new] = arrivals_.try_emplace(arrival.node_rank, arrival);
  if (!is_new && found->second.launcher != arrival.launcher) {
    const bool is_nodes = meeting_ == Meeting::kNodes;
    return Status(
        Code::kInvalidArgument,
        (is_nodes ? "two nodes say --node-rank " : "two processes say that they are rank ") +
            std::to_string(arrival.node_rank) + ", at " + found->second.control_address +
            " and at " + arrival.control_address + ": the first has come; give each its own");
  }
  for (const auto& [number, other] : arrivals_) {
    if (meeting_ == Meeting::kRanks) break;
    if (number == arrival.node_rank || other.node_id != arrival.node_id) continue;
    if (is_new) arrivals_.erase(arrival.node_rank);
    return Status(Code::kInvalidArgument, who + " and node " + std::to_string(number) +
                                              " both use the daemon \"" + arrival.node_id +
                                              "\": give each daemon its own --node-id");
  }
  found->second = arrival;
  return Status::ok();
}

void RendezvousTable::depart(int node_rank) {
  if (!is_laid_out_) arrivals_.erase(node_rank);
}

// Refuses what would be told to the other nodes and would make them fail.
Status RendezvousTable::check(const Arrival& arrival, const std::string& who) const {
  if (arrival.launcher.size() != kLauncherBytes) {
    return Status(Code::kVersion, who + " runs another version: install the same one everywhere");
  }
  if (arrival.node_id.empty() || arrival.node_id.size() > limits::kMaxNodeIdBytes ||
      !is_one_line(arrival.node_id)) {
    return Status(Code::kInvalidArgument, who + " has a daemon with a name that is none: \"" +
                                              one_line(arrival.node_id, kShownNameBytes) + "\"");
  }
  if (const auto address = parse_dial_address(arrival.control_address); !address.is_ok()) {
    return Status(Code::kInvalidArgument,
                  "of the control address of " + who + ": " + address.status().message());
  }
  if (arrival.nproc < 1 || arrival.nproc > limits::kMaxLocalRanks) {
    return Status(Code::kInvalidArgument, who + " has " + std::to_string(arrival.nproc) +
                                              " ranks: a node has 1 to " +
                                              std::to_string(limits::kMaxLocalRanks));
  }
  return Status::ok();
}

bool RendezvousTable::guesses_own_host() const {
  const auto found = arrivals_.find(0);
  return found != arrivals_.end() && found->second.guesses_host;
}

std::string RendezvousTable::missing() const {
  std::string out;
  for (int number = 0; number < nnodes_; ++number) {
    if (arrivals_.count(number) == 0) out += (out.empty() ? "" : ", ") + std::to_string(number);
  }
  return out;
}

Result<std::vector<NodeLayout>> RendezvousTable::lay_out() {
  RUEDA_CHECK(is_complete());
  is_laid_out_ = true;
  std::vector<int> counts;
  for (const auto& [number, arrival] : arrivals_) counts.push_back(arrival.nproc);
  Result<std::vector<std::vector<Rank>>> blocks = deal_by_counts(counts);
  if (!blocks.is_ok()) return blocks.status();
  std::vector<NodeLayout> out;
  for (const auto& [number, arrival] : arrivals_) {
    const std::vector<Rank>& ranks = blocks.value()[static_cast<size_t>(number)];
    const auto same = std::find_if(
        out.begin(), out.end(),
        [&arrival = arrival](const NodeLayout& node) { return node.node_id == arrival.node_id; });
    if (same == out.end()) {
      out.push_back({arrival.node_id, arrival.control_address, ranks, arrival.incarnation});
    } else {
      same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
    }
  }
  return out;
}

}  // namespace rueda::agent
