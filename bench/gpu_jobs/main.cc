// rueda-gpu-job-bench measures all-reduces of device memory by the ranks of a job, through daemon
// and worker. It is a rank under ruedarun; rank 0 prints a table in Markdown.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/base/stats.h"
#include "bench/gpu_jobs/driver.h"
#include "bench/gpu_jobs/measure.h"
#include "bench/run/job.h"

namespace rueda::gpu::bench {
namespace {

using rueda::bench::Failure;
using rueda::bench::Job;
using rueda::bench::median;
using rueda::bench::percentile;

// The exit code that marks a test as skipped.
constexpr int kNoGpu = 77;
constexpr int64_t kPatienceMs = 120'000;

struct Options {
  std::vector<uint64_t> large{uint64_t{64} << 20, uint64_t{1} << 30};
  std::vector<uint64_t> small{8, 64, 512, 4096, 65536};
  int rounds = 5;
  int iterations = 200;
  int steps = 10'000;
  bool has_load = false;
  Cache cache = Cache::kChecked;
};

unsigned long long printed(uint64_t value) { return value; }  // NOLINT: what printf has a name for

// The aims: shares of the limit, and microseconds of two ranks on an idle GPU.
constexpr double kLeastOnOneNode = 0.85;
constexpr double kLeastOnSeveral = 0.80;
constexpr double kMaxStreamed_us = 40;
constexpr double kMaxBlocking_us = 80;

const char* yes_or_no(bool is_so) { return is_so ? "yes" : "no"; }

// Measures and prints rates. Returns the exit code, 0 or 1, which is the same on all ranks.
int rate(Job& job, Driver& driver, const Options& options) {
  const bool is_first = job.rank() == 0;
  const double aim = job.nnodes() > 1 ? kLeastOnSeveral : kLeastOnOneNode;
  if (is_first) {
    std::printf(
        "%s, %d ranks on %d nodes; medians of %d rounds\n\n"
        "| bytes of a rank | all-reduce, ms | limit, ms | limit / all-reduce | least-most | at "
        "least %.2f | right |\n"
        "|--:|--:|--:|--:|--:|--:|--:|\n",
        driver.device_name().c_str(), job.nranks(), job.nnodes(), options.rounds, aim);
  }
  bool is_right = true;
  std::vector<Limit> limits;
  for (const uint64_t bytes : options.large) {
    const Rates rates = measure_rates(job, driver, bytes, options.rounds);
    is_right = is_right && rates.is_right;
    std::vector<double> shares;
    for (size_t i = 0; i < rates.reduce_s.size(); ++i) {
      shares.push_back(rates.limit_s[i] / rates.reduce_s[i]);
    }
    limits.insert(limits.end(), rates.limits.begin(), rates.limits.end());
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    if (!is_first) continue;
    std::printf("| %llu | %.3f | %.3f | %.3f | %.3f-%.3f | %s | %s |\n", printed(bytes),
                median(rates.reduce_s) * 1e3, median(rates.limit_s) * 1e3, median(shares), *least,
                *most, yes_or_no(median(shares) >= aim), yes_or_no(rates.is_right));
    std::fflush(stdout);
  }
  if (!limits.empty()) {
    std::vector<double> tcp;
    std::vector<double> copies;
    for (const Limit& limit : limits) {
      tcp.push_back(limit.tcp_Bps / 1e9);
      copies.push_back(limit.copy_Bps / 1e9);
    }
    std::printf(
        "\nThe limit is a bare program's, in turn with the all-reduces: TCP over loopback, both "
        "ways together, %.2f GB/s, and at the same time copies out, and as many in, %.2f GB/s\n",
        median(tcp), median(copies));
  }
  return is_right ? 0 : 1;
}

int latency(Job& job, Driver& driver, const Options& options) {
  const bool is_first = job.rank() == 0;
  const bool has_aim = job.nranks() == 2 && job.nnodes() == 1 && !options.has_load;
  if (is_first) {
    std::printf(
        "%s, %d ranks on %d nodes%s; microseconds of the slowest rank, %d times\n\n"
        "| bytes | until the stream has it, median | p99 | until the host has it, median | p99 "
        "|",
        driver.device_name().c_str(), job.nranks(), job.nnodes(),
        options.has_load ? ", the last of which computes beside" : "", options.iterations);
    if (has_aim) std::printf(" below %.0f and %.0f |", kMaxStreamed_us, kMaxBlocking_us);
    if (options.has_load) {
      std::printf(" what the load does of what it does alone, streamed | blocking |");
    }
    std::printf("\n|--:|--:|--:|--:|--:|%s%s\n", has_aim ? "--:|" : "",
                options.has_load ? "--:|--:|" : "");
  }
  for (const uint64_t bytes : options.small) {
    const Latencies found =
        measure_latencies(job, driver, bytes, options.iterations, options.has_load, options.cache);
    if (!is_first) continue;
    const double streamed = median(found.streamed_us);
    const double blocking = median(found.blocking_us);
    std::printf("| %llu | %.1f | %.1f | %.1f | %.1f |", printed(bytes), streamed,
                percentile(found.streamed_us, 99), blocking, percentile(found.blocking_us, 99));
    if (has_aim) {
      std::printf(" %s, %s |", yes_or_no(streamed < kMaxStreamed_us),
                  yes_or_no(blocking < kMaxBlocking_us));
    }
    if (options.has_load) {
      std::printf(" %.3f | %.3f |", found.load_streamed_Hz / found.load_alone_Hz,
                  found.load_blocking_Hz / found.load_alone_Hz);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

int growth(Job& job, Driver& driver, const Options& options) {
  // All ranks are measured, and the worst of them is reported.
  Growth worst = measure_growth(job, driver, options.steps);
  const std::vector<int64_t> row{worst.rank_bytes, worst.daemon_bytes, worst.daemons,
                                 worst.device_bytes};
  for (const std::vector<int64_t>& other : job.gather(row)) {
    worst.rank_bytes = std::max(worst.rank_bytes, other[0]);
    worst.daemon_bytes = std::max(worst.daemon_bytes, other[1]);
    worst.daemons = std::max(worst.daemons, static_cast<int>(other[2]));
    worst.device_bytes = std::max(worst.device_bytes, other[3]);
  }
  if (job.rank() == 0) {
    std::printf(
        "| steps | bytes of a rank's memory more than after a tenth | of daemons and workers "
        "together (their number) | of the GPU |\n|--:|--:|--:|--:|\n| %d | %lld | %lld (%d) | %lld "
        "|\n",
        options.steps, static_cast<long long>(worst.rank_bytes),    // NOLINT
        static_cast<long long>(worst.daemon_bytes), worst.daemons,  // NOLINT
        static_cast<long long>(worst.device_bytes));                // NOLINT
  }
  // A process's allocator takes up to this many bytes at first, and does not give them back.
  constexpr int64_t kNoise = 1 << 20;
  const bool is_steady = worst.rank_bytes < kNoise && worst.device_bytes < kNoise &&
                         worst.daemon_bytes < kNoise * std::max(worst.daemons, 1);
  return is_steady ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("All-reduces of device memory by the ranks of a job (a rank under ruedarun)");
  app.require_subcommand(1);
  CLI::App* const rates =
      app.add_subcommand("rate",
                         "Large ones, beside copies on the GPU; on several nodes beside copies "
                         "out and in and TCP over loopback");
  rates->add_option("--bytes", options.large, "Of one rank")->delimiter(',');
  rates->add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::Range(1, 1000));
  const std::map<std::string, Cache> caches{
      {"none", Cache::kNone}, {"checked", Cache::kChecked}, {"announced", Cache::kAnnounced}};
  CLI::App* const latencies =
      app.add_subcommand("latency", "Small ones, from the call to the result");
  latencies->add_option("--bytes", options.small)->delimiter(',');
  latencies->add_option("--iterations", options.iterations)
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  latencies
      ->add_option("--cache", options.cache,
                   "Of allocations: none, checked with the driver at each use, or announced: frees "
                   "are, so it is hardly asked")
      ->transform(CLI::CheckedTransformer(caches));
  latencies->add_flag("--load", options.has_load,
                      "The last rank's process computes beside, as a backward pass does");
  CLI::App* const steps =
      app.add_subcommand("growth",
                         "Steps of eight tensors: what memory they leave behind, of ranks, of "
                         "the daemons that the launcher has started, and of the GPU");
  steps->add_option("--steps", options.steps)
      ->capture_default_str()
      ->check(CLI::Range(10, 100'000'000));
  app.footer(
      "Exits with 77 where there is no GPU to be used, and with 1 when a result was wrong or "
      "memory grew.");
  CLI11_PARSE(app, argc, argv);
  if (const std::string lack = Driver::lack(); !lack.empty()) {
    std::cerr << "rueda-gpu-job-bench: skipped: " << lack << "\n";
    return kNoGpu;
  }
  Job job(kPatienceMs);
  Driver driver;
  if (rates->parsed()) return rate(job, driver, options);
  return latencies->parsed() ? latency(job, driver, options) : growth(job, driver, options);
}

}  // namespace
}  // namespace rueda::gpu::bench

int main(int argc, char** argv) {
  try {
    return rueda::gpu::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "rueda-gpu-job-bench: " << error.what() << "\n";
    return 1;
  }
}
