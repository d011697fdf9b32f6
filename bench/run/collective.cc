#include "bench/run/collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "bench/base/stats.h"
#include "bench/cli/layout.h"

namespace rueda::bench {
namespace {

// Fills an output before the operation, so that a result that was never written shows.
constexpr int kPoison = 0xa5;

// Measures one size of one collective on this rank.
class Case {
 public:
  Case(Job& job, const Options& options, rueda_dtype dtype, rueda_op op, uint64_t bytes)
      : job_(job),
        options_(options),
        dtype_(dtype),
        op_(op),
        bytes_(bytes),
        count_(static_cast<size_t>(bytes / element_bytes(dtype))),
        input_(bytes, options.foreign),
        output_(options.in_place ? 0 : bytes, options.foreign) {
    name_ = std::string("bench/") + to_string(options.work) + "/" + to_string(dtype) + "/" +
            to_string(op) + "/" + std::to_string(count_) + (options.in_place ? "/in" : "/out");
  }

  // Checks every pattern once, and where there is a root once more with the last rank as the root.
  void check_patterns() {
    for (Pattern pattern : kAllPatterns) checked_pass(pattern, options_.root);
    if (has_root(options_.work) && job_.nranks() > 1) {
      checked_pass(Pattern::kRandom, (options_.root + job_.nranks() - 1) % job_.nranks());
    }
  }

  LoopTimes measure(const CpuMeter& meter, int iters) {
    const Layout layout = layout_from(options_.root);
    const LoopBody body = {
        .iterate = [this, &layout] { operate(layout); },
        .prepare =
            [this, &layout](uint64_t seed) { prepare(scenario(Pattern::kIntegers, seed), layout); },
        .inspect =
            [this, &layout](uint64_t seed) { inspect(scenario(Pattern::kIntegers, seed), layout); },
    };
    // In place the loop reduces its own results, so it takes integers: random factors would soon be
    // subnormal, and slow.
    prepare(scenario(Pattern::kIntegers, 0), layout);
    return run_loop(job_, meter, options_.warmup, iters, body);
  }

  uint64_t wrong() const { return wrong_; }
  uint64_t hash() const { return hash_; }

 private:
  Layout layout_from(int root) const {
    return {.work = options_.work,
            .count = count_,
            .nranks = job_.nranks(),
            .rank = job_.rank(),
            .root = root};
  }

  // Both buffers have room for the larger side, because every rank may be the root.
  std::byte* input(const Layout& layout) const {
    const size_t begin = options_.in_place ? layout.input_begin() : 0;
    return input_.data() + begin * element_bytes(dtype_);
  }
  std::byte* output(const Layout& layout) const {
    if (!options_.in_place) return output_.data();
    return input_.data() + layout.output_begin() * element_bytes(dtype_);
  }
  size_t input_bytes(const Layout& layout) const { return layout.input() * element_bytes(dtype_); }

  Scenario scenario(Pattern pattern, uint64_t seed) const {
    return {.dtype = dtype_,
            .op = op_,
            .pattern = pattern,
            .nranks = job_.nranks(),
            .nnodes = job_.nnodes(),
            .seed = seed,
            .wire = options_.wire};
  }

  void prepare(const Scenario& scenario, const Layout& layout) {
    std::memset(options_.in_place ? input_.data() : output_.data(), kPoison, bytes_);
    fill(scenario, job_.rank(), 0, layout.input(), input(layout));
  }

  void operate(const Layout& layout) {
    const auto shape = static_cast<int64_t>(layout.shape());
    const rueda_tensor tensor = {.name = name_.c_str(),
                                 .input = layout.input() > 0 ? input(layout) : nullptr,
                                 .output = layout.output() > 0 ? output(layout) : nullptr,
                                 .shape = &shape,
                                 .ndim = 1,
                                 .dtype = dtype_};
    switch (options_.work) {
      case Work::kBroadcast: return job_.broadcast(tensor, layout.root);
      case Work::kReduce: return job_.reduce(tensor, op_, layout.root);
      case Work::kAllgather: return job_.allgather(tensor);
      case Work::kReduceScatter: return job_.reduce_scatter(tensor, op_);
      case Work::kAlltoall: return job_.alltoall(tensor);
      case Work::kGather: return job_.gather(tensor, layout.root);
      case Work::kScatter: return job_.scatter(tensor, layout.root);
      default: return job_.allreduce(tensor, op_);
    }
  }

  void inspect(const Scenario& scenario, const Layout& layout) {
    const Verdict verdict = check_result(layout, scenario, output(layout));
    if (verdict.wrong > 0 && wrong_ == 0) {
      std::fprintf(stderr, "rank %d: %s with pattern %s: %llu of %llu elements are wrong; %s\n",
                   job_.rank(), name_.c_str(), to_string(scenario.pattern),
                   static_cast<unsigned long long>(verdict.wrong),
                   static_cast<unsigned long long>(layout.output()),
                   describe(scenario, verdict).c_str());
    }
    wrong_ += verdict.wrong;
    if (ends_alike(options_.work)) hash_ = mix64(hash_ ^ hash_bytes(output(layout), bytes_));
  }

  void checked_pass(Pattern pattern, int root) {
    // The name includes the root, because a tensor's descriptor may not change its root.
    const std::string name = name_;
    if (root != options_.root) name_ += "/root" + std::to_string(root);
    const Layout layout = layout_from(root);
    const Scenario pass = scenario(pattern, 3);
    prepare(pass, layout);
    const uint64_t input_hash = hash_bytes(input(layout), input_bytes(layout));
    operate(layout);
    inspect(pass, layout);
    if (!options_.in_place && hash_bytes(input(layout), input_bytes(layout)) != input_hash) {
      std::fprintf(stderr, "rank %d: %s changed its input\n", job_.rank(), name_.c_str());
      ++wrong_;
    }
    name_ = name;
  }

