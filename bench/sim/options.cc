#include "bench/sim/options.h"

#include <CLI/CLI.hpp>

namespace rueda::scale {
namespace {

std::string names_of_networks() {
  std::string names;
  for (const Network& each : networks()) names += (names.empty() ? "" : ", ") + each.name;
  return names;
}

std::string names_of_modes() {
  std::string names;
  for (const Mode mode : all_modes()) {
    names += std::string(names.empty() ? "" : ", ") + to_string(mode);
  }
  return names;
}

std::string check_network(const std::string& name) {
  if (find_network(name)) return {};
  return "'" + name + "' is no model: take one of " + names_of_networks();
}

std::string check_mode(const std::string& name) {
  if (parse_mode(name)) return {};
  return "'" + name + "' is no mode: take one of " + names_of_modes();
}

}  // namespace

namespace {

std::string check_coordination(const std::string& name) {
  const auto parsed = core::parse_coordination(name);
  return parsed.is_ok() ? std::string() : parsed.status().message();
}

// Adds the command that runs the shipped core alone. A real job of as many daemons is compared with
// it.
CLI::Option* add_order(CLI::App& app, OrderSpec& order, std::string& coordination, bool& wanted) {
  auto* flag = app.add_flag("--order", wanted, "The order traffic alone, a JSON line a step");
  app.add_option("--coordination", coordination, "With --order: the daemons' mode")
      ->capture_default_str()
      ->check(check_coordination)
      ->needs(flag);
  app.add_option("--tensors", order.tensors, "With --order: tensors of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000))
      ->needs(flag);
  app.add_flag("--one-by-one", order.one_by_one,
               "With --order: each tensor is handed over when the one before has come back")
      ->needs(flag);
  app.add_option("--message-us", order.parameters.message_us,
                 "With --order: a daemon's CPU for a message, either side")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->needs(flag);
  app.add_option("--coordinator-message-us", order.coordinator_message_us,
                 "With --order: the same of the coordinator's; not set: as the others'")
      ->check(CLI::NonNegativeNumber)
      ->needs(flag);
  app.add_option("--unawaited-share", order.unawaited_share,
                 "With --order: of that CPU, what nobody waits for")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->needs(flag);
  app.add_option("--wake-us", order.parameters.wake_us,
                 "With --order: from an event to the daemon's turn")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->needs(flag);
  app.add_option("--cores", order.shared_cores,
                 "With --order: that all daemons share; 0: each has one of its own")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->needs(flag);
  return flag;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int* exit_code) {
  Options options;
  std::string mode = "baseline";
  std::string network = "resnet50";
  bool sweep = false;
  bool fit = false;
  bool order = false;
  std::string coordination = "locked";
  CLI::App app("Training at scale in virtual time: docs/scale.md", "rueda-sim");
  app.set_version_flag("--version", RUEDA_VERSION);
  RunSpec& spec = options.spec;
  app.add_option("--gpus", spec.gpus, "GPUs of the job; a training process each")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--gpus-per-node", spec.gpus_per_node, "GPUs of a node")
      ->capture_default_str()
      ->check(CLI::Range(1, 40));
  app.add_option("--mode", mode, names_of_modes())->capture_default_str()->check(check_mode);
  app.add_option("--model", network, names_of_networks())
      ->capture_default_str()
      ->check(check_network);
  app.add_option("--steps", spec.steps, "Steps; the means over them are printed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", spec.seed, "Of the random numbers; the same one repeats a run exactly")
      ->capture_default_str();
  app.add_flag("--strong", spec.strong, "The batch of all GPUs is constant: 24,576 images");
  app.add_flag("--json", options.json, "One JSON object a line");
  auto* sweeps = app.add_flag("--sweep", sweep, "Every study of docs/scale.md");
  app.add_flag("--fit", fit, "Print what the fitted parameters must be")->excludes(sweeps);
  add_order(app, options.order, coordination, order)->excludes(sweeps);
  auto* clusters = app.add_option("--data-plane", options.clusters,
                                  "Predict steps of the clusters in this JSON file, a line each: "
                                  "docs/characterisation.md")
                       ->excludes(sweeps);
  auto* costs = app.add_option("--costs", options.costs,
                               "With --data-plane: the file that bench/characterise.py costs wrote")
                    ->needs(clusters);
  clusters->needs(costs);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error);
    return std::nullopt;
  }
  spec.mode = *parse_mode(mode);
  spec.network = find_network(network);
  if (sweep) options.task = Task::kSweep;
  if (fit) options.task = Task::kFit;
  if (!options.clusters.empty()) options.task = Task::kDataPlane;
  if (order) options.task = Task::kOrder;
  options.order.nodes = spec.nodes();
  options.order.steps = spec.steps;
  options.order.mode = core::parse_coordination(coordination).value();
  return options;
}

}  // namespace rueda::scale
