#include "bench/sim/order_studies.h"

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
  for (const int nodes : {1, 4, 16, 64, 256, 1024, limits::kMaxNodes}) {
    const OrderSpec spec = spec_of(parameters, nodes, kTensors);
    found(describe("first-steps", spec, run_order(spec)));
  }
}

void study_fan_in(const Parameters& parameters, const FoundOrder& found) {
  for (const int fan_in : {2, 4, 8, 16, 32, 64, 128, 512, limits::kMaxNodes - 1}) {
    OrderSpec spec = spec_of(parameters, limits::kMaxNodes, kFewTensors);
    spec.parameters.tree_fan_in = fan_in;
    found(describe("fan-in", spec, run_order(spec)));
  }
}

void study_loss(const Parameters& parameters, const FoundOrder& found) {
  const auto lose = [&](int nodes, core::DeathPolicy policy) {
    OrderSpec spec = spec_of(parameters, nodes, kFewTensors);
    spec.deviates_at.reset();
    spec.policy = policy;
    spec.node_dies = nodes / 2;
    return *run_order(spec).loss;
  };
  for (const int nodes : {4, 16, 64, 256}) {
    const LossTimes loss = lose(nodes, core::DeathPolicy::kShrink);
    found({{"study", "loss"},
           {"nodes", nodes},
           {"suspected_ms", loss.suspected_ms},
           {"sealed_ms", loss.sealed_ms},
           {"decided_ms", loss.decided_ms},
           {"messages", loss.messages}});
  }
  for (const int nodes : {4, 16, 64, 256, 1024, limits::kMaxNodes}) {
    const LossTimes loss = lose(nodes, core::DeathPolicy::kFail);
    found({{"study", "loss-fail"},
           {"nodes", nodes},
           {"all_know_ms", loss.decided_ms},
           {"messages", loss.messages}});
  }
}

}  // namespace rueda::scale
