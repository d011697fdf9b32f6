// Runs a whole job in one thread: the shipped core on every node, a network, training processes and
// a data plane that do what a seed says. One setup and one set of choices always give the same run,
// event by event. After every event the checkers (checkers.h) look at all nodes; the first
// violation ends the run and is its result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/world/faults.h"
#include "tests/sim/world/transfer_plane.h"

namespace rueda::sim {

struct RunOptions {
  bool keep_trace = false;
  bool record_choices = false;
};

struct RunResult {
  std::string violation;  // empty if all rules held; otherwise "RULE: what"
  uint64_t trace_hash = 0;
  std::vector<std::string> trace;  // is filled with keep_trace
  std::vector<Choice> choices;     // is filled with record_choices
  uint64_t events = 0;
  uint64_t operations = 0;             // operations that every node launched
  uint64_t locked_launches = 0;        // is counted on each node
  uint64_t messages_while_locked = 0;  // messages about order
  uint64_t order_messages = 0;
  uint64_t cancels = 0;                // is counted on each node
  uint64_t recovered = 0;              // epochs that went on as the next
  uint64_t completed_by_decision = 0;  // operations
  uint64_t repeated = 0;               // operations
  uint64_t transferred = 0;            // transfers that have met
  uint64_t delivered_ok = 0;
  uint64_t delivered_error = 0;
};

class Simulator {
 public:
  // Makes the simulator of a setup, which outlives it.
  Simulator(const RunSetup& setup, RandomChoices choices, const RunOptions& options);
  RunResult run();

 private:
  void happen(SimEvent event);
  // Makes the process do its next action.
  void act(int rank);
  // Feeds an event to a node: at once, or when it thaws.
  void feed(int node, SimEvent event);
  void step(int node, const core::Event& event);
  void carry_out(int node, const core::Output& output);
  // Lets a daemon go that has nothing to do any more. Returns whether it has gone.
  bool go_if_closed(int node, const core::Event& event);
  void thaw(int node);
  void check_liveness();
  void check_end();

  const RunSetup& setup_;
  const RunOptions options_;
  EventQueue queue_;
  RandomChoices choices_;
  World world_;
  Network network_;
  DataPlane data_plane_;
  TransferPlane transfers_;
  // By node: messages about transfers of an epoch that it has not begun, which has no channel yet.
  std::map<int, std::vector<SimEvent>> early_records_;
  std::map<int, TicksMs> detaches_at_;  // Ranks whose goodbye waits for what their node has sent.
  Training training_;
  Faults faults_;
  TicksMs last_progress_ = 0;
  uint64_t events_ = 0;
};

// Makes the run of a seed.
RunResult run_seed(uint64_t seed, const Limits& limits, const RunOptions& options = {});

}  // namespace rueda::sim
