// Measures kernels against memcpy: bytes per second count what is read and what is written. The
// buffers together are larger than the caches, and each iteration takes the next chunk of them.
#include <cstdint>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "daemon/reduce/kernels.h"

namespace {

using rueda::DType;
using rueda::ReduceOp;

constexpr size_t kBufferBytes = size_t{64} << 20;

struct Buffers {
  std::vector<std::vector<uint8_t>> sources;
  std::vector<uint8_t> dst;

  // The buffers hold zeros: a sum of them has no denormals or NaN to slow it down in any dtype.
  explicit Buffers(size_t source_count)
      : sources(source_count, std::vector<uint8_t>(kBufferBytes)), dst(kBufferBytes) {}
};

void bench_reduce(benchmark::State& state, DType dtype, ReduceOp op, int64_t divisor) {
  const auto source_count = static_cast<size_t>(state.range(0));
  const auto chunk_bytes = static_cast<size_t>(state.range(1));
  Buffers buffers(source_count);
  std::vector<const void*> sources(source_count);
  size_t offset = 0;
  for (auto _ : state) {
    for (size_t k = 0; k < source_count; ++k) sources[k] = buffers.sources[k].data() + offset;
    rueda::reduce::reduce({.dtype = dtype,
                           .op = op,
                           .dst = buffers.dst.data() + offset,
                           .sources = sources,
                           .count = chunk_bytes / rueda::element_bytes(dtype),
                           .divisor = divisor});
    offset = (offset + chunk_bytes) % kBufferBytes;
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>((source_count + 1) * chunk_bytes));
  state.SetLabel(rueda::reduce::simd_target());
}

void bench_memcpy(benchmark::State& state) {
  const auto chunk_bytes = static_cast<size_t>(state.range(0));
  Buffers buffers(1);
  size_t offset = 0;
  for (auto _ : state) {
    std::memcpy(buffers.dst.data() + offset, buffers.sources[0].data() + offset, chunk_bytes);
    benchmark::ClobberMemory();
    offset = (offset + chunk_bytes) % kBufferBytes;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * chunk_bytes));
}

void bench_scatter(benchmark::State& state) {
  const auto copies = static_cast<size_t>(state.range(0));
  const auto chunk_bytes = static_cast<size_t>(state.range(1));
  Buffers buffers(copies);
  std::vector<void*> destinations(copies);
  size_t offset = 0;
  for (auto _ : state) {
    for (size_t k = 0; k < copies; ++k) destinations[k] = buffers.sources[k].data() + offset;
    rueda::reduce::scatter(destinations, buffers.dst.data() + offset, chunk_bytes);
    offset = (offset + chunk_bytes) % kBufferBytes;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>((copies + 1) * chunk_bytes));
}

// Does the pass of a job on one node: every rank's buffer is read, and the sum is written to each
// of them, or to as many others.
void bench_pass(benchmark::State& state, bool in_place, bool streams) {
  const auto ranks = static_cast<size_t>(state.range(0));
  const auto chunk_bytes = static_cast<size_t>(state.range(1));
  Buffers buffers(in_place ? ranks : 2 * ranks);
  std::vector<const void*> sources(ranks);
  std::vector<void*> destinations(ranks);
  size_t offset = 0;
  for (auto _ : state) {
    for (size_t k = 0; k < ranks; ++k) {
      sources[k] = buffers.sources[k].data() + offset;
      destinations[k] = buffers.sources[in_place ? k : ranks + k].data() + offset;
    }
    rueda::reduce::reduce({.dst = destinations[0],
                           .copies = std::span(destinations).subspan(1),
                           .sources = sources,
                           .count = chunk_bytes / sizeof(float),
                           .streams = streams});
    offset = (offset + chunk_bytes) % kBufferBytes;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * ranks * chunk_bytes));
}

constexpr int64_t kChunkBytes = 256 * 1024;

BENCHMARK(bench_memcpy)->Arg(kChunkBytes);
BENCHMARK_CAPTURE(bench_reduce, float32_sum, DType::kFloat32, ReduceOp::kSum, 1)
    ->ArgsProduct({{2, 3, 4, 5, 8}, {kChunkBytes}});
BENCHMARK_CAPTURE(bench_reduce, float32_average, DType::kFloat32, ReduceOp::kAverage, 3)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_reduce, float32_min, DType::kFloat32, ReduceOp::kMin, 1)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_reduce, float64_sum, DType::kFloat64, ReduceOp::kSum, 1)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_reduce, float16_sum, DType::kFloat16, ReduceOp::kSum, 1)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_reduce, bfloat16_sum, DType::kBFloat16, ReduceOp::kSum, 1)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_reduce, int64_average, DType::kInt64, ReduceOp::kAverage, 4)
    ->Args({4, kChunkBytes});
BENCHMARK_CAPTURE(bench_pass, in_place, true, false)->ArgsProduct({{2, 3, 4, 8}, {kChunkBytes}});
BENCHMARK_CAPTURE(bench_pass, out_of_place, false, false)->ArgsProduct({{2, 4}, {kChunkBytes}});
BENCHMARK_CAPTURE(bench_pass, streamed, false, true)->ArgsProduct({{2, 4}, {kChunkBytes}});
BENCHMARK(bench_scatter)->Args({1, kChunkBytes})->Args({4, kChunkBytes});

}  // namespace
