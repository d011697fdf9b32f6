#include "tests/sim/world/faults.h"

#include "tests/sim/setup/names.h"

namespace rueda::sim {

Faults::Faults(const RunSetup& setup, EventQueue& queue, RandomChoices& choices, World& world,
               Network& network, DataPlane& data_plane, Training& training)
    : setup_(setup),
      queue_(queue),
      choices_(choices),
      world_(world),
      network_(network),
      data_plane_(data_plane),
      training_(training) {}

void Faults::plan() {
  for (size_t i = 0; i < setup_.faults.size(); ++i) {
    const FaultSetup& fault = setup_.faults[i];
    queue_.at(fault.at, {SimEvent::Kind::kFaultBegins, static_cast<int>(i)});
    if (fault.lasts == 0) continue;
    queue_.at(fault.at + fault.lasts, {SimEvent::Kind::kFaultEnds, static_cast<int>(i)});
    if (is_lethal(fault)) {
      queue_.at(fault.at + kLinkTimeout, {SimEvent::Kind::kLinkTimesOut, static_cast<int>(i)});
    }
  }
}

void Faults::begin(const FaultSetup& fault) {
  if (fault.kind != FaultKind::kRankDies && !world_.node(fault.node).alive) return;
  switch (fault.kind) {
    case FaultKind::kRankDies: kill_rank(fault.rank); break;
    case FaultKind::kNodeDies: kill_node(fault.node); break;
    case FaultKind::kChannelBreaks: {
      if (is_witness(fault.node)) break;
      const NodeIndex peer = world_.node(fault.node).core->layout().next(NodeIndex{fault.node});
      if (peer.value == fault.node) break;
      queue_.at(queue_.now(), fault.node, world_.node(fault.node).epoch,
                core::DataChannelLost{peer, Status(Code::kNodeLost, "the channel broke")});
      break;
    }
    case FaultKind::kNodeFreezes:
      world_.node(fault.node).frozen = true;
      world_.trace().note(queue_.now(), name_of(fault.node) + " freezes");
      break;
    case FaultKind::kPartition:
      if (!linked(fault.node, fault.other)) break;
      network_.hold(fault.node, fault.other, queue_.now() + fault.lasts);
      world_.trace().note(queue_.now(), "nothing passes from " + name_of(fault.node) + " to " +
                                            name_of(fault.other));
      break;
    case FaultKind::kNodeCutOff:
      for (int other = 0; other < world_.voter_count(); ++other) {
        if (!linked(fault.node, other)) continue;
        network_.hold(fault.node, other, queue_.now() + fault.lasts);
        network_.hold(other, fault.node, queue_.now() + fault.lasts);
      }
      world_.trace().note(queue_.now(), name_of(fault.node) + " is cut off");
      break;
  }
}

void Faults::time_out(const FaultSetup& fault) {
  if (!world_.node(fault.node).alive) return;
  const Status silent(Code::kNodeLost,
                      "nothing was heard for " + std::to_string(kLinkTimeout) + " ms");
  if (fault.kind == FaultKind::kPartition) {
    const bool both_live = linked(fault.node, fault.other) && world_.node(fault.other).alive;
    if (both_live) network_.cut(fault.node, fault.other, silent);
    return;
  }
  for (int other = 0; other < world_.voter_count(); ++other) {
    if (linked(fault.node, other) && world_.node(other).alive) {
      network_.cut(fault.node, other, silent);
    }
  }
  if (!is_witness(fault.node)) data_plane_.on_silence(fault.node, silent);
}

void Faults::end(const FaultSetup& fault) {
  if (!world_.node(fault.node).alive) return;
  if (fault.kind == FaultKind::kPartition) {
    network_.join(fault.node, fault.other);
    world_.trace().note(queue_.now(),
                        name_of(fault.node) + " reaches " + name_of(fault.other) + " again");
    return;
  }
  const bool was_frozen = fault.kind == FaultKind::kNodeFreezes;
  if (was_frozen) world_.node(fault.node).frozen = false;
  world_.trace().note(queue_.now(), name_of(fault.node) + (was_frozen ? " thaws" : " is back"));
  for (int other = 0; other < world_.voter_count(); ++other) {
    if (linked(fault.node, other)) network_.join(fault.node, other);
  }
}

bool Faults::linked(int a, int b) const {
  const auto has_link = [&](int node, int other) {
    const core::JobCore& core = *world_.node(node).core;
    return core.links().is_neighbour(NodeIndex{other}) || core.next_parent() == NodeIndex{other};
  };
  return a != b && (setup_.shrinks() || has_link(a, b) || has_link(b, a));
}

void Faults::go(int node) {
  world_.go(queue_.now(), node);
  const Status gone(Code::kNodeLost, name_of(node) + " has gone");
  for (int other = 0; other < world_.node_count(); ++other) {
    if (linked(node, other) && world_.node(other).alive) network_.tell_lost(other, node, gone);
  }
}

void Faults::kill_rank(int rank) {
  if (!world_.node_of(rank).alive || !training_.kill(rank)) return;
  const std::string name = "rank " + std::to_string(rank);
  world_.trace().note(queue_.now(), name + " dies");
  world_.on_rank_died(Rank{rank});
  const int node = world_.layout().node_of(Rank{rank}).value;
  queue_.at(queue_.now() + choices_.draw(Decision::kNotice, node, node, 0, 10), node,
            core::RankLost{world_.local_rank(rank), Status(Code::kRankLost, name + " died")});
}

void Faults::kill_node(int node) {
  world_.kill(queue_.now(), node);
  if (is_witness(node)) return;
  const Status died(Code::kNodeLost, name_of(node) + " died");
  for (int other = 0; other < world_.node_count(); ++other) {
    // What the node sent before it died still arrives, and first, because it is on the same stream.
    if (linked(node, other) && world_.node(other).alive) network_.tell_lost(other, node, died);
  }
  data_plane_.on_silence(node, died);
}

}  // namespace rueda::sim
