#include "daemon/reduce/kernels.h"

#include <cstdint>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/reduce/cpu/job.h"

// foreach_target.h compiles this file once for each instruction set, then once for the dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "daemon/reduce/cpu/kernels.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "daemon/reduce/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::reduce::HWY_NAMESPACE {

// Applies nothing, and so costs nothing.
template <class Lanes>
struct Unscaled {
  using V = typename Lanes::V;
  explicit Unscaled(const Job&) {}
  HWY_INLINE V first(V v) const { return v; }
  HWY_INLINE V source(V v) const { return v; }
  HWY_INLINE V finish(V v) const { return v; }
};

// Floating point only. A factor that is 1 is multiplied by all the same: it changes no bits, and
// memory is slower than the multiplication. Division is not, so a power of two becomes a factor.
template <class Lanes>
struct Scaled {
  using D = typename Lanes::D;
  using T = hn::TFromD<D>;
  using V = typename Lanes::V;

  explicit HWY_INLINE Scaled(const Job& job)
      : is_first_partial_(job.is_first_partial),
        is_divided_((job.divisor & (job.divisor - 1)) != 0),
        prescale_(hn::Set(D(), static_cast<T>(job.prescale))),
        postscale_(hn::Set(D(), static_cast<T>(job.postscale))),
        divisor_(hn::Set(D(), static_cast<T>(job.divisor))),
        reciprocal_(hn::Set(D(), T(1) / static_cast<T>(job.divisor))) {}

  HWY_INLINE V first(V v) const { return is_first_partial_ ? v : source(v); }
  HWY_INLINE V source(V v) const { return hn::Mul(v, prescale_); }
  HWY_INLINE V finish(V v) const {
    const V product = hn::Mul(v, postscale_);
    return is_divided_ ? hn::Div(product, divisor_) : hn::Mul(product, reciprocal_);
  }

 private:
  bool is_first_partial_;
  bool is_divided_;
  V prescale_, postscale_, divisor_, reciprocal_;
};

// Four vectors at a time: each stays in its register from the first input to the store, so dst is
// passed over once whatever the number of inputs. kRest fixes that number for the compiler; 0
// reads it from the job. Everything of a block is read before any of it is written, because dst
// may be one of the inputs. First and Out are lanes of the same kind that are stored otherwise.
template <class Lanes, ReduceOp kOp, template <class> class Scaling, size_t kRest,
          class First = Lanes, class Out = Lanes>
void reduce_lanes(const Job& job) {
  using V = typename Lanes::V;
  const Scaling<Lanes> scaling(job);
  const size_t rest_count = kRest == 0 ? job.rest_count : kRest;
  const void* const* const rest = job.rest;

  const size_t lanes = hn::Lanes(typename Lanes::D());
  const size_t first_step = lanes * First::kBytes;
  const size_t rest_step = lanes * Lanes::kBytes;
  const size_t out_step = lanes * Out::kBytes;
  size_t at = 0;
  for (; job.count - at >= 4 * lanes; at += 4 * lanes) {
    const uint8_t* const first = job.first + at * First::kBytes;
    V v0 = scaling.first(First::load(first));
    V v1 = scaling.first(First::load(first + first_step));
    V v2 = scaling.first(First::load(first + 2 * first_step));
    V v3 = scaling.first(First::load(first + 3 * first_step));
    for (size_t k = 0; k < rest_count; ++k) {
      const uint8_t* from = static_cast<const uint8_t*>(rest[k]) + at * Lanes::kBytes;
      v0 = combine<kOp>(v0, scaling.source(Lanes::load(from)));
      v1 = combine<kOp>(v1, scaling.source(Lanes::load(from + rest_step)));
      v2 = combine<kOp>(v2, scaling.source(Lanes::load(from + 2 * rest_step)));
      v3 = combine<kOp>(v3, scaling.source(Lanes::load(from + 3 * rest_step)));
    }
    uint8_t* const dst = job.dst + at * Out::kBytes;
    Out::store(scaling.finish(v0), dst);
    Out::store(scaling.finish(v1), dst + out_step);
    Out::store(scaling.finish(v2), dst + 2 * out_step);
    Out::store(scaling.finish(v3), dst + 3 * out_step);
  }
  // The last vector may be short. It goes through a buffer, and so through the same arithmetic.
  uint8_t buffer[HWY_MAX_BYTES] = {};
  while (at < job.count) {
    const size_t count = HWY_MIN(lanes, job.count - at);
    std::memcpy(buffer, job.first + at * First::kBytes, count * First::kBytes);
    V v = scaling.first(First::load(buffer));
    for (size_t k = 0; k < rest_count; ++k) {
      const uint8_t* from = static_cast<const uint8_t*>(rest[k]) + at * Lanes::kBytes;
      std::memcpy(buffer, from, count * Lanes::kBytes);
      v = combine<kOp>(v, scaling.source(Lanes::load(buffer)));
    }
    Out::store(scaling.finish(v), buffer);
    std::memcpy(job.dst + at * Out::kBytes, buffer, count * Out::kBytes);
    at += count;
  }
}

