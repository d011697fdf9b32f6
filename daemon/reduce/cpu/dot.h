// Dot products of blocks, as the kernels give them.
#pragma once

#include <cstddef>

namespace rueda::reduce {

// Products and sums are float64. The same bits on every instruction set: sixteen sums, each of
// every sixteenth product, and then theirs.
double dot_float32(const void* a, const void* b, size_t count);
double dot_float64(const void* a, const void* b, size_t count);

}  // namespace rueda::reduce
