#include <algorithm>
#include <utility>

#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::agent {

std::string RendezvousTable::who(const Arrival& arrival) const {
  return (meeting_ == Meeting::kNodes ? "node " : "rank ") + std::to_string(arrival.node_rank);
}

Status RendezvousTable::check_id(const Arrival& arrival) const {
  if (arrival.rdzv_id == rdzv_id_) return Status::ok();
  return Status(Code::kUnavailable, "the rendezvous belongs to another --rdzv-id than \"" +
                                        arrival.rdzv_id + "\" of " + who(arrival));
}

void RendezvousTable::take_up(bool has_certificates) {
  RUEDA_CHECK(!is_laid_out_);
  is_laid_out_ = true;
  has_certificates_ = has_certificates;
  for (const auto& [number, arrival] : arrivals_) late_.insert(number);
}

Status RendezvousTable::fits(const Arrival& arrival) const {
  if (Status status = check_id(arrival); !status.is_ok()) return status;
  if (Status status = check_size(arrival, who(arrival)); !status.is_ok()) return status;
  return check(arrival, who(arrival));
}

Status RendezvousTable::arrive(const Arrival& arrival) {
  const std::string who = this->who(arrival);
  if (Status status = check_id(arrival); !status.is_ok()) return status;
  if (is_laid_out_ && min_nodes_ > 0) return arrive_late(arrival, who);
  if (is_laid_out_) {
    const auto found = arrivals_.find(arrival.node_rank);
    // The first answer to this launcher was lost on the way.
    if (found != arrivals_.end() && found->second.launcher == arrival.launcher) {
      return Status::ok();
    }
    return Status(Code::kUnavailable, "the job at this rendezvous has started without this " + who);
  }
  if (Status status = fits(arrival); !status.is_ok()) return status;
  const auto [found, is_new] = arrivals_.try_emplace(arrival.node_rank, arrival);
  if (!is_new && found->second.launcher != arrival.launcher) {
    const bool is_nodes = meeting_ == Meeting::kNodes;
    return Status(
        Code::kInvalidArgument,
        (is_nodes ? "two nodes say --node-rank " : "two processes say that they are rank ") +
            std::to_string(arrival.node_rank) + ", at " + found->second.control_address +
            " and at " + arrival.control_address + ": the first has come; give each its own");
  }
  if (Status status = check_daemon(arrival, who); !status.is_ok()) {
    if (is_new) arrivals_.erase(arrival.node_rank);
    return status;
  }
  found->second = arrival;
  return Status::ok();
}

Status RendezvousTable::arrive_late(const Arrival& arrival, const std::string& who) {
  const auto found = arrivals_.find(arrival.node_rank);
  // The first answer to this launcher was lost on the way.
  const bool is_known = found != arrivals_.end() && found->second.launcher == arrival.launcher;
  if (!admits_late_ && !is_known) {
    return Status(Code::kUnavailable, "the job at this rendezvous has started without this " + who +
                                          ": for nodes to come late, give all the same "
                                          "--rdzv-secret-file");
  }
  if (Status status = fits(arrival); !status.is_ok()) return status;
  if (has_certificates_ && !arrival.awaits_certificate) {
    return Status(Code::kInvalidArgument,
                  "the daemons of this job are private ones with certificates of the job's own, "
                  "which the daemon of " +
                      who +
                      " cannot have: leave out --socket, --daemon-arg=--insecure and "
                      "--daemon-arg=--tls-dir there, so that it gets a private one, too");
  }
  if (!is_known && found != arrivals_.end() && !departed_.contains(arrival.node_rank)) {
    return Status(Code::kUnavailable, "the launcher of " + who + " at " +
                                          found->second.control_address +
                                          " is still there: end it first");
  }
  if (Status status = check_daemon(arrival, who); !status.is_ok()) return status;
  if (!is_known) late_.insert(arrival.node_rank);
  departed_.erase(arrival.node_rank);
  arrivals_.insert_or_assign(arrival.node_rank, arrival);
  return Status::ok();
}

