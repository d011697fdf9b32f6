// rueda-sim's command line.
#pragma once

#include <optional>

#include "bench/sim/order.h"
#include "bench/sim/run.h"

namespace rueda::scale {

enum class Task : uint8_t { kRun, kSweep, kFit, kOrder };

struct Options {
  Task task = Task::kRun;
  RunSpec spec;
  OrderSpec order;  // Task::kOrder: of so many nodes as `spec` has
  bool json = false;
};

// None: there is nothing to do any more; the program is to end with the exit code.
std::optional<Options> parse_options(int argc, char** argv, int* exit_code);

}  // namespace rueda::scale
