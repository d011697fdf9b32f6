#include "bench/gpu_jobs/measure.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <unistd.h>

#include "bench/base/stats.h"
#include "bench/machine/limits.h"

namespace rueda::gpu::bench {

using rueda::bench::Failure;
using rueda::bench::Job;
using rueda::bench::median;

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kRound_s = 0.1;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Makes an all-reduce in place, under a name that is used again and again.
class Reduction {
 public:
  Reduction(Driver& driver, std::string name, uint64_t bytes)
      : name_(std::move(name)),
        count_(static_cast<int64_t>(bytes / sizeof(float))),
        buffer_(driver, std::max<uint64_t>(bytes, 1)) {}
  // The daemon lets go of the memory before it is freed.
  ~Reduction() { forget(); }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  void fill(Driver& driver, float value, void* stream) {
    const std::vector<float> host(static_cast<size_t>(count_), value);
    std::byte* const pinned = driver.allocate_host(bytes());
    std::copy_n(reinterpret_cast<const std::byte*>(host.data()), bytes(), pinned);
    driver.copy_to_device(buffer_.address(), pinned, bytes(), stream);
    driver.synchronize(stream);
    driver.free_host(pinned);
  }
  bool has(Driver& driver, float value, void* stream) {
    std::byte* const pinned = driver.allocate_host(bytes());
    driver.copy_to_host(pinned, buffer_.address(), bytes(), stream);
    driver.synchronize(stream);
    const auto* const values = reinterpret_cast<const float*>(pinned);
    const bool is_right = std::all_of(values, values + count_, [&](float v) { return v == value; });
    driver.free_host(pinned);
    return is_right;
  }
  // The operator is the maximum, so that any number of operations gives the same result as one.
  void submit(void* stream) {
    rueda_tensor tensor{};
    tensor.name = name_.c_str();
    tensor.input = reinterpret_cast<const void*>(buffer_.address());  // NOLINT: of the GPU's
    tensor.output = reinterpret_cast<void*>(buffer_.address());       // NOLINT
    tensor.shape = &count_;
    tensor.ndim = 1;
    tensor.dtype = RUEDA_FLOAT32;
    rueda_reduce_options options{};
    options.struct_bytes = sizeof(options);
    options.op = RUEDA_MAX;
    options.prescale = options.postscale = 1.0;
    require(rueda_device_allreduce_async(&tensor, &options, stream, &handle_));
  }
  void forget() {
    rueda_device_forget(reinterpret_cast<const void*>(buffer_.address()));
  }  // NOLINT
  void leave_to(void* stream) { require(rueda_device_wait(handle_, stream)); }
  void wait() { require(rueda_wait(handle_, -1, nullptr)); }

  uint64_t bytes() const { return static_cast<uint64_t>(count_) * sizeof(float); }
  uint64_t address() const { return buffer_.address(); }

 private:
  static void require(int code) {
    if (code < 0) throw Failure(rueda_last_error());
  }

  std::string name_;
  int64_t count_;
  DeviceBuffer buffer_;
  rueda_handle handle_ = 0;
};

// Returns the largest of the ranks' values, place by place, on all ranks.
std::vector<double> slowest(Job& job, const std::vector<double>& own_s) {
  std::vector<int64_t> row;
  for (const double value : own_s) row.push_back(std::llround(value * 1e9));
  std::vector<double> found(own_s.size(), 0.0);
  for (const std::vector<int64_t>& other : job.gather(row)) {
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = std::max(found[i], static_cast<double>(other[i]) * 1e-9);
    }
  }
  return found;
}

// Returns how often something that takes `seconds` fits into a round; the number is the same on all
// ranks.
int repeats_for(Job& job, double seconds) {
  return std::clamp(static_cast<int>(kRound_s / std::max(slowest(job, {seconds})[0], 1e-6)), 3,
                    2000);
}

double time_copies(Driver& driver, uint64_t from, uint64_t to, uint64_t bytes, void* stream,
                   int repeats) {
  constexpr int kQueued = 64;  // a stream takes no more than this
  const auto start = SteadyClock::now();
  for (int i = 0; i < repeats; ++i) {
    driver.copy_on_device(to, from, bytes, stream);
    if (i % kQueued == kQueued - 1) driver.synchronize(stream);
  }
  driver.synchronize(stream);
  return seconds_since(start) / repeats;
}

using Reductions = std::vector<std::unique_ptr<Reduction>>;

double time_reductions(Reductions& reductions, int repeats) {
  const auto start = SteadyClock::now();
  const size_t count = reductions.size();
  for (size_t i = 0; i < static_cast<size_t>(repeats) + count; ++i) {
    Reduction& next = *reductions[i % count];
    if (i >= count) next.wait();
    if (i < static_cast<size_t>(repeats)) next.submit(RUEDA_NO_STREAM);
  }
  return seconds_since(start) / repeats;
}

