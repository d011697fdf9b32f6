#include "daemon/reduce/weighted.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/reduce/cpu/dot.h"
#include "daemon/reduce/kernels.h"

namespace rueda::reduce {
namespace {

// Passes over so many elements stay in the first-level cache, however many sources there are.
constexpr size_t kBlock = 1024;

using WideBlock = std::array<float, kBlock>;

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

const std::byte* at(const void* base, size_t element, DType dtype) {
  return static_cast<const std::byte*>(base) + element * element_bytes(dtype);
}
std::byte* at(void* base, size_t element, DType dtype) {
  return static_cast<std::byte*>(base) + element * element_bytes(dtype);
}

// Returns the elements as float32 in `wide` if they are float16 or bfloat16; others stay where they
// are.
const void* widened(DType dtype, const void* from, size_t count, WideBlock& wide) {
  if (!is_half(dtype)) return from;
  void* const to[] = {wide.data()};
  widen(to, from, dtype, count);
  return wide.data();
}

double dot_of_block(DType dtype, const void* a, const void* b, size_t count) {
  return dtype == DType::kFloat64 ? dot_float64(a, b, count) : dot_float32(a, b, count);
}

}  // namespace

void add_weighted(const WeightedArgs& args) {
  RUEDA_CHECK(is_floating(args.dtype) && args.sources.size() == args.weights.size());
  const DType wide = args.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const DType stored = args.sum_dtype.value_or(args.dtype);
  std::array<double, kBlock> sum;  // Its elements are of type `wide`.
  WideBlock widened_source;
  for (size_t begin = 0; begin < args.count; begin += kBlock) {
    const size_t count = std::min(kBlock, args.count - begin);
    if (args.sources.empty()) std::memset(sum.data(), 0, count * element_bytes(wide));
    for (size_t i = 0; i < args.sources.size(); ++i) {
      const void* source[] = {
          widened(args.dtype, at(args.sources[i], begin, args.dtype), count, widened_source)};
      reduce({.dtype = wide,
              .dst = sum.data(),
              .partial = i == 0 ? nullptr : sum.data(),
              .sources = source,
              .count = count,
              .prescale = args.weights[i]});
    }
    const void* source[] = {sum.data()};
    void* const dst = at(args.dst, begin, stored);
    reduce({.dtype = wide,
            .sum_dtype = stored,
            .dst = dst,
            .partial = args.partial ? at(args.partial, begin, stored) : nullptr,
            .sources = source,
            .count = count});
    for (void* copy : args.copies) {
      std::memcpy(at(copy, begin, stored), dst, count * element_bytes(stored));
    }
  }
}

void add_dot_products(DType dtype, std::span<const void* const> vectors, size_t count,
                      std::span<double> products) {
  RUEDA_CHECK(is_floating(dtype) && products.size() == pairs_of(vectors.size()));
  std::vector<WideBlock> wide(is_half(dtype) ? vectors.size() : 0);
  std::vector<const void*> blocks(vectors.size());
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t block = std::min(kBlock, count - begin);
    for (size_t i = 0; i < vectors.size(); ++i) {
      blocks[i] = at(vectors[i], begin, dtype);
      if (is_half(dtype)) blocks[i] = widened(dtype, blocks[i], block, wide[i]);
    }
    for (size_t j = 0; j < vectors.size(); ++j) {
      for (size_t i = 0; i <= j; ++i) {
        products[pair_place(i, j)] += dot_of_block(dtype, blocks[i], blocks[j], block);
      }
    }
  }
}

double dot_product(DType dtype, const void* a, const void* b, size_t count) {
  RUEDA_CHECK(is_floating(dtype));
  WideBlock wide_a;
  WideBlock wide_b;
  double sum = 0;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t block = std::min(kBlock, count - begin);
    sum += dot_of_block(dtype, widened(dtype, at(a, begin, dtype), block, wide_a),
                        widened(dtype, at(b, begin, dtype), block, wide_b), block);
  }
  return sum;
}

}  // namespace rueda::reduce