// Sums are the hot path, so the numbers of inputs that nodes have (2 to 4) get loops of their own.
template <class Lanes>
void reduce_sum(const Job& job) {
  switch (job.rest_count) {
    case 1: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 1>(job);
    case 2: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 2>(job);
    case 3: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 3>(job);
    default: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 0>(job);
  }
}

template <class Lanes>
void reduce_floats(const Job& job) {
  const bool is_scaled = job.is_scaled();
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return is_scaled ? reduce_lanes<Lanes, ReduceOp::kSum, Scaled, 0>(job)
                       : reduce_sum<Lanes>(job);
    case ReduceOp::kMin:
      return is_scaled ? reduce_lanes<Lanes, ReduceOp::kMin, Scaled, 0>(job)
                       : reduce_lanes<Lanes, ReduceOp::kMin, Unscaled, 0>(job);
    case ReduceOp::kMax:
      return is_scaled ? reduce_lanes<Lanes, ReduceOp::kMax, Scaled, 0>(job)
                       : reduce_lanes<Lanes, ReduceOp::kMax, Unscaled, 0>(job);
    case ReduceOp::kProduct:
      return is_scaled ? reduce_lanes<Lanes, ReduceOp::kProduct, Scaled, 0>(job)
                       : reduce_lanes<Lanes, ReduceOp::kProduct, Unscaled, 0>(job);
  }
  RUEDA_CHECK(!"a reduce operator that exists");
}

// Float32 in, or a partial sum that was rounded; rounded out. The conversions cost more than a
// multiplication, so that there is no need for loops without scales.
template <class First, class Rounded>
void reduce_and_round(const Job& job) {
  using Lanes = NativeLanes<float>;
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return reduce_lanes<Lanes, ReduceOp::kSum, Scaled, 0, First, Rounded>(job);
    case ReduceOp::kMin: return reduce_lanes<Lanes, ReduceOp::kMin, Scaled, 0, First, Rounded>(job);
    case ReduceOp::kMax: return reduce_lanes<Lanes, ReduceOp::kMax, Scaled, 0, First, Rounded>(job);
    case ReduceOp::kProduct:
      return reduce_lanes<Lanes, ReduceOp::kProduct, Scaled, 0, First, Rounded>(job);
  }
  RUEDA_CHECK(!"a reduce operator that exists");
}

template <class Rounded>
void reduce_rounded(const Job& job) {
  using Lanes = NativeLanes<float>;
  if (job.dst_dtype == job.dtype) {
    return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 0, Rounded>(job);
  }
  if (job.first_dtype == job.dtype) return reduce_and_round<Lanes, Rounded>(job);
  return reduce_and_round<Rounded, Rounded>(job);
}

// Sums and products take unsigned lanes: they wrap to the same bits, and wrapping is defined.
template <class Signed, class Unsigned>
void reduce_integers(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return reduce_sum<NativeLanes<Unsigned>>(job);
    case ReduceOp::kMin: return reduce_lanes<NativeLanes<Signed>, ReduceOp::kMin, Unscaled, 0>(job);
    case ReduceOp::kMax: return reduce_lanes<NativeLanes<Signed>, ReduceOp::kMax, Unscaled, 0>(job);
    case ReduceOp::kProduct:
      return reduce_lanes<NativeLanes<Unsigned>, ReduceOp::kProduct, Unscaled, 0>(job);
  }
  RUEDA_CHECK(!"a reduce operator that exists");
}

// Products have no vector instruction, and go the scalar way.
void reduce_bytes(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return reduce_sum<NativeLanes<uint8_t>>(job);
    case ReduceOp::kMin:
      return job.dtype == DType::kInt8
                 ? reduce_lanes<NativeLanes<int8_t>, ReduceOp::kMin, Unscaled, 0>(job)
                 : reduce_lanes<NativeLanes<uint8_t>, ReduceOp::kMin, Unscaled, 0>(job);
    case ReduceOp::kMax:
      return job.dtype == DType::kInt8
                 ? reduce_lanes<NativeLanes<int8_t>, ReduceOp::kMax, Unscaled, 0>(job)
                 : reduce_lanes<NativeLanes<uint8_t>, ReduceOp::kMax, Unscaled, 0>(job);
    case ReduceOp::kProduct: break;
  }
  RUEDA_CHECK(!"a reduce operator that has vectors of bytes");
}

