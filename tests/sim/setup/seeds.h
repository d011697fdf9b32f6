// Says which seeds the tests of a simulator run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/support/scale.h"

namespace rueda::sim {

// The number of seeds in each run of tests/run.sh. Half of them must be enough to catch the
// mutants.
inline constexpr uint64_t kSeedsOfAChange = 5000;

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 0;
};

// Returns as many seeds from 1 on as `own` says, a variable of one simulator that is fast, or
// RUEDA_SIM_SEEDS; if neither is set, kSeedsOfAChange times RUEDA_TEST_SCALE. If RUEDA_SIM_FIRST is
// set (tests/run.sh takes it from the commit), a fifth as many from there on are added, so that
// many are seen in time.
inline std::vector<Seeds> seeds_to_run(const char* own = nullptr) {
  const char* text = own != nullptr ? std::getenv(own) : nullptr;
  if (text == nullptr) text = std::getenv("RUEDA_SIM_SEEDS");
  const uint64_t count = text != nullptr ? std::strtoull(text, nullptr, 10)
                                         : testing_support::scaled(kSeedsOfAChange, 300);
  std::vector<Seeds> all{{1, count}};
  if (const char* first = std::getenv("RUEDA_SIM_FIRST")) {
    all.push_back({std::strtoull(first, nullptr, 10), count / 5});
  }
  return all;
}

}  // namespace rueda::sim