// Keeps the GPU busy from a thread and stream of its own, in turn with kernels that compute and
// copies that move memory, as a backward pass does.
class Load {
 public:
  explicit Load(Driver& driver) : driver_(driver), thread_([this] { run(); }) {}
  ~Load() {
    stops_ = true;
    thread_.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Returns how many of these were done a second since the last call.
  double rate() {
    const uint64_t done = done_;
    const double rate = static_cast<double>(done - seen_) / seconds_since(since_);
    seen_ = done;
    since_ = SteadyClock::now();
    return rate;
  }

 private:
  void run() {
    constexpr int kAtATime = 4;
    constexpr uint64_t kCopied = uint64_t{64} << 20;
    driver_.enter();
    void* const stream = driver_.make_stream();
    DeviceBuffer memory(driver_, 2 * kCopied);
    while (!stops_) {
      // A fake driver has no kernels.
      for (int i = 0; i < kAtATime; ++i) {
        driver_.compute(stream);
        driver_.copy_on_device(memory.address() + kCopied, memory.address(), kCopied, stream);
      }
      driver_.synchronize(stream);
      done_ += kAtATime;
    }
  }

  Driver& driver_;
  std::atomic<bool> stops_{false};
  std::atomic<uint64_t> done_{0};
  uint64_t seen_ = 0;
  SteadyClock::time_point since_ = SteadyClock::now();
  std::thread thread_;  // stands last because it uses the other members
};

// Returns the anonymous resident memory of a process, or 0 if it is gone. Rings, which the process
// shares, are left out: they have their size from the beginning, and are touched little by little.
int64_t resident_bytes(const std::string& process) {
  const std::string wanted = "RssAnon:";
  std::ifstream file("/proc/" + process + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(wanted)) return std::atoll(line.c_str() + wanted.size()) * 1024;
  }
  return 0;
}

struct Process {
  std::string name;
  int parent = 0;
};

// Returns all processes that can be seen, by pid.
std::map<int, Process> processes() {
  std::map<int, Process> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (pid <= 0 || !std::getline(file, line)) continue;
    // The line is "PID (NAME) STATE PARENT ...", and a name may have anything in it.
    const size_t first = line.find('(') + 1;
    const size_t last = line.rfind(')');
    found[pid] = {line.substr(first, last - first), std::atoi(line.c_str() + last + 4)};
  }
  return found;
}

// Adds up the memory of the daemons that this process's parent has started, and of their workers.
void add_daemons(Growth& sum) {
  const std::map<int, Process> all = processes();
  const auto is_launched = [&](int pid) {
    for (auto at = all.find(pid); at != all.end(); at = all.find(at->second.parent)) {
      if (at->second.parent == ::getppid()) return true;
    }
    return false;
  };
  for (const auto& [pid, process] : all) {
    if (!process.name.starts_with("ruedad") || !is_launched(pid)) continue;
    ++sum.daemons;
    sum.daemon_bytes += resident_bytes(std::to_string(pid));
  }
}

Growth memory_now(Driver& driver) {
  Growth now{.rank_bytes = resident_bytes("self")};
  add_daemons(now);
  now.device_bytes = -static_cast<int64_t>(driver.free_bytes());
  return now;
}

// Measures the limit. Only rank 0 calls this.
Limit measure_limit(Driver& driver) {
  constexpr uint64_t kBytes = uint64_t{16} << 20;
  const std::array<void*, 2> streams{driver.make_stream(), driver.make_stream()};
  DeviceBuffer memory(driver, 2 * kBytes);
  const std::array<std::byte*, 2> pinned{driver.allocate_host(kBytes),
                                         driver.allocate_host(kBytes)};
  Limit limit;
  std::atomic<bool> is_over{false};
  std::thread network([&] {
    limit.tcp_Bps = rueda::bench::tcp_two_way_GBps({}, {}, "") * 1e9;
    is_over = true;
  });
  const auto start = SteadyClock::now();
  double copied = 0;
  while (!is_over) {
    driver.copy_to_host(pinned[0], memory.address(), kBytes, streams[0]);
    driver.copy_to_device(memory.address() + kBytes, pinned[1], kBytes, streams[1]);
    for (void* const stream : streams) driver.synchronize(stream);
    copied += static_cast<double>(kBytes);
  }
  limit.copy_Bps = copied / seconds_since(start);
  network.join();
  for (std::byte* const one : pinned) driver.free_host(one);
  for (void* const stream : streams) driver.free_stream(stream);
  return limit;
}

}  // namespace

