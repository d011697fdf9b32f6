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
  RunResult result;             // with its trace
  int runs = 0;                 // that it took
};

// How a run is judged; the simulator by default, something else in shrink's own tests.
using Runner = std::function<RunResult(const RunSetup&, RandomChoices, const RunOptions&)>;
RunResult simulate(const RunSetup& setup, RandomChoices choices, const RunOptions& options);

// The run of this setup and its seed must fail. Ends when nothing more can be left out, or after
// max_runs.
SmallRun shrink(const RunSetup& setup, int max_runs, const Runner& runner = simulate);

// The setup, the choices and the trace as text, one line each.
std::vector<std::string> report(const SmallRun& run);

}  // namespace rueda::sim
