// Checks whether a result is what the ranks' contributions make it. The reference is recomputed
// here, from seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/values/patterns.h"

namespace rueda::bench {

struct Verdict {
  uint64_t wrong = 0;  // wrong elements, of complex numbers wrong components
  // These fields describe the first wrong element.
  uint64_t index = 0;
  double got = 0;
  double expected = 0;
  double bound = 0;  // the allowed absolute error; 0 if the value had to be exact

  void merge(const Verdict& other);
};

// Checks `result`, which a reduction gave for elements first_index, first_index + 1, ... of
// `scenario`.
Verdict check_reduction(const Scenario& scenario, uint64_t first_index, size_t count,
                        const void* result);

// Checks that `result` is what `rank` contributed to these elements, bit for bit.
Verdict check_copy(const Scenario& scenario, int rank, uint64_t first_index, size_t count,
                   const void* result);

// Returns the bound of the absolute error of a floating-point sum, average or product of the random
// pattern; it is 0 for minimum and maximum. `magnitude` is the sum of |x| (divided by n for an
// average), or |product|.
//
// Whatever the order, each contribution goes through at most n - 1 additions (or multiplications),
// and a partial result is rounded to the stored type at most once on each node it passes; an
// average is rounded once more by the division. Each rounding multiplies by (1 + d) with |d| <= u,
// the unit roundoff, so with k roundings in all
//  |result - exact| <= ((1 + u)^k - 1) * sum|x|        (Higham, Accuracy and Stability,
//  section 4.2)
// and underflow adds at most half the smallest subnormal a rounding. float16 and bfloat16 add in
// float32, whose roundings are counted as if they were the stored type's: the bound is then wide,
// never wrong. With a wire dtype the roundings between nodes are counted too, with the wire dtype's
// u (docs/decisions/0029-wire-compression.md).
long double error_bound(const Scenario& scenario, long double magnitude);

// Returns a text such as "element 7 is 11, not 15: rank 2 is missing", or "" when nothing is wrong.
std::string describe(const Scenario& scenario, const Verdict& verdict);

// Returns a hash: equal bytes have equal hashes, and a changed bit changes the hash (up to
// collisions of 64 bits).
uint64_t hash_bytes(const void* data, size_t bytes);

}  // namespace rueda::bench
