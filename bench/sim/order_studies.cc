#include "bench/sim/order_studies.h"

#include <vector>

#include "bench/base/parallel.h"
#include "daemon/base/limits.h"

namespace rueda::scale {
namespace {

// A ResNet-50 has this number of tensors.
constexpr int kTensors = 161;
// The study of a tree counts messages, and not their contents.
constexpr int kFewTensors = 8;
constexpr int kLocked = 3;    // a step in which nothing is sent
constexpr int kDeviates = 4;  // the step that the plan does not have
constexpr int kSteps = 6;
constexpr double kComputeMs = 200;

OrderSpec spec_of(const Parameters& parameters, int nodes, int tensors) {
  OrderSpec spec;
  spec.nodes = nodes;
  spec.tensors = tensors;
  spec.steps = kSteps;
  spec.compute_ms = kComputeMs;
  spec.deviates_at = kDeviates;
  spec.parameters = parameters;
  return spec;
}

nlohmann::ordered_json describe(const char* study, const OrderSpec& spec,
                                const OrderResult& result) {
  const OrderStep& first = result.steps[0];
  const OrderStep& third = result.steps[kLocked - 1];
  const OrderStep& locked = result.steps[kLocked];
  const OrderStep& unlocked = result.steps[kDeviates];
  return {{"study", study},
          {"nodes", spec.nodes},
          {"fan_in", spec.nodes > spec.parameters.tree_threshold ? spec.parameters.tree_fan_in : 0},
          {"start_ms", result.start_ms},
          {"start_messages", result.start_messages},
          {"first_step_ms", first.coordination_ms},
          {"first_step_messages", first.messages},
          {"second_step_ms", result.steps[1].coordination_ms},
          {"lock_step_ms", third.coordination_ms},
          {"lock_step_messages", third.messages},
          {"locked_ms", locked.coordination_ms},
          {"locked_messages", locked.messages},
          {"unlock_ms", unlocked.coordination_ms},
          {"unlock_messages", unlocked.messages},
          {"unlock_coordinator_messages", unlocked.coordinator_messages},
          {"unlock_coordinator_bytes", unlocked.coordinator_bytes}};
}

nlohmann::ordered_json describe_loss(const OrderSpec& spec, const LossTimes& loss) {
  if (spec.policy == core::DeathPolicy::kFail) {
    return {{"study", "loss-fail"},
            {"nodes", spec.nodes},
            {"all_know_ms", loss.decided_ms},
            {"messages", loss.messages}};
  }
  return {{"study", "loss"},
          {"nodes", spec.nodes},
          {"suspected_ms", loss.suspected_ms},
          {"sealed_ms", loss.sealed_ms},
          {"decided_ms", loss.decided_ms},
          {"messages", loss.messages}};
}

std::vector<OrderResult> run_all(const std::vector<OrderSpec>& specs) {
  std::vector<OrderResult> results(specs.size());
  bench::in_parallel(specs.size(), [&](size_t i) { results[i] = run_order(specs[i]); });
  return results;
}

void describe_all(const char* study, const std::vector<OrderSpec>& specs, const FoundOrder& found) {
  const std::vector<OrderResult> results = run_all(specs);
  for (size_t i = 0; i < specs.size(); ++i) found(describe(study, specs[i], results[i]));
}

}  // namespace

void run_order_steps(const OrderSpec& spec, const FoundOrder& found) {
  const OrderResult result = run_order(spec);
  found({{"study", "order-start"},
         {"nodes", spec.nodes},
         {"mode", core::to_string(spec.mode)},
         {"start_ms", result.start_ms},
         {"start_messages", result.start_messages}});
  for (size_t i = 0; i < result.steps.size(); ++i) {
    const OrderStep& step = result.steps[i];
    found({{"study", "order"},
           {"nodes", spec.nodes},
           {"mode", core::to_string(spec.mode)},
           {"step", i},
           {"order_messages", step.messages},
           {"coordinator_messages", step.coordinator_messages},
           {"coordinator_bytes", step.coordinator_bytes},
           {"coordination_ms", step.coordination_ms},
           {"locked", step.locked}});
  }
}

void study_first_steps(const Parameters& parameters, const FoundOrder& found) {
  std::vector<OrderSpec> specs;
  for (const int nodes : {1, 4, 16, 64, 256, 1024, limits::kMaxNodes}) {
    specs.push_back(spec_of(parameters, nodes, kTensors));
  }
  describe_all("first-steps", specs, found);
}

void study_fan_in(const Parameters& parameters, const FoundOrder& found) {
  std::vector<OrderSpec> specs;
  for (const int fan_in : {2, 4, 8, 16, 32, 64, 128, 512, limits::kMaxNodes - 1}) {
    specs.push_back(spec_of(parameters, limits::kMaxNodes, kFewTensors));
    specs.back().parameters.tree_fan_in = fan_in;
  }
  describe_all("fan-in", specs, found);
}

void study_loss(const Parameters& parameters, const FoundOrder& found) {
  std::vector<OrderSpec> specs;
  const auto add = [&](int nodes, core::DeathPolicy policy) {
    OrderSpec spec = spec_of(parameters, nodes, kFewTensors);
    spec.deviates_at.reset();
    spec.policy = policy;
    spec.node_dies = nodes / 2;
    specs.push_back(spec);
  };
  for (const int nodes : {4, 16, 64, 256}) add(nodes, core::DeathPolicy::kShrink);
  for (const int nodes : {4, 16, 64, 256, 1024, limits::kMaxNodes}) {
    add(nodes, core::DeathPolicy::kFail);
  }
  const std::vector<OrderResult> results = run_all(specs);
  for (size_t i = 0; i < specs.size(); ++i) found(describe_loss(specs[i], *results[i].loss));
}

}  // namespace rueda::scale
