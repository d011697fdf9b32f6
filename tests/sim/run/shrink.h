// Makes a failing run small: fewer faults, ranks, nodes, tensors, steps, and in the end only those
// choices that matter, as long as the same rule is broken (delta debugging: Zeller and Hildebrandt
// 2002, "Simplifying and Isolating Failure-Inducing Input").
#pragma once

#include <functional>
#include <vector>

#include "tests/sim/run/simulator.h"

namespace rueda::sim {

struct SmallRun {
  RunSetup setup;
  std::vector<Choice> choices;  // all others are the quiet ones
  RunResult result;             // has the run's trace
  int runs = 0;                 // the number of runs that it took
};

// Judges a run; it is the simulator by default, and something else in shrink's own tests.
using Runner = std::function<RunResult(const RunSetup&, RandomChoices, const RunOptions&)>;
RunResult simulate(const RunSetup& setup, RandomChoices choices, const RunOptions& options);

// Makes a run smaller until nothing more can be left out, or after max_runs. The run of this setup
// and its seed must fail.
SmallRun shrink(const RunSetup& setup, int max_runs, const Runner& runner = simulate);

// Returns the setup, the choices and the trace as text, one line each.
std::vector<std::string> report(const SmallRun& run);

}  // namespace rueda::sim
