#include "bench/machine/limits.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <sched.h>

#include "bench/base/stats.h"
#include "daemon/reduce/kernels.h"

namespace rueda::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Returns the seconds for one pass of all threads, as the median of several. `make_pass` makes a
// thread's work.
double seconds_of_pass(int threads, const std::function<std::function<void()>()>& make_pass) {
  constexpr int kPasses = 7;
  std::vector<double> seconds;
  std::barrier gate(threads);
  SteadyClock::time_point start;
  const auto work = [&](int thread) {
    const auto pass = make_pass();
    for (int i = 0; i < kPasses; ++i) {
      gate.arrive_and_wait();
      if (thread == 0) start = SteadyClock::now();
      pass();
      gate.arrive_and_wait();
      if (thread == 0) seconds.push_back(seconds_since(start));
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return median(seconds);
}

constexpr size_t kTcpBlockBytes = 256u << 10;  // stays in cache, as the chunks of a good ring do
constexpr double kTcpWarmup_s = 0.2;
constexpr double kTcpMeasured_s = 0.8;

// Returns the bytes a second over `link`, after a warm-up of the same connection.
double stream_rate(const Link& link) {
  std::thread sending([&link] {
    const std::vector<char> block(kTcpBlockBytes, 1);
    while (send_all(link.near(), block.data(), block.size())) {
    }
  });
  std::vector<char> block(kTcpBlockBytes);
  const auto receive_for = [&](double seconds) {
    const auto start = SteadyClock::now();
    double bytes = 0;
    while (seconds_since(start) < seconds && receive_all(link.far(), block, block.size())) {
      bytes += static_cast<double>(block.size());
    }
    return bytes / seconds_since(start);
  };
  receive_for(kTcpWarmup_s);
  const double rate = receive_for(kTcpMeasured_s);
  link.shut_down();
  sending.join();
  return rate;
}

void run_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof(one), &one);
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

double memcpy_GBps(int threads, size_t bytes) {
  const double seconds = seconds_of_pass(threads, [bytes]() -> std::function<void()> {
    // The memory is zeroed so that its pages exist.
    const std::shared_ptr<char[]> from = std::make_unique<char[]>(bytes);
    const std::shared_ptr<char[]> to = std::make_unique<char[]>(bytes);
    return [from, to, bytes] {
      std::memcpy(to.get(), from.get(), bytes);
      // The compiler might leave the copy out if nothing used it.
      asm volatile("" : : "r"(to.get()) : "memory");
    };
  });
  return static_cast<double>(bytes) * threads / seconds / 1e9;
}

double sum_GBps(int sources, int threads, size_t bytes) {
  const double seconds = seconds_of_pass(threads, [&]() -> std::function<void()> {
    const size_t count = bytes / sizeof(float);
    const auto buffers = std::make_shared<std::vector<std::vector<float>>>(
        static_cast<size_t>(sources) + 1, std::vector<float>(count));
    return [buffers, count] {
      std::vector<const void*> inputs;
      for (size_t i = 1; i < buffers->size(); ++i) inputs.push_back((*buffers)[i].data());
      reduce::reduce({.dst = buffers->front().data(), .sources = inputs, .count = count});
    };
  });
  return static_cast<double>(bytes) * threads * (sources + 1) / seconds / 1e9;
}

TcpLimit tcp_limit(const Place& from, const Place& to, const std::string& congestion) {
  TcpLimit limit;
  {
    const Link link(from, to, congestion);
    limit.congestion = link.congestion();
    limit.one_way_GBps = stream_rate(link) / 1e9;
  }
  limit.two_way_GBps = tcp_two_way_GBps(from, to, congestion);
  return limit;
}

double tcp_two_way_GBps(const Place& from, const Place& to, const std::string& congestion) {
  const Link there(from, to, congestion);
  const Link back(to, from, congestion);
  double rate_back = 0;
  std::thread other([&] { rate_back = stream_rate(back); });
  const double rate_there = stream_rate(there);
  other.join();
  return (rate_there + rate_back) / 1e9;
}

std::optional<double> cache_line_round_trip_ns() {
  constexpr int kBatches = 9;
  constexpr int kTrips = 10'000;
  constexpr int kAll = kBatches * kTrips;
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return std::nullopt;
  alignas(64) std::atomic<int> line = 0;  // odd: it is the other thread's turn
  std::vector<double> ns;
  // Both ends are threads of their own, so that this thread stays free to run anywhere.
  std::thread echo([&] {
    run_on(cpus[1]);
    for (int turn = 1; turn < 2 * kAll; turn += 2) {
      while (line.load(std::memory_order_acquire) != turn) {
      }
      line.store(turn + 1, std::memory_order_release);
    }
  });
  std::thread caller([&] {
    run_on(cpus[0]);
    int turn = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
      const auto start = SteadyClock::now();
      for (int trip = 0; trip < kTrips; ++trip) {
        line.store(turn + 1, std::memory_order_release);
        turn += 2;
        while (line.load(std::memory_order_acquire) != turn) {
        }
      }
      ns.push_back(seconds_since(start) * 1e9 / kTrips);
    }
  });
  caller.join();
  echo.join();
  return median(ns);
}

}  // namespace rueda::bench