Rates measure_rates(Job& job, Driver& driver, uint64_t bytes, int rounds) {
  constexpr uint64_t kLarge = uint64_t{512} << 20;
  void* const stream = driver.make_stream();
  Reductions reductions;
  for (int i = 0; i < (bytes >= kLarge ? 2 : 4); ++i) {
    reductions.push_back(std::make_unique<Reduction>(
        driver, "rate." + std::to_string(i) + "." + std::to_string(bytes), bytes));
    reductions.back()->fill(driver, static_cast<float>(job.rank() + 1), stream);
  }
  const auto copy = [&](int repeats) {
    job.barrier();
    const double own = job.rank() != 0
                           ? 0.0
                           : time_copies(driver, reductions[0]->address(), reductions[1]->address(),
                                         bytes, stream, repeats);
    return slowest(job, {own})[0];
  };
  const auto reduce = [&](int repeats) {
    job.synchronize();
    return slowest(job, {time_reductions(reductions, repeats)})[0];
  };
  reduce(3);  // opens the memory, and gives all ranks the same values
  const int copies = job.nnodes() == 1 ? repeats_for(job, copy(3)) : 0;
  const int reduced = repeats_for(job, reduce(3));
  Rates rates;
  for (int round = 0; round < rounds; ++round) {
    if (job.nnodes() == 1) {
      // An all-reduce reads k ranks' bytes and writes as many; a copy does that with the bytes of
      // one rank.
      rates.limit_s.push_back(job.nranks() * copy(copies));
    } else {
      job.barrier();
      if (job.rank() == 0) rates.limits.push_back(measure_limit(driver));
      rates.limit_s.push_back(
          slowest(job, {job.rank() == 0 ? rates.limits.back().seconds_for(bytes) : 0})[0]);
    }
    rates.reduce_s.push_back(reduce(reduced));
  }
  const auto wanted = static_cast<float>(job.nranks());
  double wrong = 0;
  for (const auto& one : reductions) wrong += one->has(driver, wanted, stream) ? 0 : 1;
  rates.is_right = slowest(job, {wrong})[0] == 0;
  return rates;
}

Latencies measure_latencies(Job& job, Driver& driver, uint64_t bytes, int iterations, bool has_load,
                            Cache cache) {
  constexpr int kWarmup = 20;
  constexpr auto kAlone = std::chrono::milliseconds(300);
  rueda_device_announce_frees(cache == Cache::kAnnounced ? 1 : 0);
  void* const stream = driver.make_stream();
  const std::string size = std::to_string(bytes);
  Reduction streamed(driver, "streamed." + size, bytes);
  Reduction blocking(driver, "blocking." + size, bytes);
  const auto time = [&](auto once) {
    std::vector<double> seconds;
    job.synchronize();
    for (int i = 0; i < kWarmup + iterations; ++i) {
      const auto start = SteadyClock::now();
      once();
      if (i >= kWarmup) seconds.push_back(seconds_since(start));
    }
    return seconds;
  };
  std::unique_ptr<Load> load;
  Latencies found;
  if (has_load && job.rank() == job.nranks() - 1) {
    load = std::make_unique<Load>(driver);
    std::this_thread::sleep_for(kAlone);
    load->rate();
    std::this_thread::sleep_for(kAlone);
    found.load_alone_Hz = load->rate();
  }
  job.barrier();
  if (load) load->rate();
  const std::vector<double> streamed_s = time([&] {
    if (cache == Cache::kNone) streamed.forget();
    streamed.submit(stream);
    streamed.leave_to(stream);
    driver.synchronize(stream);
    streamed.wait();  // the operation has ended by now, or nearly
  });
  if (load) found.load_streamed_Hz = load->rate();
  const std::vector<double> blocking_s = time([&] {
    if (cache == Cache::kNone) blocking.forget();
    blocking.submit(RUEDA_NO_STREAM);
    blocking.wait();
  });
  if (load) found.load_blocking_Hz = load->rate();
  for (const double value : slowest(job, streamed_s)) found.streamed_us.push_back(value * 1e6);
  for (const double value : slowest(job, blocking_s)) found.blocking_us.push_back(value * 1e6);
  const std::vector<double> rates =
      slowest(job, {found.load_alone_Hz, found.load_streamed_Hz, found.load_blocking_Hz});
  found.load_alone_Hz = rates[0];
  found.load_streamed_Hz = rates[1];
  found.load_blocking_Hz = rates[2];
  return found;
}

Growth measure_growth(Job& job, Driver& driver, int steps) {
  constexpr uint64_t kBytes = 256 << 10;
  constexpr int kTensors = 8;
  void* const stream = driver.make_stream();
  Reductions reductions;
  for (int i = 0; i < kTensors; ++i) {
    reductions.push_back(std::make_unique<Reduction>(driver, "step." + std::to_string(i), kBytes));
  }
  Growth then;
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 10) {
      job.barrier();
      then = memory_now(driver);
      job.barrier();
    }
    for (const auto& one : reductions) one->submit(stream);
    for (const auto& one : reductions) one->leave_to(stream);
    driver.synchronize(stream);
    for (const auto& one : reductions) one->wait();
  }
  job.barrier();
  const Growth now = memory_now(driver);
  job.barrier();
  return {now.rank_bytes - then.rank_bytes, now.daemon_bytes - then.daemon_bytes, now.daemons,
          now.device_bytes - then.device_bytes};
}

double Limit::seconds_for(uint64_t bytes) const {
  const double both = 2.0 * static_cast<double>(bytes);
  return both / std::min(tcp_Bps, copy_Bps);
}

}  // namespace rueda::gpu::bench
