#include "daemon/core/job/shared_settings.h"

#include <string>

namespace rueda::core {

Settings shared_settings(const JobOptions& options) {
  const AgreementOptions& agreement = options.agreement;
  Settings settings{
      {"--coordination", to_string(agreement.mode)},
      {"--cache-capacity", std::to_string(agreement.cache_capacity)},
      {"--algorithm", to_string(options.algorithm)},
      {"ruedad --tree-threshold", std::to_string(options.tree.threshold)},
      {"ruedad --tree-fan-in", std::to_string(options.tree.fan_in)},
      {"--servers", std::to_string(options.servers)},
      {"--reducer", to_string(options.reducer)},
      {"--inter-node", to_string(options.inter_node)},
      {"--autotune or --plan", options.is_tuned ? "yes" : "no"},
      {"ruedad --transport", options.is_over_grpc ? "grpc" : "another than grpc"},
      {"ruedad --failure-timeout", std::to_string(options.failure_timeout_ms) + " ms"},
  };
  if (has_cycle(agreement.mode)) {
    settings.push_back({"--cycle-time-ms", std::to_string(agreement.cycle_time_us) + " us"});
    settings.push_back({"--sleep-agreed-every", std::to_string(agreement.sleep_agreed_every)});
  }
  settings.insert(settings.end(), options.also_shared.begin(), options.also_shared.end());
  return settings;
}

}  // namespace rueda::core
