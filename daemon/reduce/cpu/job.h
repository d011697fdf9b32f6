// The arguments that reduce() hands to the kernels, checked and put in one form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/dtype.h"

namespace rueda::reduce {

inline constexpr size_t kLineBytes = 64;  // The bytes of a line of a cache; no vector is longer.

// The inputs are `first`, then rest[0], rest[1], ... rest[rest_count - 1]. All but a partial are
// sources, so `first` is scaled like the rest unless it is the partial.
struct Job {
  DType dtype = DType::kFloat32;  // The type of the sources.
  // With float32 sources these two may be float16 or bfloat16.
  DType first_dtype = DType::kFloat32;
  DType dst_dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint8_t* dst = nullptr;
  void* const* copies = nullptr;
  size_t copy_count = 0;
  bool streams = false;  // It requires that dst and copies lie alike to a cache line.
  const uint8_t* first = nullptr;
  bool is_first_partial = false;
  const void* const* rest = nullptr;
  size_t rest_count = 0;
  size_t count = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;

  bool is_scaled() const { return prescale != 1.0 || postscale != 1.0 || divisor != 1; }
};

// Reduces integers with a scale or a divisor, and any other integers. The function is scalar,
// because there is no vector division of int64 to use, nor a multiplication of bytes.
void reduce_integers_one_by_one(const Job& job);

// Multiplies complex numbers, with or without scales. Only job.dst is written.
void multiply_complex(const Job& job);

}  // namespace rueda::reduce
