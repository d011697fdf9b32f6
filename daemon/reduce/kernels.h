// Reduces several sources element by element, in one pass. The functions are stateless and
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/base/dtype.h"

namespace rueda::reduce {

// One pass: dst[i] = finish(partial[i] (op) prescale * sources[0][i] (op) prescale * sources[1][i]
// and so on), in this order.
//
// - float16 and bfloat16 accumulate in float32 and are rounded once (to nearest even) on the way
//   out; float32 and float64 accumulate in their own type.
// - kAverage adds; what makes it an average is `divisor`.
// - finish(x) = x * postscale / divisor, in the accumulation type. Integers are scaled in double,
//   truncated and saturated (NaN gives 0); their division is exact and truncates towards zero.
//   Integer sums and products wrap, before anything is divided.
// - bool has neither scales nor averages: kSum and kMax are or, kMin and kProduct are and.
// - complex64 and complex128 have neither kMin nor kMax. Their scales are real numbers, and a
//   product is (ac - bd) + (ad + bc)i, with each of these operations rounded.
// - A scale of exactly 1.0 and a divisor of 1 cost nothing and change no bits.
// - kMin and kMax: NaN in any input gives NaN; of 0 and -0 the first stays.
// - With a sum_dtype, partial and dst are of that type, and the rest is as for `dtype`: partial is
//   widened, and what goes to dst is rounded once, to nearest even; what is too large for float16
//   becomes infinite.
// - Every instruction set gives the same bits, whatever the place of an element and the length,
//   but for the sign and payload of a NaN.
struct ReduceArgs {
  DType dtype = DType::kFloat32;
  // It is float16 or bfloat16, and only for float32 sources; none: it is dtype.
  std::optional<DType> sum_dtype;
  ReduceOp op = ReduceOp::kSum;
  // It may equal partial exactly, or a source of its own type; it may not overlap them otherwise.
  void* dst = nullptr;
  // These get the same values, and otherwise obey the rules for dst. There must be none with a
  // sum_dtype.
  std::span<void* const> copies;
  const void* partial = nullptr;         // It was received, and is not scaled again; may be null.
  std::span<const void* const> sources;  // With a null partial there must be at least one.
  size_t count = 0;  // In elements; 0 does nothing. The pointers may have any alignment.
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;  // It is greater than 0.
  // Results are written past the caches, where the addresses allow it and there is no sum_dtype.
  // That is faster for what is larger than the caches and has not just been read, and slower for
  // anything else.
  bool streams = false;
};

void reduce(const ReduceArgs& args);

// Copies `bytes` from src to every destination; a destination equal to src is skipped. `streams`
// has the meaning that it has in ReduceArgs.
void scatter(std::span<void* const> destinations, const void* src, size_t bytes,
             bool streams = false);

// Widens `count` elements of float16 or bfloat16 to float32, to every destination; all of them lie
// apart from src.
void widen(std::span<void* const> destinations, const void* src, DType dtype, size_t count);

// Returns the place of the first NaN or infinity among `count` elements of a floating or complex
// dtype, or `count` if there is none. Any alignment will do.
size_t find_nonfinite(DType dtype, const void* values, size_t count);

// Returns the instruction set that run-time dispatch chose, for logs and rueda_build_info: "AVX3",
// "AVX2".
const char* simd_target();

}  // namespace rueda::reduce
