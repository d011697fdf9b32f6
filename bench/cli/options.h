// Defines the command line of rueda-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rueda/rueda.h>

#include "bench/base/sizes.h"
#include "bench/values/work.h"

namespace rueda::bench {

struct Options {
  Work work = Work::kAllreduce;
  std::vector<rueda_dtype> dtypes = {RUEDA_FLOAT32};
  std::vector<rueda_op> ops = {RUEDA_SUM};
  rueda_wire_dtype wire = RUEDA_WIRE_SAME;
  std::vector<SizeText> explicit_sizes;  // from --sizes; if empty, the ladder is used
  SizeText begin{4u << 10, false};
  SizeText end{64u << 20, false};
  uint64_t factor = 4;
  bool in_place = false;
  bool foreign = false;
  int root = 0;
  int iters = 0;  // 0: it follows from the size (default_iterations())
  int warmup = 5;
  std::string model = "resnet50";
  double compute_ms = 0;  // step: the time of a step without communication; 0: nothing is computed
  bool plan = false;      // step: also measures first steps, with a declared plan and without
  std::vector<std::string> models;  // models: if empty, those of model_names()
  std::string json_path;            // if empty, no JSON is written
  std::string tcp_congestion;       // limits, floor: if empty, the system's choice
  std::string places;               // limits, floor: as for parse_places(); if empty, loopback
  int nranks = 4;                   // floor: the number of ranks
  int nnodes = 2;                   // floor: the number of nodes
  int64_t timeout_ms = 120'000;     // the limit of each operation

  // Returns the sizes in bytes of elements of `dtype`, each rounded down so that it divides into
  // `parts` equal parts.
  std::vector<uint64_t> sizes(rueda_dtype dtype, int parts = 1) const;
};

// Parses the command line. Returns nullopt when the process should end with *exit_code: help was
// asked for and has been printed, or the command line was wrong and stderr says how.
std::optional<Options> parse_options(int argc, const char* const* argv, int* exit_code);

}  // namespace rueda::bench
