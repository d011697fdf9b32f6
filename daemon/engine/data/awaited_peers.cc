#include "daemon/engine/data/awaited_peers.h"

namespace rueda::engine {

bool AwaitedPeers::has_to_go_on() const {
  return !faults_.is_stopped() && (is_waiting() || !is_quiet());
}

bool AwaitedPeers::is_quiet() const {
  if (faults_.is_stopped()) return true;
  return link_.is_quiet() && (!mesh_.mesh() || mesh_.mesh()->is_quiet());
}

// While a member has not launched it, an operation waits for that member's application. A node
// whose channel has closed launches nothing more.
std::optional<NodeIndex> AwaitedPeers::culprit() const {
  const bool waits_for_peers =
      is_waiting() &&  // otherwise the watch looks at what has left by itself
      (faults_.has_closed_peer() || !is_open() || !operations_.waiting().empty() ||
       operations_.is_any_launched_everywhere());
  if (!waits_for_peers) return std::nullopt;
  const auto& running = operations_.running();
  std::optional<NodeIndex> silent;
  if (!running.empty() && running.front()->is_pairwise) {
    silent = mesh_.awaited_peer(*running.front());
  }
  // If the next node still holds what was sent to it, it is the one that stands still.
  if (!silent) silent = link_.has_sent_all() ? options_.previous() : options_.next();
  // A part of this node stands still because one behind it does, which says so itself.
  if (options_.id(*silent) == options_.id(options_.self)) return std::nullopt;
  return silent;
}

std::string AwaitedPeers::describe_silence(NodeIndex peer) const {
  const std::string here = "node " + options_.id(options_.self);
  const std::string within = " for " + std::to_string(options_.timeout_ms) + " ms";
  const bool is_taking = peer == options_.next() && !link_.has_sent_all();
  std::string text = is_taking ? "it took nothing of what " + here + " sent it" + within
                               : here + " got nothing from it" + within;
  if (!is_open()) {
    text += " while the network was measured";
    if (probe_.largest_bytes() > 0 && !is_taking) {
      text += "; messages of " + std::to_string(probe_.largest_bytes()) +
              " bytes came, and larger ones did not: can large packets pass (MTU)?";
    }
    return text;
  }
  if (!is_waiting()) return text;
  const Seq seq = operations_.running().empty() ? operations_.waiting().front()->seq
                                                : operations_.running().front()->operation->seq;
  text += " while operation " + std::to_string(core::number_of(seq)) + " was under way";
  if (is_taking) return text;
  return text +
         "; does its daemon stand still, or can large packets not pass from it to here (MTU)?";
}

uint64_t AwaitedPeers::bytes_received() const {
  return link_.bytes_received() + (mesh_.mesh() ? mesh_.mesh()->bytes_received() : 0);
}

void AwaitedPeers::for_each_outlet(const VisitOutlet& visit) const {
  if (const transport::SendChannel* channel = link_.outlet()) visit(options_.next(), *channel);
  if (mesh_.mesh()) mesh_.mesh()->for_each_outlet(visit);
}

}  // namespace rueda::engine
