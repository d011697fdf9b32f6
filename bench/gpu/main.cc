// rueda-gpu-bench measures reduction on one GPU, as a ratio to the rate at which the GPU copies.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/base/stats.h"
#include "bench/gpu/measure.h"
#include "daemon/gpu/load.h"

namespace rueda::gpu::bench {
namespace {

using rueda::bench::median;

// The exit code that marks a test as skipped.
constexpr int kNoGpu = 77;

struct Options {
  std::string plugin;
  int ordinal = 0;
  std::vector<uint64_t> bytes{1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30};
  std::vector<size_t> ranks{2, 4, 8};
  std::vector<size_t> segments{1, 161};
  std::vector<std::string> dtypes{"float32", "bfloat16"};
  uint32_t rounds = 5;
  double round_seconds = 0.05;
  bool is_json = false;
  bool is_markdown = false;
};

std::vector<DType> dtypes_of(const std::vector<std::string>& names) {
  std::vector<DType> found;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool is_named = std::find(names.begin(), names.end(), to_string(dtype)) != names.end();
    if (is_named) found.push_back(dtype);
  }
  return found;
}

void print_head(const Options& options, const DeviceFacts& facts) {
  std::printf("%s, compute capability %d.%d. GB/s read and written; ratio of the two by round\n",
              facts.name.c_str(), facts.capability_major, facts.capability_minor);
  if (options.is_markdown) {
    std::printf(
        "\n| dtype | bytes of a rank | ranks | tensors | copy, GB/s | reduce, GB/s | reduce / copy "
        "| least-most | latency, µs |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  } else {
    std::printf("%10s %12s %6s %9s %11s %11s %7s %12s %11s\n", "dtype", "bytes", "ranks",
                "segments", "copy", "reduce", "ratio", "least-most", "latency_us");
  }
}

void print_row(const Options& options, const Workload& workload, const Measured& measured) {
  const auto [low, high] = std::minmax_element(measured.ratio.begin(), measured.ratio.end());
  const char* const format =
      options.is_markdown ? "| %s | %llu | %zu | %zu | %.1f | %.1f | %.3f | %.3f-%.3f | %.1f |\n"
                          : "%10s %12llu %6zu %9zu %11.1f %11.1f %7.3f %6.3f-%.3f %11.1f\n";
  std::printf(
      format, to_string(workload.dtype),
      static_cast<unsigned long long>(workload.bytes),  // NOLINT: what printf has a name for
      workload.ranks, workload.segments, median(measured.copy_bytes_per_s) / 1e9,
      median(measured.reduce_bytes_per_s) / 1e9, median(measured.ratio), *low, *high,
      median(measured.latency_us));
  std::fflush(stdout);
}

// Prints that the GPU has no memory for a workload; the other workloads go on.
void print_lack(const Options& options, const Workload& workload, const Status& status) {
  std::printf(
      options.is_markdown ? "| %s | %llu | %zu | %zu | %s | | | | |\n"
                          : "%10s %12llu %6zu %9zu %s\n",
      to_string(workload.dtype),
      static_cast<unsigned long long>(workload.bytes),  // NOLINT: what printf has a name for
      workload.ranks, workload.segments, status.message().c_str());
  std::fflush(stdout);
}

nlohmann::json to_json(const Workload& workload) {
  return {{"dtype", to_string(workload.dtype)},
          {"bytes", workload.bytes},
          {"ranks", workload.ranks},
          {"segments", workload.segments}};
}

nlohmann::json to_json(const Workload& workload, const Measured& measured) {
  nlohmann::json row = to_json(workload);
  row["copy_bytes_per_s"] = measured.copy_bytes_per_s;
  row["reduce_bytes_per_s"] = measured.reduce_bytes_per_s;
  row["ratio"] = measured.ratio;
  row["latency_us"] = measured.latency_us;
  return row;
}

// Returns why there is nothing to measure here, or ok.
Status look_for_gpu(const Options& options) {
  const auto plugin = load_plugin(options.plugin);
  // A plugin that was named, or that is there and cannot be loaded, is a mistake, which run()
  // reports.
  if (!plugin.is_ok()) {
    const bool is_absent = options.plugin.empty() && plugin.status().code() == Code::kNotFound;
    return is_absent ? plugin.status() : Status::ok();
  }
  const auto devices = plugin.value()->list();
  if (!devices.is_ok()) return devices.status();
  return devices.value().empty() ? Status(Code::kNotFound, "there is no GPU") : Status::ok();
}

Status run(const Options& options) {
  const auto plugin = load_plugin(options.plugin);
  if (!plugin.is_ok()) return plugin.status();
  const auto opened =
      plugin.value()->open({.ordinal = options.ordinal, .memory_limit_bytes = UINT64_MAX});
  if (!opened.is_ok()) return opened.status();
  Device& device = *opened.value();
  const DeviceFacts& facts = device.facts();
  nlohmann::json rows = nlohmann::json::array();
  if (!options.is_json) print_head(options, facts);
  for (const DType dtype : dtypes_of(options.dtypes)) {
    for (const uint64_t bytes : options.bytes) {
      for (const size_t ranks : options.ranks) {
        for (const size_t segments : options.segments) {
          const Workload workload{bytes, ranks,          segments,
                                  dtype, options.rounds, options.round_seconds};
          const auto measured = measure(device, workload);
          const bool fits = measured.status().code() != Code::kResourceExhausted;
          if (!measured.is_ok() && fits) return measured.status();
          if (!options.is_json) {
            if (fits) print_row(options, workload, measured.value());
            if (!fits) print_lack(options, workload, measured.status());
            continue;
          }
          rows.push_back(fits ? to_json(workload, measured.value()) : to_json(workload));
          if (!fits) rows.back()["lack"] = measured.status().message();
        }
      }
    }
  }
  if (options.is_json) {
    const nlohmann::json all{
        {"device", facts.name}, {"memory_bytes", facts.memory_bytes}, {"results", std::move(rows)}};
    std::cout << all.dump(2) << "\n";
  }
  return Status::ok();
}

}  // namespace
}  // namespace rueda::gpu::bench

