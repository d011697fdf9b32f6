// Says how much of a loop over seeds a test program runs. The loops are written for a release
// build; RUEDA_TEST_SCALE makes them shorter where every step is slower (tests/run.sh, under the
// sanitizers) and longer where there is time (tests/long.sh).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "daemon/base/check.h"

namespace rueda::testing_support {

// Returns `count` times RUEDA_TEST_SCALE, which is a positive number and 1 if it is not set, but at
// least `least`.
inline uint64_t scaled(uint64_t count, uint64_t least = 1) {
  const char* text = std::getenv("RUEDA_TEST_SCALE");
  if (text == nullptr || *text == '\0') return count;
  char* end = nullptr;
  const double scale = std::strtod(text, &end);
  RUEDA_CHECK(*end == '\0' && scale > 0);  // otherwise RUEDA_TEST_SCALE is no positive number
  return std::max(least, static_cast<uint64_t>(static_cast<double>(count) * scale));
}

}  // namespace rueda::testing_support
