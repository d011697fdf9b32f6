#include "bench/machine/machine.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/compute.h"
#include "bench/base/failure.h"
#include "bench/base/models.h"
#include "bench/machine/floor.h"
#include "bench/machine/limits.h"
#include "bench/machine/link.h"
#include "bench/values/elements.h"

namespace rueda::bench {
namespace {

constexpr size_t kMemoryBytes = 64u << 20;  // is far larger than the caches

void print_GBps(const std::string& what, double rate) {
  std::printf("%-44s %9.2f GB/s\n", what.c_str(), rate);
}

}  // namespace

void report_limits(const Options& options, JsonLines* json) {
  const std::vector<Place> places = parse_places(options.places);
  if (places.size() == 1) throw Failure("--places needs two places: a link has two ends");
  nlohmann::ordered_json line;
  const auto report = [&line](const std::string& what, const std::string& key, double rate) {
    print_GBps(what, rate);
    line[key] = rate;
  };
  for (int threads : {1, 2}) {
    const std::string with = std::to_string(threads) + (threads == 1 ? " thread" : " threads, sum");
    const std::string by = "_" + std::to_string(threads) + (threads == 1 ? "_thread" : "_threads");
    report("memcpy of 64 MiB, " + with, "memcpy" + by + "_GBps",
           memcpy_GBps(threads, kMemoryBytes));
    for (int sources : {2, 4}) {
      const std::string count = std::to_string(sources);
      report("sum of " + count + " sources, read and written, " + with,
             "sum_" + count + "_sources" + by + "_GBps",
             sum_GBps(sources, threads, kMemoryBytes / 2));
    }
  }
  const TcpLimit tcp = tcp_limit(places.empty() ? Place{} : places[0],
                                 places.empty() ? Place{} : places[1], options.tcp_congestion);
  report("TCP, one way, " + tcp.congestion, "tcp_one_way_GBps", tcp.one_way_GBps);
  report("TCP, both ways at once, sum, " + tcp.congestion, "tcp_two_way_GBps", tcp.two_way_GBps);
  line["tcp_congestion"] = tcp.congestion;
  const std::optional<double> trip_ns = cache_line_round_trip_ns();
  if (trip_ns) {
    std::printf("%-44s %9.0f ns\n", "round trip of a cache line between two CPUs", *trip_ns);
  } else {
    std::printf("round trip of a cache line between two CPUs: there is one CPU\n");
  }
  line["cache_line_round_trip_ns"] =
      trip_ns ? nlohmann::ordered_json(*trip_ns) : nlohmann::ordered_json(nullptr);
  json->write(line);
}

void report_floor(const Options& options, JsonLines* json) {
  std::printf("# %d ranks on %d nodes: passes over memory and two-way TCP at once, no waiting\n",
              options.nranks, options.nnodes);
  std::printf("#%11s %12s %9s\n", "bytes", "time_us", "cpu(s/GB)");
  for (uint64_t bytes : options.sizes(RUEDA_FLOAT32)) {
    const FloorTime time =
        measure_floor({.nranks = options.nranks,
                       .nnodes = options.nnodes,
                       .places = parse_places(options.places),
                       .congestion = options.tcp_congestion,
                       .bytes = bytes,
                       .iters = options.iters > 0 ? options.iters : default_iterations(bytes)});
    std::printf("%12" PRIu64 " %12.1f %9.3f\n", bytes, time.time_us, time.cpu_s_per_GB.value_or(0));
    std::fflush(stdout);
    nlohmann::ordered_json line = {{"bytes", bytes}, {"time_us", time.time_us}};
    if (time.cpu_s_per_GB) line["cpu_s_per_GB"] = *time.cpu_s_per_GB;
    json->write(line);
  }
}

namespace {

// Adds what is known of a network and not of a set of small tensors.
void describe_network(const std::string& name, const ParameterList& parameters,
                      nlohmann::ordered_json* line) {
  const auto& known = network_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) return;
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  const Compute& compute = compute_on_p100(name);
  line->update({{"names", names},
                {"ready", ready_shares(parameters)},
                {"multiply_adds", total_multiply_adds(parameters)},
                {"p100",
                 {{"fixed_ms", compute.fixed_ms},
                  {"per_image_ms", compute.per_image_ms},
                  {"usual_batch", compute.usual_batch},
                  {"source", compute.source}}}});
}

}  // namespace

void report_models(const Options& options, JsonLines* json) {
  std::printf("#%11s %8s %12s\n", "model", "tensors", "bytes");
  for (const std::string& name : options.models.empty() ? model_names() : options.models) {
    const ParameterList parameters = *model_by_name(name);
    const auto bytes =
        static_cast<uint64_t>(total_elements(parameters)) * element_bytes(RUEDA_FLOAT32);
    std::printf("%12s %8zu %12" PRIu64 "\n", name.c_str(), parameters.size(), bytes);
    std::vector<std::vector<int64_t>> shapes;
    for (const Parameter& parameter : parameters) shapes.push_back(parameter.shape);
    nlohmann::ordered_json line{{"model", name}, {"bytes", bytes}, {"shapes", shapes}};
    describe_network(name, parameters, &line);
    json->write(line);
  }
}

}  // namespace rueda::bench
