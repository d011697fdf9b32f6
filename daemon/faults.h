// Faults are mistakes that a daemon makes on purpose, so that tests can see whether others notice,
// and hardware that it takes for real. ruedad has none (no_faults.cc). Tests link a daemon that has
// those that it is told to (tests/integration/support/planted_faults.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace rueda {

namespace transport {
class Transport;
}  // namespace transport

struct Faults {
  bool corrupts_reduction = false;  // Every result is wrong.
  int64_t clock_skew_ns = 0;        // It is added to the clock of timelines.
  // Makes of a data loop's transport what takes its place. Null: nothing does.
  std::function<std::unique_ptr<transport::Transport>(std::unique_ptr<transport::Transport>)>
      wrap_transport;
  // Is called at each step by which the nodes of an elastic job agree, with its name (ElasticJob).
  // Null: nothing is.
  std::function<void(const char* step)> at_step;
};

// Returns the faults that this program makes.
Faults planted_faults();

}  // namespace rueda