int main(int argc, char** argv) {
  rueda::gpu::bench::Options options;
  CLI::App app("Reduction on one GPU, beside the rate at which it copies");
  app.add_option("--plugin", options.plugin, "The GPU plugin; else the one that is installed");
  app.add_option("--gpu", options.ordinal, "Which GPU")->capture_default_str();
  app.add_option("--bytes", options.bytes, "Of one rank's tensors")->delimiter(',');
  app.add_option("--ranks", options.ranks, "Sources, and as many destinations")
      ->delimiter(',')
      ->check(CLI::Range(1, 16));
  app.add_option("--segments", options.segments, "Tensors that the bytes are cut into")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  std::vector<std::string> dtypes;
  for (int i = 0; i < rueda::kDTypeCount; ++i) {
    dtypes.emplace_back(to_string(static_cast<rueda::DType>(i)));
  }
  app.add_option("--dtypes", options.dtypes)->delimiter(',')->check(CLI::IsMember(dtypes));
  app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--round-seconds", options.round_seconds)->capture_default_str();
  CLI::Option* const json = app.add_flag("--json", options.is_json, "All rounds, as JSON");
  app.add_flag("--markdown", options.is_markdown, "As a table in Markdown")->excludes(json);
  app.footer("Exits with 77 where there is no GPU to be used.");
  CLI11_PARSE(app, argc, argv);
  const rueda::Status lack = rueda::gpu::bench::look_for_gpu(options);
  if (!lack.is_ok()) {
    std::cerr << "rueda-gpu-bench: skipped: " << lack.to_string() << "\n";
    return rueda::gpu::bench::kNoGpu;
  }
  const rueda::Status status = rueda::gpu::bench::run(options);
  if (status.is_ok()) return 0;
  std::cerr << "rueda-gpu-bench: " << status.to_string() << "\n";
  return 1;
}
