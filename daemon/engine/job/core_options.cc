#include "daemon/engine/job/core_options.h"

#include <string>

#include "daemon/engine/job/tuning_space.h"

namespace rueda::engine {
namespace {

// Returns what the data plane compares only once the nodes connect, and what the core does not
// know.
core::Settings settings_above(const EngineOptions& options, const JobSpec& spec) {
  core::Settings settings{{"ruedad --chunk-bytes", std::to_string(options.chunk_bytes)},
                          {"ruedad --staging-bytes", std::to_string(options.staging_bytes)},
                          {"ruedad --streams", std::to_string(options.streams)},
                          {"ruedad --data-protection", options.data_protection}};
  if (spec.elastic) {
    settings.push_back({"--min-np", std::to_string(spec.elastic->min_ranks)});
    settings.push_back({"--max-np", std::to_string(most_ranks(spec))});
  }
  return settings;
}

}  // namespace

int most_ranks(const JobSpec& spec) {
  const int named = spec.elastic ? spec.elastic->max_ranks : 0;
  return named > 0 ? named : spec.layout.world_size();
}

core::JobOptions core_options(const EngineContext& context, const JobSpec& spec) {
  core::JobOptions options;
  options.job = spec.job;
  options.first_epoch = spec.first_epoch;
  options.data_address = context.data_address;
  core::AgreementOptions& agreement = options.agreement;
  agreement.mode = spec.coordination.value_or(context.options.coordination);
  agreement.fusion.threshold_bytes =
      spec.fusion_threshold_bytes.value_or(context.options.fusion_threshold_bytes);
  agreement.max_open_operations = context.options.lanes;
  agreement.lock_after_steps = spec.lock_after_steps.value_or(agreement.lock_after_steps);
  agreement.cache_capacity = spec.cache_capacity.value_or(agreement.cache_capacity);
  agreement.cycle_time_us = spec.cycle_time_us.value_or(agreement.cycle_time_us);
  agreement.sleep_agreed_every = spec.sleep_agreed_every.value_or(agreement.sleep_agreed_every);
  agreement.replayed = spec.replayed;
  agreement.records_plans = spec.records_plan;
  options.is_tuned = spec.autotunes || spec.replays;
  options.is_over_grpc = context.options.transport == "grpc";
  options.reducer = spec.reducer.value_or(context.options.reducer);
  options.inter_node = spec.inter_node.value_or(context.options.inter_node);
  agreement.tuning = tuning_options(context.options, spec, agreement.fusion.threshold_bytes,
                                    context.data_loops.size());
  options.max_launched_operations = context.options.lanes;
  options.algorithm = spec.algorithm;
  options.servers = spec.servers;
  options.start_timeout_ms =
      spec.start_timeout_ms > 0 ? spec.start_timeout_ms : context.options.start_timeout_ms;
  options.suspicion_grace_ms = context.options.timeout_ms / 10;
  options.handover_grace_ms = context.options.timeout_ms / 10;
  options.handover_timeout_ms = context.options.timeout_ms;
  options.failure_timeout_ms = context.options.timeout_ms;
  options.also_shared = settings_above(context.options, spec);
  options.tree = context.options.tree;
  options.rack = context.options.rack;
  options.bandwidths = spec.bandwidths;
  options.stall.check_ms = spec.stall_check_ms.value_or(context.options.stall.check_ms);
  options.stall.shutdown_ms = spec.stall_shutdown_ms.value_or(context.options.stall.shutdown_ms);
  return options;
}

}  // namespace rueda::engine
