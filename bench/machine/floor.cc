#include "bench/machine/floor.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench/base/failure.h"
#include "bench/base/stats.h"
#include "bench/machine/cpu.h"
#include "daemon/reduce/kernels.h"

namespace rueda::bench {
namespace {

constexpr size_t kPassBytes = 64u << 10;    // of each rank's buffer, so that all stay in cache
constexpr size_t kBlockBytes = 256u << 10;  // of each stream

using Buffers = std::vector<std::vector<float>>;

// Writes the sum of elements [first, last) of all buffers to each of them.
void node_pass(Buffers& buffers, size_t first, size_t last) {
  constexpr size_t kChunk = kPassBytes / sizeof(float);
  for (size_t at = first; at < last; at += kChunk) {
    const size_t count = std::min(kChunk, last - at);
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (auto& buffer : buffers) {
      sources.push_back(buffer.data() + at);
      destinations.push_back(buffer.data() + at);
    }
    reduce::reduce({.dst = destinations[0], .sources = sources, .count = count});
    reduce::scatter(destinations, destinations[0], count * sizeof(float));
  }
}

// Runs the threads of all nodes. They pass gate_ twice an iteration, together with the thread that
// measures.
class Floor {
 public:
  explicit Floor(const FloorWork& work) : work_(work), pass_threads_(pass_threads(work.nnodes)) {
    const size_t count = work.bytes / sizeof(float);
    for (int ranks : ranks_by_node(work.nranks, work.nnodes)) {
      nodes_.emplace_back(static_cast<size_t>(ranks), std::vector<float>(count));
    }
    if (work.nnodes < 2) return;
    const auto place = [&](int node) {
      return work.places.empty() ? Place{} : work.places[static_cast<size_t>(node % work.nnodes)];
    };
    for (int node = 0; node < work.nnodes; ++node) {
      links_.emplace_back(place(node), place(node + 1), work.congestion);
    }
  }

  FloorTime measure() {
    constexpr int kWarmup = 2;
    const int iterations = kWarmup + work_.iters;
    std::barrier gate(static_cast<std::ptrdiff_t>(nodes_.size()) * pass_threads_ +
                      2 * static_cast<std::ptrdiff_t>(links_.size()) + 1);
    std::vector<std::thread> threads;
    const auto start_thread = [&](auto body) {
      threads.emplace_back([&gate, iterations, body]() mutable {
        for (int i = 0; i < iterations; ++i) {
          gate.arrive_and_wait();
          body();
          gate.arrive_and_wait();
        }
      });
    };
    for (Buffers& buffers : nodes_) start_passes(buffers, start_thread);
    for (Link& link : links_) start_traffic(link, start_thread);

    std::vector<double> times_us;
    double cpu_s = 0;
    for (int i = 0; i < iterations; ++i) {
      const double cpu_before = process_cpu_s();
      const auto start = std::chrono::steady_clock::now();
      gate.arrive_and_wait();
      gate.arrive_and_wait();
      const auto elapsed = std::chrono::steady_clock::now() - start;
      if (i < kWarmup) continue;
      times_us.push_back(std::chrono::duration<double, std::micro>(elapsed).count());
      cpu_s += process_cpu_s() - cpu_before;
    }
    for (std::thread& thread : threads) thread.join();
    FloorTime time{.time_us = median(times_us), .cpu_s_per_GB = {}};
    if (work_.bytes > 0) {
      time.cpu_s_per_GB = cpu_s / work_.iters / (static_cast<double>(work_.bytes) / 1e9);
    }
    return time;
  }

 private:
  // Returns the number of a node's threads that pass over memory. One node alone, which has no
  // network to feed, uses all CPUs.
  static int pass_threads(int nnodes) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / nnodes);
  }

  template <class StartThread>
  void start_passes(Buffers& buffers, const StartThread& start_thread) {
    const size_t count = work_.bytes / sizeof(float);
    const auto threads = static_cast<size_t>(pass_threads_);
    for (size_t i = 0; i < threads; ++i) {
      start_thread([&buffers, first = count * i / threads, last = count * (i + 1) / threads] {
        node_pass(buffers, first, last);
      });
    }
  }

  template <class StartThread>
  void start_traffic(Link& link, const StartThread& start_thread) {
    const auto nodes = static_cast<uint64_t>(work_.nnodes);
    const size_t bytes = work_.bytes * 2 * (nodes - 1) / nodes;
    start_thread([&link, bytes, block = std::vector<char>(kBlockBytes, 1)] {
      for (size_t sent = 0; sent < bytes; sent += block.size()) {
        if (!send_all(link.near(), block.data(), std::min(block.size(), bytes - sent))) return;
      }
    });
    start_thread([&link, bytes, block = std::vector<char>(kBlockBytes)]() mutable {
      receive_all(link.far(), block, bytes);
    });
  }

  const FloorWork& work_;
  const int pass_threads_;
  std::vector<Buffers> nodes_;
  std::vector<Link> links_;
};

}  // namespace

std::vector<int> ranks_by_node(int nranks, int nnodes) {
  std::vector<int> counts(static_cast<size_t>(nnodes), nranks / nnodes);
  for (int node = 0; node < nranks % nnodes; ++node) ++counts[static_cast<size_t>(node)];
  return counts;
}

FloorTime measure_floor(const FloorWork& work) {
  if (work.nnodes > work.nranks) {
    throw Failure(std::to_string(work.nranks) + " ranks cannot fill " +
                  std::to_string(work.nnodes) + " nodes: raise --np or lower --nodes");
  }
  if (!work.places.empty() && static_cast<int>(work.places.size()) != work.nnodes) {
    throw Failure("--places names " + std::to_string(work.places.size()) + " places for " +
                  std::to_string(work.nnodes) + " nodes");
  }
  return Floor(work).measure();
}

}  // namespace rueda::bench
