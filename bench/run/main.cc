// rueda-bench is one rank that measures and checks collectives; ruedarun starts one process a rank.
// Its exit code is 0 if all is right, 1 after a wrong result or an error, and CLI11's after a wrong
// command line.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bench/cli/options.h"
#include "bench/cli/report.h"
#include "bench/machine/cpu.h"
#include "bench/machine/machine.h"
#include "bench/run/collective.h"
#include "bench/run/job.h"
#include "bench/run/step.h"
#include "bench/run/timing.h"

namespace rueda::bench {
namespace {

void open_json(const Options& options, JsonLines* json) {
  std::string error;
  if (!options.json_path.empty() && !json->open(options.json_path, &error)) throw Failure(error);
}

int run_machine(const Options& options) {
  JsonLines json;
  open_json(options, &json);
  switch (options.work) {
    case Work::kFloor: report_floor(options, &json); break;
    case Work::kModels: report_models(options, &json); break;
    default: report_limits(options, &json); break;
  }
  return 0;
}

void print_head(const Job& job, const CpuMeter& meter, const Options& options) {
  std::printf("# rueda-bench %s %s: nranks %d, nnodes %d, memory %s\n", RUEDA_VERSION,
              to_string(options.work), job.nranks(), job.nnodes(),
              options.foreign ? "foreign (copied)" : "arena");
  if (has_sizes(options.work)) {
    std::printf("# %s; every pattern, and the first and last iteration, are checked\n",
                options.in_place ? "in place" : "out of place");
  }
  std::printf("# time: median over the iterations of the slowest rank; cpu: all ranks%s\n",
              meter.includes_daemons() ? " and daemons" : ", daemons not known");
}

void print_foot(uint64_t wrong, const NoiseWindow& window, double own_s) {
  const double noise = std::max(0.0, (window.busy_s() - own_s) / window.wall_s());
  std::printf("# machine noise: %.2f cores busy with other work; wrong: %llu\n", noise,
              static_cast<unsigned long long>(wrong));
}

int run_job(const Options& options) {
  Job job(options.timeout_ms);
  job.set_wire(options.wire);
  if (options.root >= job.nranks()) {
    throw Failure("--root " + std::to_string(options.root) + " is no rank of this job: it has " +
                  std::to_string(job.nranks()));
  }
  JsonLines json;
  if (job.rank() == 0) open_json(options, &json);
  const CpuMeter meter(job);
  const NoiseWindow window(meter);
  if (job.rank() == 0) print_head(job, meter, options);
  const uint64_t wrong = options.work == Work::kStep ? run_steps(job, meter, options, &json)
                                                     : run_collectives(job, meter, options, &json);
  const int64_t own_ns = static_cast<int64_t>(window.own_s() * 1e9);
  double own_s = 0;
  const auto rows = job.gather({&own_ns, 1});
  for (int rank = 0; rank < job.nranks(); ++rank) {
    if (meter.with_rank0(rank))
      own_s += static_cast<double>(rows[static_cast<size_t>(rank)][0]) / 1e9;
  }
  if (job.rank() == 0) print_foot(wrong, window, own_s);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  using namespace rueda::bench;
  int exit_code = 0;
  const auto options = parse_options(argc, argv, &exit_code);
  if (!options) return exit_code;
  try {
    return needs_job(options->work) ? run_job(*options) : run_machine(*options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rueda-bench: %s\n", error.what());
    return 1;
  }
}
