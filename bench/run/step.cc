#include "bench/run/step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <thread>

#include "bench/base/models.h"
#include "bench/base/stats.h"
#include "bench/run/scrape.h"
#include "bench/values/check.h"

namespace rueda::bench {
namespace {

constexpr size_t kTensorAlignment = 64;

struct Gradient {
  std::string parameter;
  std::string name;
  std::vector<int64_t> shape;
  size_t offset = 0;         // position in the buffer, in bytes
  uint64_t first_index = 0;  // index of its first element in the set, so that all values differ
  size_t count = 0;
  size_t bytes = 0;
  double ready_share = 0;  // when it is ready, as a share of a step
};

// Returns the gradients in the order of the backward pass: the last layer's gradient is ready
// first.
std::vector<Gradient> backward_order(const ParameterList& parameters, const std::string& prefix,
                                     size_t element) {
  std::vector<Gradient> gradients;
  const std::vector<double> ready = ready_shares(parameters);
  size_t offset = 0;
  uint64_t index = 0;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const auto count = static_cast<size_t>(parameter->elements());
    gradients.push_back(
        {.parameter = parameter->name,
         .name = prefix + parameter->name,
         .shape = parameter->shape,
         .offset = offset,
         .first_index = index,
         .count = count,
         .bytes = count * element,
         .ready_share =
             ready[static_cast<size_t>(std::distance(parameter, parameters.rend()) - 1)]});
    offset += (count * element + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    index += count;
  }
  return gradients;
}

// Holds one gradient set on this rank. Gradients are reduced in place, as training does.
class Step {
 public:
  Step(Job& job, const Options& options, rueda_dtype dtype, rueda_op op,
       const ParameterList& parameters)
      : job_(job),
        options_(options),
        dtype_(dtype),
        op_(op),
        prefix_(std::string("step/") + options.model + "/" + to_string(dtype) + "/" +
                to_string(op) + "/"),
        gradients_(backward_order(parameters, prefix_, element_bytes(dtype))),
        buffer_(gradients_.back().offset + gradients_.back().bytes, options.foreign),
        handles_(gradients_.size()) {
    for (const Gradient& gradient : gradients_) tensors_.push_back(tensor_of(gradient));
  }

  void run() {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      handles_[i] = job_.allreduce_async(tensors_[i], op_);
    }
    for (size_t i = 0; i < gradients_.size(); ++i) job_.wait(handles_[i], tensors_[i].name);
  }

