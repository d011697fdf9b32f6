// The kernels for dot products of blocks.
#pragma once

#include <cstddef>

namespace rueda::reduce {

// Return the dot product of `count` elements. Products and sums are float64. Every instruction set
// gives the same bits: there are sixteen sums, each of every sixteenth product, and then their sum.
double dot_float32(const void* a, const void* b, size_t count);
double dot_float64(const void* a, const void* b, size_t count);

}  // namespace rueda::reduce
