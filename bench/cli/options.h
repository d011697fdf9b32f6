// The command line.
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
  std::vector<SizeText> explicit_sizes;  // --sizes; when empty, the ladder
  SizeText begin{4u << 10, false};
  SizeText end{64u << 20, false};
  uint64_t factor = 4;
  bool in_place = false;
  bool foreign = false;
  int root = 0;
  int iters = 0;  // 0: by size (default_iterations)
  int warmup = 5;
  std::string model = "resnet50";
  bool plan = false;                // step: the first ones, too, with and without a declared plan
  std::vector<std::string> models;  // models; empty: those of model_names()
  std::string json_path;            // empty: none
  std::string tcp_congestion;       // limits, floor; empty: the system's
  std::string places;               // limits, floor: as parse_places reads them; empty: loopback
  int nranks = 4;                   // floor
  int nnodes = 2;                   // floor
  int64_t timeout_ms = 120'000;     // of each operation

  // In bytes of `dtype`, rounded down to so many equal parts.
  std::vector<uint64_t> sizes(rueda_dtype dtype, int parts = 1) const;
};

// Nothing when the process should end with *exit_code: help was asked for and printed, or the
// command line was wrong and stderr says how.
std::optional<Options> parse_options(int argc, const char* const* argv, int* exit_code);

}  // namespace rueda::bench
