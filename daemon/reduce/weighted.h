// Computes sums in which each source has a weight of its own, and the dot products that weights
// come from. The functions are stateless and thread-safe, and take floating-point types only.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "daemon/base/dtype.h"

namespace rueda::reduce {

// The arguments of add_weighted(), which computes dst[i] = partial[i] + weights[0] * sources[0][i]
// + weights[1] * sources[1][i] and so on. float64 accumulates in its own type, all others in
// float32, and what is stored is rounded once. Without sources and a partial, zeros are stored.
struct WeightedArgs {
  DType dtype = DType::kFloat32;
  // The type of partial, dst and copies, float16 or bfloat16, if the sources are float32; if there
  // is none, it is dtype.
  std::optional<DType> sum_dtype;
  void* dst = nullptr;  // It may equal partial exactly, or a source of its own type.
  // These get the same values, and otherwise obey the rules for dst.
  std::span<void* const> copies;
  const void* partial = nullptr;  // It may be null.
  std::span<const void* const> sources;
  std::span<const double> weights;  // The index is the source.
  size_t count = 0;                 // In elements; the pointers may have any alignment.
};
void add_weighted(const WeightedArgs& args);

// Returns the places of the pairs i <= j of a symmetric matrix, column by column, so that the place
// of a pair does not depend on how many vectors there are.
constexpr size_t pairs_of(size_t vectors) { return vectors * (vectors + 1) / 2; }
constexpr size_t pair_place(size_t i, size_t j) {
  return i <= j ? pairs_of(j) + i : pairs_of(i) + j;
}

// Adds the dot products of all pairs of the vectors to `products`, which must have pairs_of()
// places. They are computed in float64, and every instruction set gives the same bits.
void add_dot_products(DType dtype, std::span<const void* const> vectors, size_t count,
                      std::span<double> products);
double dot_product(DType dtype, const void* a, const void* b, size_t count);

}  // namespace rueda::reduce