  Job& job_;
  const Options& options_;
  rueda_dtype dtype_;
  rueda_op op_;
  uint64_t bytes_;
  size_t count_;
  Buffer input_;
  Buffer output_;
  std::string name_;
  uint64_t wrong_ = 0;
  uint64_t hash_ = 0;
};

// Counts ranks that left a barrier too early. Barriers have no result to check. On one machine,
// whose clock all ranks share, nobody may leave before the last rank came.
uint64_t count_early_leavers(Job& job, const CpuMeter& meter) {
  constexpr int kRounds = 20;
  std::vector<int64_t> entered_and_left;
  for (int round = 0; round < kRounds; ++round) {
    if (round % job.nranks() == job.rank()) {
      // One rank, in turn, is late on purpose: otherwise an operation that does nothing could pass.
      const int64_t late = now_ns() + 1'000'000;
      while (now_ns() < late) {
      }
    }
    entered_and_left.push_back(now_ns());
    job.barrier();
    entered_and_left.push_back(now_ns());
  }
  const auto rows = job.gather(entered_and_left);
  uint64_t early = 0;
  for (size_t i = 0; i < entered_and_left.size(); i += 2) {
    int64_t last_entered = 0;
    int64_t first_left = INT64_MAX;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      if (!meter.with_rank0(static_cast<int>(rank))) continue;
      last_entered = std::max(last_entered, rows[rank][i]);
      first_left = std::min(first_left, rows[rank][i + 1]);
    }
    if (first_left < last_entered) ++early;
  }
  return job.rank() == 0 ? early : 0;
}

void add_summary(const Summary& summary, const CpuMeter& meter, Work work, Row* row) {
  row->time_us = summary.time_us;
  row->time_us_p99 = summary.time_us_p99;
  row->noise_cores = summary.noise_cores;
  row->cpu_includes_daemons = meter.includes_daemons();
  row->wrong = summary.wrong;
  if (summary.daemon_memory_bytes > 0) row->daemon_memory_bytes = summary.daemon_memory_bytes;
  row->algbw_GBps = algbw_GBps(row->bytes, row->time_us);
  row->busbw_GBps = busbw_GBps(work, row->algbw_GBps, row->nranks);
  if (row->bytes > 0) row->cpu_s_per_GB = summary.cpu_s / (static_cast<double>(row->bytes) / 1e9);
}

Row empty_row(const Job& job, const Options& options, uint64_t bytes) {
  Row row;
  row.collective = to_string(options.work);
  row.bytes = bytes;
  row.dtype = "none";
  row.op = "none";
  row.in_place = options.in_place;
  row.foreign = options.foreign;
  row.iters = options.iters > 0 ? options.iters : default_iterations(bytes);
  row.nranks = job.nranks();
  row.nnodes = job.nnodes();
  return row;
}

// Measures one row. The call is collective, and the row is the same on all ranks.
Row run_case(Job& job, const CpuMeter& meter, const Options& options, rueda_dtype dtype,
             rueda_op op, uint64_t bytes) {
  Row row = empty_row(job, options, bytes);
  row.dtype = to_string(dtype);
  if (reduces(options.work)) row.op = to_string(op);
  row.wire = to_string(options.wire);
  row.count = bytes / element_bytes(dtype);
  Case one(job, options, dtype, op, bytes);
  const NoiseWindow window(meter);
  one.check_patterns();
  const LoopTimes times = one.measure(meter, row.iters);
  add_summary(summarize(job, meter, window, times, one.wrong(), one.hash()), meter, options.work,
              &row);
  return row;
}

Row run_barrier(Job& job, const CpuMeter& meter, const Options& options) {
  Row row = empty_row(job, options, 0);
  const NoiseWindow window(meter);
  const uint64_t wrong = count_early_leavers(job, meter);
  const LoopTimes times =
      run_loop(job, meter, options.warmup, row.iters, {.iterate = [&job] { job.barrier(); }});
  add_summary(summarize(job, meter, window, times, wrong, 0), meter, options.work, &row);
  return row;
}

}  // namespace

uint64_t run_collectives(Job& job, const CpuMeter& meter, const Options& options, JsonLines* json) {
  uint64_t wrong = 0;
  const auto report = [&](const Row& row) {
    wrong += row.wrong;
    if (job.rank() != 0) return;
    std::fputs(table_line(row).c_str(), stdout);
    std::fflush(stdout);
    json->write(to_json(row));
  };

  if (job.rank() == 0) std::fputs(table_header().c_str(), stdout);
  if (options.work == Work::kBarrier) {
    report(run_barrier(job, meter, options));
    return wrong;
  }
  const int parts = has_parts(options.work) ? job.nranks() : 1;
  const std::vector<rueda_op> no_op = {RUEDA_SUM};
  const auto& ops = reduces(options.work) ? options.ops : no_op;
  for (rueda_dtype dtype : options.dtypes) {
    for (rueda_op op : ops) {
      if (!can_check(dtype, op)) continue;
      for (uint64_t bytes : options.sizes(dtype, parts)) {
        report(run_case(job, meter, options, dtype, op, bytes));
      }
    }
  }
  return wrong;
}

}  // namespace rueda::bench