  // Runs a step in which the gradients become ready one after the other, as if a GPU computed them
  // for options.compute_ms. This rank's CPU is idle meanwhile.
  void train() {
    const auto begin = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> step(options_.compute_ms);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                step * gradients_[i].ready_share));
      handles_[i] = job_.allreduce_async(tensors_[i], op_);
    }
    for (size_t i = 0; i < gradients_.size(); ++i) job_.wait(handles_[i], tensors_[i].name);
  }

  // Gives the tensors other names, so that the next step is the first step of a new schedule.
  void rename(const std::string& tag) {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i].name = prefix_ + tag + gradients_[i].parameter;
      tensors_[i] = tensor_of(gradients_[i]);
    }
  }

  void declare() { job_.declare(tensors_, op_); }

  void prepare(Pattern pattern, uint64_t seed) {
    const Scenario set = scenario(pattern, seed);
    for (const Gradient& gradient : gradients_) {
      fill(set, job_.rank(), gradient.first_index, gradient.count,
           buffer_.data() + gradient.offset);
    }
  }

  void inspect(Pattern pattern, uint64_t seed) {
    const Scenario set = scenario(pattern, seed);
    for (const Gradient& gradient : gradients_) {
      const std::byte* data = buffer_.data() + gradient.offset;
      const Verdict verdict = check_reduction(set, gradient.first_index, gradient.count, data);
      if (verdict.wrong > 0 && wrong_ == 0) {
        std::fprintf(stderr, "rank %d: %s with pattern %s: %llu of %zu elements are wrong; %s\n",
                     job_.rank(), gradient.name.c_str(), to_string(pattern),
                     static_cast<unsigned long long>(verdict.wrong), gradient.count,
                     describe(set, verdict).c_str());
      }
      wrong_ += verdict.wrong;
      hash_ = mix64(hash_ ^ hash_bytes(data, gradient.bytes));
    }
  }

  // Checks every pattern before the clock starts, and the first and the last step of the loop.
  // Where steps sleep, the point is not the sums, and those two are enough.
  LoopTimes measure(const CpuMeter& meter, int iters) {
    for (Pattern pattern : kAllPatterns) {
      if (options_.compute_ms > 0) break;
      prepare(pattern, 3);
      run();
      inspect(pattern, 3);
    }
    const LoopBody body = {
        .iterate = [this] { options_.compute_ms > 0 ? train() : run(); },
        .prepare = [this](uint64_t seed) { prepare(Pattern::kIntegers, seed); },
        .inspect = [this](uint64_t seed) { inspect(Pattern::kIntegers, seed); },
    };
    // The loop reduces its own results, so it takes integers: products of random factors would soon
    // be subnormal, and slow.
    prepare(Pattern::kIntegers, 0);
    return run_loop(job_, meter, options_.warmup, iters, body);
  }

  uint64_t wrong() const { return wrong_; }
  uint64_t hash() const { return hash_; }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Gradient& gradient : gradients_) sum += gradient.bytes;
    return sum;
  }

 private:
  Scenario scenario(Pattern pattern, uint64_t seed) const {
    return {.dtype = dtype_,
            .op = op_,
            .pattern = pattern,
            .nranks = job_.nranks(),
            .nnodes = job_.nnodes(),
            .seed = seed,
            .wire = options_.wire};
  }

  rueda_tensor tensor_of(const Gradient& gradient) const {
    std::byte* data = buffer_.data() + gradient.offset;
    return {.name = gradient.name.c_str(),
            .input = data,
            .output = data,
            .shape = gradient.shape.data(),
            .ndim = static_cast<int32_t>(gradient.shape.size()),
            .dtype = dtype_};
  }

  Job& job_;
  const Options& options_;
  rueda_dtype dtype_;
  rueda_op op_;
  std::string prefix_;
  std::vector<Gradient> gradients_;
  Buffer buffer_;
  std::vector<rueda_tensor> tensors_;  // the descriptions that the library gets
  std::vector<rueda_handle> handles_;
  uint64_t wrong_ = 0;
  uint64_t hash_ = 0;
};

// Returns the messages a step, counted over a few steps outside of the clock, because scraping
// costs the daemons time. Rank 0 asks the daemons; the other ranks return nullopt. The call is
// collective.
//
// Nothing but steps may come between the two counts, nor shortly before, because anything else is
// not part of a schedule that repeats. So while rank 0 asks, the others may have begun the next
// step, both times alike.
std::optional<double> count_order_messages(Job& job, Step& step) {
  constexpr int kSettlingSteps = 30;
  constexpr int kSteps = 10;
  const auto addresses = http_addresses();
  const auto messages = [&] {
    return job.rank() == 0 ? order_messages(addresses) : std::optional<double>();
  };
  for (int i = 0; i < kSettlingSteps; ++i) step.run();
  const std::optional<double> before = messages();
  for (int i = 0; i < kSteps; ++i) step.run();
  const std::optional<double> after = messages();
  step.run();
  if (!before || !after) return std::nullopt;
  return (*after - *before) / kSteps;
}

// Measures the first steps of new schedules, as the times of the slowest rank. All calls are
// collective.
class FirstSteps {
 public:
  FirstSteps(Job& job, Step& step) : job_(job), step_(step) {}