void RendezvousTable::lay_out_late(int node_rank, JobLayout& job) const {
  const Arrival& late = arrivals_.at(node_rank);
  NodeLayout& node = job.nodes.emplace_back();
  node = {late.node_id, late.control_address, {}, late.incarnation};
  for (int i = 0; i < late.nproc; ++i) node.ranks.emplace_back(node_rank * late.nproc + i);
  job.whole_size = nnodes_ * late.nproc;
  job.has_certificates = has_certificates_;
  for (const auto& [number, other] : arrivals_) {
    if (number != node_rank) job.contacts.push_back(other.control_address);
  }
}

Status RendezvousTable::check_size(const Arrival& arrival, const std::string& who) const {
  const std::string kind = meeting_ == Meeting::kNodes ? "node " : "rank ";
  if (arrival.min_nodes != min_nodes_) {
    const auto told = [](int min, int max) {
      return min == 0 ? std::string("nothing of --min-np")
                      : std::to_string(min) + ":" + std::to_string(max) + " nodes";
    };
    return Status(Code::kInvalidArgument, who + " says " + told(arrival.min_nodes, arrival.nnodes) +
                                              ", node 0 says " + told(min_nodes_, nnodes_) +
                                              ": give all the same --nnodes and --min-np");
  }
  if (arrival.nnodes != nnodes_) {
    const std::string what = meeting_ == Meeting::kNodes ? " says --nnodes " : " counts ranks: ";
    return Status(Code::kInvalidArgument, who + what + std::to_string(arrival.nnodes) + ", " +
                                              kind + "0 says " + std::to_string(nnodes_) +
                                              ": give all the same");
  }
  if (arrival.node_rank < 0 || arrival.node_rank >= nnodes_) {
    return Status(Code::kInvalidArgument, "--node-rank " + std::to_string(arrival.node_rank) +
                                              " is not one of " + std::to_string(nnodes_) +
                                              " nodes: the first is 0");
  }
  return Status::ok();
}

// Nodes have daemons of their own.
Status RendezvousTable::check_daemon(const Arrival& arrival, const std::string& who) const {
  for (const auto& [number, other] : arrivals_) {
    if (meeting_ == Meeting::kRanks) break;
    if (number == arrival.node_rank || other.node_id != arrival.node_id) continue;
    if (departed_.contains(number)) continue;
    return Status(Code::kInvalidArgument, who + " and node " + std::to_string(number) +
                                              " both use the daemon \"" + arrival.node_id +
                                              "\": give each daemon its own --node-id");
  }
  return Status::ok();
}

void RendezvousTable::depart(int node_rank) {
  if (is_laid_out_) {
    departed_.insert(node_rank);
  } else {
    arrivals_.erase(node_rank);
  }
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
  if (std::exchange(is_laid_out_, true) && !layout_.empty()) return layout_;
  has_certificates_ = std::all_of(arrivals_.begin(), arrivals_.end(), [](const auto& arrival) {
    return arrival.second.awaits_certificate;
  });
  std::vector<int> counts;
  for (const auto& [number, arrival] : arrivals_) counts.push_back(arrival.nproc);
  Result<std::vector<std::vector<Rank>>> blocks = deal_by_counts(counts);
  if (!blocks.is_ok()) return blocks.status();
  std::vector<NodeLayout> out;
  size_t place = 0;  // Numbers may be missing in an elastic job.
  for (const auto& [number, arrival] : arrivals_) {
    const std::vector<Rank>& ranks = blocks.value()[place++];
    const auto same = std::find_if(
        out.begin(), out.end(),
        [&arrival = arrival](const NodeLayout& node) { return node.node_id == arrival.node_id; });
    if (same == out.end()) {
      out.push_back({arrival.node_id, arrival.control_address, ranks, arrival.incarnation});
    } else {
      same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
    }
  }
  layout_ = out;
  return out;
}

}  // namespace rueda::agent
