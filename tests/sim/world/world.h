// Holds the nodes of a run: the shipped core on each, watched by the checkers and the trace.
// Whoever drives it, a random run (simulator.h) or a told story (scenario.h), steps the cores
// through here.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/check/checker_set.h"
#include "tests/sim/check/trace.h"
#include "tests/sim/check/transfer_checks.h"
#include "tests/sim/setup/event_queue.h"
#include "tests/sim/setup/setup.h"

namespace rueda::sim {

struct WorldNode {
  std::unique_ptr<core::JobCore> core;      // null on the witness,
  std::unique_ptr<core::Recovery> witness;  // which has this
  bool alive = true;
  bool frozen = false;
  std::deque<SimEvent> backlog;    // what happened to it while it was frozen
  uint32_t epoch = 0;              // the epoch that has started last
  bool over = false;               // its core reported failure
  bool closed = false;             // the node is to go
  bool turn_pending = false;       // TurnEnded is on its way
  std::optional<TicksMs> tick_at;  // TimePassed is on its way
};

class World {
 public:
  World(const RunSetup& setup, bool keep_trace);

  const core::Layout& layout() const { return layout_; }
  int node_count() const { return layout_.node_count(); }
  // Returns the number of nodes with the witness, which is the last.
  int voter_count() const { return static_cast<int>(nodes_.size()); }
  WorldNode& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  const WorldNode& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  WorldNode& node_of(int rank) { return node(layout_.node_of(Rank{rank}).value); }
  LocalRank local_rank(int rank) const { return local_ranks_[static_cast<size_t>(rank)]; }

  // Feeds the event to the node's core. The rules are checked before the caller sees the output.
  core::Output step(TicksMs now, int node, const core::Event& event);
  // Stops the node for good.
  void kill(TicksMs now, int node);
  // Lets the node leave, so that nobody misses it.
  void go(TicksMs now, int node);
  // The rank has died: nobody is told of its submissions.
  void on_rank_died(Rank rank) {
    checkers_.on_rank_died(rank);
    transfers_.on_rank_died(rank);
  }
  // Returns whether all nodes were running when the last one was killed.
  bool killed_while_all_ran() const { return killed_while_all_ran_; }

  const TransferChecks& transfers() const { return transfers_; }
  CheckerSet& checkers() { return checkers_; }
  const CheckerSet& checkers() const { return checkers_; }
  Trace& trace() { return trace_; }

 private:
  core::Output step_witness(TicksMs now, WorldNode& at, const core::Event& event);

  const core::Layout layout_;
  std::vector<LocalRank> local_ranks_;  // by rank
  std::vector<WorldNode> nodes_;
  bool killed_while_all_ran_ = false;
  CheckerSet checkers_;
  TransferChecks transfers_;
  Trace trace_;
};

}  // namespace rueda::sim
