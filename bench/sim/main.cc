// rueda-sim simulates training at scale in virtual time (docs/scale.md). Its exit code is 0, 1 if a
// simulated job fails, or CLI11's after a wrong command line.
#include <cstdio>
#include <string>

#include "bench/predict/data_plane.h"
#include "bench/sim/fit.h"
#include "bench/sim/options.h"
#include "bench/sim/order_studies.h"
#include "bench/sim/paper.h"
#include "bench/sim/report.h"
#include "bench/sim/sweep.h"

namespace rueda::scale {
namespace {

void print_fit(const Parameters& start) {
  const Parameters fitted = fit(start, FitTargets{});
  std::printf("ring_hop_us = %.4f\noversleep_ms = %.4f\nheld_up_ms = %.4f\n", fitted.ring_hop_us,
              fitted.oversleep_ms, fitted.held_up_ms);
}

void print(const std::string& study, const RunResult& result, bool json) {
  if (!json) {
    std::printf("%-12s %s\n", study.c_str(), to_row(result).c_str());
    return;
  }
  nlohmann::ordered_json line{{"study", study}};
  line.update(to_json(result));
  std::printf("%s\n", line.dump().c_str());
}

void print_line(const nlohmann::ordered_json& line) { std::printf("%s\n", line.dump().c_str()); }

void sweep(const Options& options) {
  if (!options.json) std::printf("%-12s %s\n", "study", table_head().c_str());
  const auto found = [&](const std::string& study, const RunResult& result) {
    print(study, result, options.json);
  };
  sweep_sizes(options.spec, found);
  sweep_variations(options.spec, found);
  sweep_undisturbed(options.spec, found);
  sweep_beyond(options.spec, found);
  if (options.json) {
    for (const PaperValue& value : paper_values()) print_line(to_json(value));
  }
  study_first_steps(options.spec.parameters, print_line);
  study_fan_in(options.spec.parameters, print_line);
  study_loss(options.spec.parameters, print_line);
}

void run_one(const Options& options) {
  const RunResult result = run(options.spec);
  if (options.json) {
    std::printf("%s\n", to_json(result).dump().c_str());
  } else {
    std::printf("%s\n%s\n", table_head().c_str(), to_row(result).c_str());
  }
}

}  // namespace
}  // namespace rueda::scale

int main(int argc, char** argv) {
  using namespace rueda::scale;
  int exit_code = 0;
  const auto options = parse_options(argc, argv, &exit_code);
  if (!options) return exit_code;
  try {
    switch (options->task) {
      case Task::kRun: run_one(*options); break;
      case Task::kSweep: sweep(*options); break;
      case Task::kFit: print_fit(options->spec.parameters); break;
      case Task::kDataPlane:
        for (const auto& line : predict_file(options->clusters, options->costs)) print_line(line);
        break;
      case Task::kOrder: run_order_steps(options->order, print_line); break;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rueda-sim: %s\n", error.what());
    return 1;
  }
  return 0;
}
