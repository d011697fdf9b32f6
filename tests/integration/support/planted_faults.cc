// Plants the faults of ruedad-faults, a ruedad that only tests have, as RUEDA_TEST_FAULT says:
// `reduce` or `clock:MS`.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "daemon/faults.h"

namespace rueda {

Faults planted_faults() {
  const char* const value = std::getenv("RUEDA_TEST_FAULT");
  const std::string fault = value != nullptr ? value : "";
  if (fault == "reduce") return {.corrupts_reduction = true};
  if (fault.starts_with("clock:")) {
    return {.clock_skew_ns = std::stoll(fault.substr(6)) * 1'000'000};
  }
  std::fprintf(stderr, "ruedad-faults: RUEDA_TEST_FAULT is neither reduce nor clock:MS\n");
  std::exit(2);
}

}  // namespace rueda
