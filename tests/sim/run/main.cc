// rueda-sim-run runs seeds of the simulator, shows one, makes a failing one small, and tells a
// scenario.

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tests/sim/run/campaign.h"
#include "tests/sim/run/shrink.h"
#include "tests/sim/scenario/scenario.h"

namespace rueda::sim {
namespace {

constexpr int kShrinkRuns = 20'000;

struct Arguments {
  std::optional<uint64_t> seed;
  std::string mode;
  std::string policy;
  uint64_t seeds = 10'000;
  uint64_t first = 1;
  bool trace = false;
  bool shrink = false;
  bool quiet_world = false;
  bool keep_going = false;
  int max_nodes = Limits{}.max_nodes;
  std::vector<std::string> scenarios;
};

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << '\n';
}

int show_violation(uint64_t seed, const std::string& violation) {
  std::cout << "seed " << seed << ": " << violation << '\n';
  return 1;
}

int shrink_seed(uint64_t seed, const Limits& limits) {
  const SmallRun small = shrink(draw_setup(seed, limits), kShrinkRuns);
  if (small.result.violation.empty()) {
    std::cout << "seed " << seed << " breaks no rule: there is nothing to make small\n";
    return 0;
  }
  print(report(small));
  std::cout << "made small in " << small.runs << " runs\n";
  return show_violation(seed, small.result.violation);
}

int run_one(uint64_t seed, const Limits& limits, bool trace) {
  const RunSetup setup = draw_setup(seed, limits);
  RunOptions options;
  options.keep_trace = trace;
  const RunResult result = Simulator(setup, RandomChoices(seed), options).run();
  if (trace) {
    print(setup.lines());
    print(result.trace);
  }
  std::cout << result.events << " events, trace hash " << std::hex << result.trace_hash << std::dec
            << '\n';
  return result.violation.empty() ? 0 : show_violation(seed, result.violation);
}

int tell(const std::vector<std::string>& files, bool trace) {
  int failures = 0;
  for (const std::string& file : files) {
    const ScenarioResult result = run_scenario_file(file);
    if (trace) print(result.trace);
    std::cout << file << ": " << (result.error.empty() ? "as told" : "not as told") << '\n';
    if (result.error.empty()) continue;
    std::cout << result.error << '\n';
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}

int run(const Arguments& arguments) {
  if (!arguments.scenarios.empty()) return tell(arguments.scenarios, arguments.trace);
  Limits limits;
  limits.max_nodes = arguments.max_nodes;
  if (!arguments.mode.empty()) {
    const auto mode = core::parse_coordination(arguments.mode);
    if (!mode.is_ok()) {
      std::cerr << mode.status().message() << '\n';
      return 2;
    }
    limits.mode = mode.value();
  }
  if (!arguments.policy.empty()) {
    limits.policy =
        arguments.policy == "shrink" ? core::DeathPolicy::kShrink : core::DeathPolicy::kFail;
  }
  if (arguments.quiet_world) {
    limits.faults = limits.strays = limits.mismatches = limits.leavers = limits.joins = false;
  }
  if (arguments.seed) {
    return arguments.shrink ? shrink_seed(*arguments.seed, limits)
                            : run_one(*arguments.seed, limits, arguments.trace);
  }
  const CampaignResult result =
      run_campaign(arguments.first, arguments.seeds, limits, arguments.keep_going);
  std::cout << result.summary() << '\n';
  if (result.failures.empty()) return 0;
  if (arguments.shrink) return shrink_seed(result.failures.front().seed, limits);
  for (const Failure& failure : result.failures) show_violation(failure.seed, failure.violation);
  return 1;
}

int parse_and_run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Runs whole clusters of Rueda's protocol in one thread, as random seeds say."};
  app.add_option("--seed", arguments.seed, "run this seed alone");
  app.add_option("--mode", arguments.mode, "of coordination; any when not given");
  app.add_option("--policy", arguments.policy, "when a node dies; any when not given")
      ->check(CLI::IsMember({"fail", "shrink"}));
  app.add_option("--seeds", arguments.seeds, "how many to run")->capture_default_str();
  app.add_option("--first", arguments.first, "the first of them")->capture_default_str();
  app.add_flag("--trace", arguments.trace, "print what happens, one line an event");
  app.add_flag("--shrink", arguments.shrink, "make the failing seed as small as it goes");
  app.add_flag("--keep-going", arguments.keep_going, "do not stop at the first seed that fails");
  app.add_flag("--quiet-world", arguments.quiet_world, "no faults and no strays");
  app.add_option("--max-nodes", arguments.max_nodes, "of a cluster")->capture_default_str();
  app.add_option("--scenario", arguments.scenarios, "tell these files instead of running seeds");
  CLI11_PARSE(app, argc, argv);
  return run(arguments);
}

}  // namespace
}  // namespace rueda::sim

int main(int argc, char** argv) { return rueda::sim::parse_and_run(argc, argv); }
