// Many seeds on all cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/simulator.h"

namespace rueda::sim {

struct CampaignResult {
  std::optional<uint64_t> failed_seed;  // the lowest that was found
  std::string violation;                // its
  uint64_t seeds = 0;                   // that were run
  uint64_t lethal = 0;                  // with a fault that may end the job
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t locked_launches = 0;
  uint64_t cancels = 0;
  uint64_t delivered_ok = 0;
  uint64_t delivered_error = 0;

  std::string summary() const;
};

// Runs `count` seeds from `first` on; stops soon after one has failed.
CampaignResult run_campaign(uint64_t first, uint64_t count, const Limits& limits);

}  // namespace rueda::sim