  // Runs schedules that nobody has seen before, alternately learned and declared ahead.
  void run(StepRow* row) {
    constexpr int kSchedules = 9;
    for (int i = 0; i < kSchedules; ++i) {
      run_schedule("learned" + std::to_string(i) + "/", false);
      run_schedule("declared" + std::to_string(i) + "/", true);
    }
    const auto rows = job_.gather(times_ns_);
    std::vector<std::vector<double>> times_us;
    for (const auto& of_rank : rows) {
      auto& microseconds = times_us.emplace_back();
      for (const int64_t ns : of_rank) microseconds.push_back(static_cast<double>(ns) / 1e3);
    }
    const std::vector<double> slowest = slowest_of_ranks(times_us);
    const auto median_of = [&](size_t place) {
      std::vector<double> found;
      for (size_t at = place; at < slowest.size(); at += 2 * kPlaces) found.push_back(slowest[at]);
      return median(std::move(found));
    };
    for (size_t i = 0; i < kSteps; ++i) {
      row->first_steps_us.push_back(median_of(1 + i));
      row->first_steps_declared_us.push_back(median_of(kPlaces + 1 + i));
    }
    row->declare_us = median_of(kPlaces);
  }

 private:
  static constexpr size_t kSteps = 4;
  static constexpr size_t kPlaces = 1 + kSteps;  // times of a schedule: declaring it, and its steps

  template <class Work>
  void time(Work work) {
    // gather() uses broadcasts, which leave the schedule's lock alone; any other operation would
    // undo it.
    job_.gather({&kNothing, 1});
    const int64_t start_ns = now_ns();
    work();
    times_ns_.push_back(now_ns() - start_ns);
  }

  void run_schedule(const std::string& tag, bool is_declared) {
    constexpr uint64_t kSeed = 4;
    job_.synchronize();  // undoes the lock of the schedule before
    step_.rename(tag);
    step_.prepare(Pattern::kIntegers, kSeed);
    time([&] {
      if (is_declared) step_.declare();
    });
    for (size_t i = 0; i < kSteps; ++i) {
      time([&] { step_.run(); });
      if (i == 0) step_.inspect(Pattern::kIntegers, kSeed);
    }
  }

  static constexpr int64_t kNothing = 0;
  Job& job_;
  Step& step_;
  std::vector<int64_t> times_ns_;
};

StepRow run_step(Job& job, const CpuMeter& meter, const Options& options, rueda_dtype dtype,
                 rueda_op op, const ParameterList& parameters) {
  StepRow row;
  row.set = options.model;
  row.tensors = parameters.size();
  row.dtype = to_string(dtype);
  row.op = to_string(op);
  row.wire = to_string(options.wire);
  row.memory = options.foreign ? "foreign" : "arena";
  row.nranks = job.nranks();
  row.nnodes = job.nnodes();

  Step step(job, options, dtype, op, parameters);
  row.bytes = step.bytes();
  row.compute_ms = options.compute_ms;
  row.cpu_includes_daemons = meter.includes_daemons();
  row.iters = options.iters > 0 ? options.iters : default_iterations(row.bytes);
  const NoiseWindow window(meter);
  const LoopTimes times = step.measure(meter, row.iters);
  // Steps that come without a pause would be another schedule than that of those with one.
  if (options.compute_ms == 0) row.order_messages_per_step = count_order_messages(job, step);
  if (options.plan) FirstSteps(job, step).run(&row);
  const Summary summary = summarize(job, meter, window, times, step.wrong(), step.hash());
  row.time_us = summary.time_us;
  row.time_us_p99 = summary.time_us_p99;
  row.pace_us = summary.pace_us;
  row.noise_cores = summary.noise_cores;
  row.wrong = summary.wrong;
  if (row.bytes > 0) row.cpu_s_per_GB = summary.cpu_s / (static_cast<double>(row.bytes) / 1e9);
  return row;
}

}  // namespace

uint64_t run_steps(Job& job, const CpuMeter& meter, const Options& options, JsonLines* json) {
  const ParameterList parameters = *model_by_name(options.model);
  uint64_t wrong = 0;
  for (rueda_dtype dtype : options.dtypes) {
    for (rueda_op op : options.ops) {
      if (!can_check(dtype, op)) continue;
      const StepRow row = run_step(job, meter, options, dtype, op, parameters);
      wrong += row.wrong;
      if (job.rank() != 0) continue;
      std::fputs(step_lines(row).c_str(), stdout);
      std::fflush(stdout);
      json->write(to_json(row));
    }
  }
  return wrong;
}

}  // namespace rueda::bench
