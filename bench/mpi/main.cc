// rueda-mpi-bench is one rank of an all-reduce over MPI, for bench/compare.py: float32, sum, in
// place. Rank 0 prints one JSON object a size, with the keys of rueda-bench. mpirun starts one
// process a rank.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <mpi.h>

#include "bench/base/sizes.h"
#include "bench/base/stats.h"
#include "bench/cli/report.h"
#include "bench/machine/cpu.h"
#include "bench/mpi/ring.h"
#include "bench/values/work.h"

namespace rueda::bench {
namespace {

struct Options {
  std::string algorithm = "library";
  std::vector<uint64_t> sizes;
  int iters = 0;
  int warmup = 5;
};

struct World {
  int rank = 0;
  int ranks = 1;
};

// Returns what a rank contributes to element i. Any sum of some ranks' factors tells which ranks
// they are.
float contribution(int rank, size_t i) {
  return static_cast<float>((1 << rank) * static_cast<int>(i % 7 + 1));
}

class Case {
 public:
  Case(const World& world, const Options& options, uint64_t bytes)
      : world_(world), options_(options), data_(bytes / sizeof(float)) {}

  Row measure() {
    Row row;
    row.collective = "allreduce";
    row.count = data_.size();
    row.bytes = row.count * sizeof(float);
    row.dtype = "float32";
    row.op = "sum";
    row.in_place = true;
    row.foreign = true;
    row.nranks = world_.ranks;
    row.nnodes = 1;
    row.iters = options_.iters > 0 ? options_.iters : default_iterations(row.bytes);
    uint64_t wrong = checked_pass();
    for (int i = 0; i < options_.warmup; ++i) operate();
    // The loop reduces its own results, and zeros neither overflow nor become subnormal.
    std::fill(data_.begin(), data_.end(), 0.0f);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<double> times_us;
    double cpu_s = process_cpu_s();
    double start = MPI_Wtime();
    for (int i = 0; i < row.iters; ++i) {
      operate();
      const double end = MPI_Wtime();
      times_us.push_back((end - start) * 1e6);
      start = end;
    }
    cpu_s = process_cpu_s() - cpu_s;
    wrong += checked_pass();
    MPI_Allreduce(MPI_IN_PLACE, times_us.data(), row.iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &cpu_s, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &row.wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    row.time_us = median(times_us);
    row.time_us_p99 = percentile(times_us, 99);
    row.algbw_GBps = algbw_GBps(row.bytes, row.time_us);
    row.busbw_GBps = busbw_GBps(Work::kAllreduce, row.algbw_GBps, world_.ranks);
    if (row.bytes > 0) {
      row.cpu_s_per_GB = cpu_s / row.iters / (static_cast<double>(row.bytes) / 1e9);
    }
    return row;
  }

 private:
  void operate() {
    if (options_.algorithm == "ring") {
      ring_allreduce(data_.data(), data_.size(), &scratch_, MPI_COMM_WORLD);
    } else {
      MPI_Allreduce(MPI_IN_PLACE, data_.data(), static_cast<int>(data_.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }
  }

  // Makes one all-reduce and returns the number of wrong elements on this rank.
  uint64_t checked_pass() {
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = contribution(world_.rank, i);
    operate();
    uint64_t wrong = 0;
    for (size_t i = 0; i < data_.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < world_.ranks; ++rank) sum += contribution(rank, i);
      if (data_[i] != sum) ++wrong;
    }
    return wrong;
  }

  const World& world_;
  const Options& options_;
  std::vector<float> data_;
  std::vector<float> scratch_;
};

// Returns the exit code.
int run(const Options& options) {
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
  uint64_t wrong = 0;
  for (uint64_t bytes : options.sizes) {
    const Row row = Case(world, options, bytes).measure();
    wrong += row.wrong;
    if (world.rank != 0) continue;
    std::printf("%s\n", to_json(row).dump().c_str());
    std::fflush(stdout);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  rueda::bench::Options options;
  CLI::App app("One rank of an all-reduce over MPI; mpirun starts them", "rueda-mpi-bench");
  app.add_option("--algorithm", options.algorithm, "MPI_Allreduce (library), or a ring of our own")
      ->capture_default_str()
      ->check(CLI::IsMember({"library", "ring"}));
  app.add_option("--sizes", options.sizes, "Bytes, separated by commas")
      ->delimiter(',')
      ->required();
  app.add_option("--iters", options.iters, "Measured iterations; 0: by size")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--warmup", options.warmup, "Iterations before them")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  const int code = rueda::bench::run(options);
  MPI_Finalize();
  return code;
}
