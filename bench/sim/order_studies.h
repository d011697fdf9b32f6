// Studies what Rueda's own order costs at scale, with order.h, as JSON lines.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "bench/sim/order.h"

namespace rueda::scale {

using FoundOrder = std::function<void(const nlohmann::ordered_json& line)>;

// Gives a line for each step of one run ("order") and, before them, one about the start of the job
// ("order-start").
void run_order_steps(const OrderSpec& spec, const FoundOrder& found);

// Studies a job's first steps, its lock, and a step that the plan does not have, by nodes:
// "first-steps".
void study_first_steps(const Parameters& parameters, const FoundOrder& found);
// Studies the same on the most nodes that the core allows, by the fan-in of the tree: "fan-in".
void study_fan_in(const Parameters& parameters, const FoundOrder& found);
// Studies the loss of a node, by nodes: "loss" under policy `shrink`, "loss-fail" under `fail`.
void study_loss(const Parameters& parameters, const FoundOrder& found);

}  // namespace rueda::scale