// Scales and averages are refused long before; here they are passed over.
void reduce_bools(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kMax: return reduce_lanes<BoolLanes, ReduceOp::kMax, Unscaled, 0>(job);
    case ReduceOp::kMin:
    case ReduceOp::kProduct: return reduce_lanes<BoolLanes, ReduceOp::kMin, Unscaled, 0>(job);
  }
  RUEDA_CHECK(!"a reduce operator that exists");
}

void reduce_job(const Job& job) {
  if (job.first_dtype != job.dtype || job.dst_dtype != job.dtype) {
    const DType rounded = job.dst_dtype == job.dtype ? job.first_dtype : job.dst_dtype;
    return rounded == DType::kFloat16 ? reduce_rounded<Float16Lanes>(job)
                                      : reduce_rounded<BFloat16Lanes>(job);
  }
  switch (job.dtype) {
    case DType::kFloat32: return reduce_floats<NativeLanes<float>>(job);
    case DType::kFloat64: return reduce_floats<NativeLanes<double>>(job);
    case DType::kFloat16: return reduce_floats<Float16Lanes>(job);
    case DType::kBFloat16: return reduce_floats<BFloat16Lanes>(job);
    case DType::kInt32: return reduce_integers<int32_t, uint32_t>(job);
    case DType::kInt64: return reduce_integers<int64_t, uint64_t>(job);
    case DType::kInt8:
    case DType::kUInt8: return reduce_bytes(job);
    case DType::kBool: return reduce_bools(job);
  }
  RUEDA_CHECK(!"a dtype that exists");
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace rueda::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rueda::reduce {

HWY_EXPORT(reduce_job);
HWY_EXPORT(target_name);

namespace {

bool is_rounding_of(DType rounded, DType dtype) {
  return dtype == DType::kFloat32 && (rounded == DType::kFloat16 || rounded == DType::kBFloat16);
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (args.count == 0) return;
  RUEDA_CHECK(args.partial != nullptr || !args.sources.empty());
  RUEDA_CHECK(args.divisor > 0);
  const bool has_partial = args.partial != nullptr;
  const auto rest = has_partial ? args.sources : args.sources.subspan(1);
  const DType sum_dtype = args.sum_dtype.value_or(args.dtype);
  RUEDA_CHECK(sum_dtype == args.dtype || is_rounding_of(sum_dtype, args.dtype));
  const Job job{
      .dtype = args.dtype,
      .first_dtype = has_partial ? sum_dtype : args.dtype,
      .dst_dtype = sum_dtype,
      .op = args.op,
      .dst = static_cast<uint8_t*>(args.dst),
      .first = static_cast<const uint8_t*>(has_partial ? args.partial : args.sources[0]),
      .is_first_partial = has_partial,
      .rest = rest.data(),
      .rest_count = rest.size(),
      .count = args.count,
      .prescale = args.prescale,
      .postscale = args.postscale,
      .divisor = args.divisor,
  };
  if (rest.empty() && !job.is_scaled() && job.first_dtype == sum_dtype) {
    if (job.dst != job.first) std::memcpy(job.dst, job.first, job.count * element_bytes(sum_dtype));
    return;
  }
  const bool is_product_of_bytes =
      job.op == ReduceOp::kProduct && element_bytes(job.dtype) == sizeof(uint8_t);
  if (is_integer(job.dtype) && (job.is_scaled() || is_product_of_bytes)) {
    return reduce_integers_one_by_one(job);
  }
  HWY_DYNAMIC_DISPATCH(reduce_job)(job);
}

void widen(std::span<void* const> destinations, const void* src, DType dtype, size_t count) {
  RUEDA_CHECK(is_rounding_of(dtype, DType::kFloat32));
  constexpr size_t kBlock = 4096;  // elements: they stay in the first-level cache
  for (size_t at = 0; at < count; at += kBlock) {
    for (void* destination : destinations) {
      const Job job{
          .first_dtype = dtype,
          .dst = static_cast<uint8_t*>(destination) + at * sizeof(float),
          .first = static_cast<const uint8_t*>(src) + at * element_bytes(dtype),
          .is_first_partial = true,
          .count = HWY_MIN(kBlock, count - at),
      };
      HWY_DYNAMIC_DISPATCH(reduce_job)(job);
    }
  }
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace rueda::reduce
#endif  // HWY_ONCE
