// Faults are mistakes that a daemon makes on purpose, so that tests can see whether others notice.
// ruedad makes none (no_faults.cc). Tests link a daemon that makes those that it is told to
// (tests/integration/support/planted_faults.cc).
#pragma once

#include <cstdint>

namespace rueda {

struct Faults {
  bool corrupts_reduction = false;  // Every result is wrong.
  int64_t clock_skew_ns = 0;        // It is added to the clock of timelines.
};

// Returns the faults that this program makes.
Faults planted_faults();

}  // namespace rueda
