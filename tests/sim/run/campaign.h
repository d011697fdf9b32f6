// Runs many seeds on all cores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/run/simulator.h"

namespace rueda::sim {

// Describes a seed that broke a rule.
struct Failure {
  uint64_t seed = 0;
  std::string violation;
};

struct CampaignResult {
  std::vector<Failure> failures;  // in the order of seeds
  uint64_t seeds = 0;             // the number of seeds that were run
  uint64_t lethal = 0;            // those with a fault that may end the job
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t locked_launches = 0;
  uint64_t cancels = 0;
  uint64_t recovered = 0;
  uint64_t completed_by_decision = 0;
  uint64_t repeated = 0;
  uint64_t delivered_ok = 0;
  uint64_t delivered_error = 0;

  std::string summary() const;
};

// Runs `count` seeds from `first` on; stops soon after one has failed, unless it is to keep going.
CampaignResult run_campaign(uint64_t first, uint64_t count, const Limits& limits,
                            bool keep_going = false);

}  // namespace rueda::sim
