#include "bench/run/timing.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "bench/base/stats.h"
#include "bench/machine/cpu.h"

namespace rueda::bench {
namespace {

int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
double to_s(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

CpuMeter::CpuMeter(Job& job) {
  constexpr size_t kMaxDaemons = 64;
  const std::vector<pid_t> known = known_daemons();
  std::vector<int64_t> row(2 + kMaxDaemons, 0);
  row[0] = static_cast<int64_t>(host_id());
  row[1] = static_cast<int64_t>(std::min(known.size(), kMaxDaemons));
  std::copy_n(known.begin(), row[1], row.begin() + 2);

  std::set<std::pair<int64_t, int64_t>> taken;  // pairs of machine and process
  const auto rows = job.gather(row);
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const auto& theirs = rows[rank];
    with_rank0_.push_back(theirs[0] == rows[0][0]);
    if (theirs[1] == 0) includes_daemons_ = false;
    for (int64_t i = 0; i < theirs[1]; ++i) {
      const int64_t pid = theirs[static_cast<size_t>(2 + i)];
      const bool first = taken.emplace(theirs[0], pid).second;
      if (first && static_cast<int>(rank) == job.rank())
        daemons_.push_back(static_cast<pid_t>(pid));
    }
  }
}

double CpuMeter::cpu_s() const {
  double sum = process_cpu_s();
  for (pid_t daemon : daemons_) sum += process_cpu_s(daemon).value_or(0);
  return sum;
}

uint64_t CpuMeter::daemon_memory_bytes() const {
  uint64_t most = 0;
  for (pid_t daemon : daemons_) most = std::max(most, private_memory_bytes(daemon).value_or(0));
  return most;
}

LoopTimes run_loop(Job& job, const CpuMeter& meter, int warmup, int iters, const LoopBody& body) {
  LoopTimes result;
  result.times_ns.reserve(static_cast<size_t>(iters));
  const auto iterate = [&](int count) {
    for (int i = 0; i < count; ++i) body.iterate();
  };
  // The operation of synchronize() is not part of a schedule that repeats, so `unmeasured`
  // iterations let the schedule settle again.
  const auto measure = [&](int unmeasured, int count) {
    if (count <= 0) return;
    job.synchronize();
    iterate(unmeasured);
    const double cpu_before = meter.cpu_s();
    int64_t start = now_ns();
    for (int i = 0; i < count; ++i) {
      body.iterate();
      const int64_t end = now_ns();
      result.times_ns.push_back(end - start);
      start = end;
    }
    result.cpu_s += meter.cpu_s() - cpu_before;
  };
  const auto measure_inspected = [&](uint64_t seed) {
    if (body.prepare) body.prepare(seed);
    measure(0, 1);
    if (body.inspect) body.inspect(seed);
  };

  iterate(warmup);
  measure_inspected(1);
  measure(warmup, iters - 2);
  if (iters > 1) measure_inspected(2);
  return result;
}

NoiseWindow::NoiseWindow(const CpuMeter& meter)
    : meter_(meter),
      start_ns_(now_ns()),
      start_busy_s_(machine_busy_s()),
      start_own_s_(meter.cpu_s()) {}

double NoiseWindow::wall_s() const { return to_s(now_ns() - start_ns_); }
double NoiseWindow::busy_s() const { return machine_busy_s() - start_busy_s_; }
double NoiseWindow::own_s() const { return meter_.cpu_s() - start_own_s_; }

Summary summarize(Job& job, const CpuMeter& meter, const NoiseWindow& window,
                  const LoopTimes& times, uint64_t wrong, uint64_t hash) {
  enum Column : size_t {
    kWrong,
    kHash,
    kCpu,
    kWindowOwn,
    kWindowBusy,
    kWindowWall,
    kMemory,
    kTimes
  };
  std::vector<int64_t> row(kTimes);
  row[kWrong] = static_cast<int64_t>(wrong);
  row[kHash] = static_cast<int64_t>(hash);
  row[kCpu] = to_ns(times.cpu_s);
  row[kWindowOwn] = to_ns(window.own_s());
  row[kWindowBusy] = to_ns(window.busy_s());
  row[kWindowWall] = to_ns(window.wall_s());
  row[kMemory] = static_cast<int64_t>(meter.daemon_memory_bytes());
  row.insert(row.end(), times.times_ns.begin(), times.times_ns.end());

  Summary summary;
  const auto rows = job.gather(row);
  std::vector<std::vector<double>> times_us;
  double cpu_s = 0;
  double own_s = 0;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const auto& theirs = rows[rank];
    summary.wrong += static_cast<uint64_t>(theirs[kWrong]);
    summary.ranks_differ = summary.ranks_differ || theirs[kHash] != rows[0][kHash];
    cpu_s += to_s(theirs[kCpu]);
    summary.daemon_memory_bytes =
        std::max(summary.daemon_memory_bytes, static_cast<uint64_t>(theirs[kMemory]));
    if (meter.with_rank0(static_cast<int>(rank))) own_s += to_s(theirs[kWindowOwn]);
    auto& microseconds = times_us.emplace_back();
    for (size_t i = kTimes; i < theirs.size(); ++i) {
      microseconds.push_back(static_cast<double>(theirs[i]) / 1e3);
    }
  }
  // Even if the broadcasts are wrong, a rank does not forget what it saw itself.
  summary.wrong = std::max(summary.wrong, wrong);
  if (summary.ranks_differ) ++summary.wrong;
  const std::vector<double> slowest = slowest_of_ranks(times_us);
  summary.time_us = median(slowest);
  summary.time_us_p99 = percentile(slowest, 99);
  // The first iteration after synchronize() says nothing about the pace.
  for (auto& theirs : times_us) {
    if (theirs.size() > 2) theirs = {theirs.begin() + 1, theirs.end() - 1};
  }
  summary.pace_us = slowest_pace(times_us);
  summary.cpu_s = slowest.empty() ? 0 : cpu_s / static_cast<double>(slowest.size());
  // /proc/stat counts in ticks of 10 ms on each CPU, so shorter windows say nothing.
  constexpr double kShortestWindow_s = 0.5;
  const double wall_s = to_s(rows[0][kWindowWall]);
  if (wall_s >= kShortestWindow_s) {
    summary.noise_cores = std::max(0.0, (to_s(rows[0][kWindowBusy]) - own_s) / wall_s);
  }
  return summary;
}

}  // namespace rueda::bench
