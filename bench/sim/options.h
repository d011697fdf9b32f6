// Defines rueda-sim's command line.
#pragma once

#include <optional>
#include <string>

#include "bench/sim/order.h"
#include "bench/sim/run.h"

namespace rueda::scale {

enum class Task : uint8_t { kRun, kSweep, kFit, kOrder, kDataPlane };

struct Options {
  Task task = Task::kRun;
  RunSpec spec;
  OrderSpec order;       // for Task::kOrder; the number of nodes is that of `spec`
  std::string clusters;  // for Task::kDataPlane: a file of clusters, and one of costs
  std::string costs;
  bool json = false;
};

// Parses the command line. Returns nullopt if nothing is left to do; the program is then to end
// with the exit code.
std::optional<Options> parse_options(int argc, char** argv, int* exit_code);

}  // namespace rueda::scale
