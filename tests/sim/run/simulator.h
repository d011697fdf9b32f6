// A whole job in one thread: the shipped core on every node, a network, training processes and a
// data plane that do as a seed says. One setup and one set of choices give one run, event by event,
// for ever. After every event the checkers (checkers.h) look at all nodes; the first violation ends
// the run and is its result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/world/faults.h"

namespace rueda::sim {

struct RunOptions {
  bool keep_trace = false;
  bool record_choices = false;
};

struct RunResult {
  std::string violation;  // empty: all rules held; else "RULE: what"
  uint64_t trace_hash = 0;
  std::vector<std::string> trace;  // with keep_trace
  std::vector<Choice> choices;     // with record_choices
  uint64_t events = 0;
  uint64_t operations = 0;             // that every node launched
  uint64_t locked_launches = 0;        // counted on each node
  uint64_t messages_while_locked = 0;  // about order
  uint64_t order_messages = 0;
  uint64_t cancels = 0;                // counted on each node
  uint64_t recovered = 0;              // epochs that went on as the next
  uint64_t completed_by_decision = 0;  // operations
  uint64_t repeated = 0;               // likewise
  uint64_t delivered_ok = 0;
  uint64_t delivered_error = 0;
};

class Simulator {
 public:
  // The setup outlives the simulator.
  Simulator(const RunSetup& setup, RandomChoices choices, const RunOptions& options);
  RunResult run();

 private:
  void happen(SimEvent event);
  // Something happens to a node: at once, or when it thaws.
  void feed(int node, SimEvent event);
  void step(int node, const core::Event& event);
  void carry_out(int node, const core::Output& output);
  // A daemon has no business any more.
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
  Training training_;
  Faults faults_;
  TicksMs last_progress_ = 0;
  uint64_t events_ = 0;
};

// The run of a seed.
RunResult run_seed(uint64_t seed, const Limits& limits, const RunOptions& options = {});

}  // namespace rueda::sim
