#include "daemon/reduce/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "daemon/base/check.h"
#include "daemon/reduce/cpu/job.h"

// foreach_target.h compiles this file once for each instruction set, then once for the dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "daemon/reduce/cpu/kernels.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "daemon/reduce/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::reduce::HWY_NAMESPACE {

// This scaling applies nothing, and so costs nothing.
template <class Lanes>
struct Unscaled {
  using V = typename Lanes::V;
  explicit Unscaled(const Job&) {}
  HWY_INLINE V first(V v) const { return v; }
  HWY_INLINE V source(V v) const { return v; }
  HWY_INLINE V finish(V v) const { return v; }
};

// Scales floating-point values. A factor that is 1 is multiplied by all the same: it changes no
// bits, and memory is slower than the multiplication. Division is slower than memory, so a division
// by a power of two becomes a factor.
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

template <class Lanes>
HWY_INLINE void store(typename Lanes::V v, uint8_t* to) {
  store_bytes(typename Lanes::StoredD(), Lanes::pack(v), to);
}

// The place where a result goes. Vectors are written four at a time, or one that may be short.
template <class Lanes>
struct OneOutput {
  using V = typename Lanes::V;
  explicit HWY_INLINE OneOutput(const Job& job) : dst_(job.dst) {}

  HWY_INLINE size_t head() const { return 0; }
  HWY_INLINE void put(V v0, V v1, V v2, V v3, size_t at, size_t vector_bytes) const {
    store<Lanes>(v0, dst_ + at);
    store<Lanes>(v1, dst_ + at + vector_bytes);
    store<Lanes>(v2, dst_ + at + 2 * vector_bytes);
    store<Lanes>(v3, dst_ + at + 3 * vector_bytes);
  }
  HWY_INLINE void put_short(const uint8_t* values, size_t at, size_t length) const {
    std::memcpy(dst_ + at, values, length);
  }
  HWY_INLINE void end() const {}

 private:
  uint8_t* const dst_;
};

template <class Lanes>
struct SeveralOutputs {
  using V = typename Lanes::V;
  using D = typename Lanes::StoredD;
  explicit HWY_INLINE SeveralOutputs(const Job& job)
      : dst_(job.dst), copies_(job.copies), count_(job.copy_count), streams_(job.streams) {}

  // Returns how many elements come before the first aligned vector.
  HWY_INLINE size_t head() const {
    if (!streams_) return 0;
    const size_t bytes = kLineBytes - reinterpret_cast<uintptr_t>(dst_) % kLineBytes;
    return bytes % kLineBytes / Lanes::kBytes;
  }
  HWY_INLINE void put(V v0, V v1, V v2, V v3, size_t at, size_t vector_bytes) const {
    const auto p0 = Lanes::pack(v0);
    const auto p1 = Lanes::pack(v1);
    const auto p2 = Lanes::pack(v2);
    const auto p3 = Lanes::pack(v3);
    uint8_t* to = dst_ + at;
    for (size_t i = 0;; ++i) {
      if (streams_) {
        stream_bytes(D(), p0, to);
        stream_bytes(D(), p1, to + vector_bytes);
        stream_bytes(D(), p2, to + 2 * vector_bytes);
        stream_bytes(D(), p3, to + 3 * vector_bytes);
      } else {
        store_bytes(D(), p0, to);
        store_bytes(D(), p1, to + vector_bytes);
        store_bytes(D(), p2, to + 2 * vector_bytes);
        store_bytes(D(), p3, to + 3 * vector_bytes);
      }
      if (i == count_) return;
      to = static_cast<uint8_t*>(copies_[i]) + at;
    }
  }
  HWY_INLINE void put_short(const uint8_t* values, size_t at, size_t length) const {
    std::memcpy(dst_ + at, values, length);
    for (size_t i = 0; i < count_; ++i) {
      std::memcpy(static_cast<uint8_t*>(copies_[i]) + at, values, length);
    }
  }
  HWY_INLINE void end() const {
    if (streams_) hwy::FlushStream();
  }

 private:
  uint8_t* const dst_;
  void* const* const copies_;
  const size_t count_;
  const bool streams_;
};

// The loop takes four vectors at a time: each stays in its register from the first input to the
// last output, so the outputs are passed over once whatever the number of inputs. kRest fixes that
// number for the compiler; 0 reads it from the job. Everything of a block is read before any of it
// is written, because an output may be one of the inputs. First and Out are lanes of the same kind
// that are stored otherwise.
template <class Lanes, ReduceOp kOp, template <class> class Scaling, size_t kRest,
          template <class> class Outputs, class First = Lanes, class Out = Lanes>
void reduce_lanes(const Job& job) {
  using V = typename Lanes::V;
  const Scaling<Lanes> scaling(job);
  const Outputs<Out> outputs(job);
  const size_t rest_count = kRest == 0 ? job.rest_count : kRest;
  const void* const* const rest = job.rest;

  const size_t lanes = hn::Lanes(typename Lanes::D());
  const size_t first_step = lanes * First::kBytes;
  const size_t rest_step = lanes * Lanes::kBytes;
  const size_t out_step = lanes * Out::kBytes;
  size_t at = 0;
  // At the ends a vector may be short. It goes through a buffer, and so through the same
  // arithmetic.
  const auto take_short = [&](size_t end) {
    uint8_t buffer[HWY_MAX_BYTES] = {};
    while (at < end) {
      const size_t count = HWY_MIN(lanes, end - at);
      std::memcpy(buffer, job.first + at * First::kBytes, count * First::kBytes);
      V v = scaling.first(First::load(buffer));
      for (size_t k = 0; k < rest_count; ++k) {
        const uint8_t* from = static_cast<const uint8_t*>(rest[k]) + at * Lanes::kBytes;
        std::memcpy(buffer, from, count * Lanes::kBytes);
        v = combine<kOp>(v, scaling.source(Lanes::load(buffer)));
      }
      store<Out>(scaling.finish(v), buffer);
      outputs.put_short(buffer, at * Out::kBytes, count * Out::kBytes);
      at += count;
    }
  };
  take_short(HWY_MIN(outputs.head(), job.count));
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
    outputs.put(scaling.finish(v0), scaling.finish(v1), scaling.finish(v2), scaling.finish(v3),
                at * Out::kBytes, out_step);
  }
  take_short(job.count);
  outputs.end();
}

// Sums are the hot path, so the numbers of inputs that nodes have (2 to 4) get loops of their own.
template <class Lanes, template <class> class Outputs>
void reduce_sum_into(const Job& job) {
  switch (job.rest_count) {
    case 1: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 1, Outputs>(job);
    case 2: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 2, Outputs>(job);
    case 3: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 3, Outputs>(job);
    default: return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 0, Outputs>(job);
  }
}

template <class Lanes>
void reduce_sum(const Job& job) {
  if (job.copy_count == 0 && !job.streams) return reduce_sum_into<Lanes, OneOutput>(job);
  reduce_sum_into<Lanes, SeveralOutputs>(job);
}

template <class Lanes, ReduceOp kOp, template <class> class Scaling>
void reduce_any(const Job& job) {
  reduce_lanes<Lanes, kOp, Scaling, 0, SeveralOutputs>(job);
}

template <class Lanes>
void reduce_floats(const Job& job) {
  const bool is_scaled = job.is_scaled();
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return is_scaled ? reduce_any<Lanes, ReduceOp::kSum, Scaled>(job) : reduce_sum<Lanes>(job);
    case ReduceOp::kMin:
      return is_scaled ? reduce_any<Lanes, ReduceOp::kMin, Scaled>(job)
                       : reduce_any<Lanes, ReduceOp::kMin, Unscaled>(job);
    case ReduceOp::kMax:
      return is_scaled ? reduce_any<Lanes, ReduceOp::kMax, Scaled>(job)
                       : reduce_any<Lanes, ReduceOp::kMax, Unscaled>(job);
    case ReduceOp::kProduct:
      return is_scaled ? reduce_any<Lanes, ReduceOp::kProduct, Scaled>(job)
                       : reduce_any<Lanes, ReduceOp::kProduct, Unscaled>(job);
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"an operator on elements");
}

// The inputs are float32, but for a partial sum that may be rounded; the output is rounded. The
// conversions cost more than a multiplication, so that there is no need for loops without scales.
template <class First, class Rounded>
void reduce_and_round(const Job& job) {
  using Lanes = NativeLanes<float>;
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return reduce_lanes<Lanes, ReduceOp::kSum, Scaled, 0, OneOutput, First, Rounded>(job);
    case ReduceOp::kMin:
      return reduce_lanes<Lanes, ReduceOp::kMin, Scaled, 0, OneOutput, First, Rounded>(job);
    case ReduceOp::kMax:
      return reduce_lanes<Lanes, ReduceOp::kMax, Scaled, 0, OneOutput, First, Rounded>(job);
    case ReduceOp::kProduct:
      return reduce_lanes<Lanes, ReduceOp::kProduct, Scaled, 0, OneOutput, First, Rounded>(job);
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"an operator on elements");
}

template <class Rounded>
void reduce_rounded(const Job& job) {
  using Lanes = NativeLanes<float>;
  if (job.dst_dtype == job.dtype) {
    return reduce_lanes<Lanes, ReduceOp::kSum, Unscaled, 0, OneOutput, Rounded>(job);
  }
  if (job.first_dtype == job.dtype) return reduce_and_round<Lanes, Rounded>(job);
  return reduce_and_round<Rounded, Rounded>(job);
}

// Sums and products take unsigned lanes: they wrap to the same bits, and wrapping is defined.
template <class T>
void reduce_integers(const Job& job) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return reduce_sum<NativeLanes<Unsigned>>(job);
    case ReduceOp::kMin: return reduce_any<NativeLanes<T>, ReduceOp::kMin, Unscaled>(job);
    case ReduceOp::kMax: return reduce_any<NativeLanes<T>, ReduceOp::kMax, Unscaled>(job);
    case ReduceOp::kProduct:
      return reduce_any<NativeLanes<Unsigned>, ReduceOp::kProduct, Unscaled>(job);
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"an operator on elements");
}

// Products have no vector instruction, and go the scalar way.
void reduce_bytes(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return reduce_sum<NativeLanes<uint8_t>>(job);
    case ReduceOp::kMin:
      return job.dtype == DType::kInt8
                 ? reduce_any<NativeLanes<int8_t>, ReduceOp::kMin, Unscaled>(job)
                 : reduce_any<NativeLanes<uint8_t>, ReduceOp::kMin, Unscaled>(job);
    case ReduceOp::kMax:
      return job.dtype == DType::kInt8
                 ? reduce_any<NativeLanes<int8_t>, ReduceOp::kMax, Unscaled>(job)
                 : reduce_any<NativeLanes<uint8_t>, ReduceOp::kMax, Unscaled>(job);
    case ReduceOp::kProduct:
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"a reduce operator that has vectors of bytes");
}

// Scales and averages are refused long before; here they are passed over.
void reduce_bools(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kMax: return reduce_any<BoolLanes, ReduceOp::kMax, Unscaled>(job);
    case ReduceOp::kMin:
    case ReduceOp::kProduct: return reduce_any<BoolLanes, ReduceOp::kMin, Unscaled>(job);
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"an operator on elements");
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
    case DType::kInt32: return reduce_integers<int32_t>(job);
    case DType::kInt64: return reduce_integers<int64_t>(job);
    case DType::kInt16: return reduce_integers<int16_t>(job);
    case DType::kUInt16: return reduce_integers<uint16_t>(job);
    case DType::kUInt32: return reduce_integers<uint32_t>(job);
    case DType::kUInt64: return reduce_integers<uint64_t>(job);
    case DType::kInt8:
    case DType::kUInt8: return reduce_bytes(job);
    case DType::kBool: return reduce_bools(job);
    case DType::kComplex64:
    case DType::kComplex128: break;  // reduce() takes them apart.
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

// Returns whether results can be written past the caches: all outputs must lie alike to a cache
// line, so that their aligned vectors begin at the same elements.
bool can_stream(const ReduceArgs& args) {
  const auto place = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % kLineBytes; };
  const auto lies_alike = [&](const void* copy) { return place(copy) == place(args.dst); };
  return args.sum_dtype.value_or(args.dtype) == args.dtype &&
         place(args.dst) % element_bytes(args.dtype) == 0 &&
         std::all_of(args.copies.begin(), args.copies.end(), lies_alike);
}

// Returns a job that copies the same values as bytes.
Job copy_of(Job job, size_t bytes) {
  job.dtype = job.first_dtype = job.dst_dtype = DType::kUInt8;
  job.op = ReduceOp::kSum;
  job.count = bytes;
  return job;
}

// Returns whether complex numbers are multiplied with each other. That is the only thing that is
// done with them, and not with their components one by one.
bool multiplies_complex(const ReduceArgs& args) {
  const size_t inputs = args.sources.size() + (args.partial != nullptr ? 1 : 0);
  return is_complex(args.dtype) && args.op == ReduceOp::kProduct && inputs > 1;
}

// Returns the reduction of complex numbers as one of their components.
ReduceArgs componentwise(const ReduceArgs& args) {
  ReduceArgs out = args;
  out.dtype = component_dtype(args.dtype);
  out.sum_dtype.reset();
  out.op = ReduceOp::kSum;
  out.count *= components_of(args.dtype);
  return out;
}

// Checks the arguments, and returns them in the kernels' form.
Job job_of(const ReduceArgs& args) {
  RUEDA_CHECK(args.partial != nullptr || !args.sources.empty());
  RUEDA_CHECK(args.divisor > 0);
  RUEDA_CHECK(has_operator(args.dtype, args.op));
  const bool has_partial = args.partial != nullptr;
  const auto rest = has_partial ? args.sources : args.sources.subspan(1);
  const DType sum_dtype = args.sum_dtype.value_or(args.dtype);
  RUEDA_CHECK(sum_dtype == args.dtype ||
              (is_rounding_of(sum_dtype, args.dtype) && args.copies.empty()));
  return {
      .dtype = args.dtype,
      .first_dtype = has_partial ? sum_dtype : args.dtype,
      .dst_dtype = sum_dtype,
      .op = args.op,
      .dst = static_cast<uint8_t*>(args.dst),
      .copies = args.copies.data(),
      .copy_count = args.copies.size(),
      .streams = args.streams && can_stream(args),
      .first = static_cast<const uint8_t*>(has_partial ? args.partial : args.sources[0]),
      .is_first_partial = has_partial,
      .rest = rest.data(),
      .rest_count = rest.size(),
      .count = args.count,
      .prescale = args.prescale,
      .postscale = args.postscale,
      .divisor = args.divisor,
  };
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (args.count == 0) return;
  const Job job = job_of(args);
  const size_t bytes = job.count * element_bytes(job.dst_dtype);
  const bool is_copied = args.dtype != DType::kBool;  // In bool, any byte but 0 becomes 1.
  if (job.rest_count == 0 && !job.is_scaled() && job.first_dtype == job.dst_dtype && is_copied) {
    if (job.streams) return HWY_DYNAMIC_DISPATCH(reduce_job)(copy_of(job, bytes));
    if (job.dst != job.first) std::memcpy(job.dst, job.first, bytes);
    return scatter(args.copies, job.dst, bytes);
  }
  if (multiplies_complex(args)) {
    multiply_complex(job);
    return scatter(args.copies, job.dst, bytes);
  }
  if (is_complex(args.dtype)) return reduce(componentwise(args));
  const bool is_product_of_bytes =
      job.op == ReduceOp::kProduct && element_bytes(job.dtype) == sizeof(uint8_t);
  if (is_integer(job.dtype) && (job.is_scaled() || is_product_of_bytes)) {
    reduce_integers_one_by_one(job);
    return scatter(args.copies, job.dst, bytes);
  }
  HWY_DYNAMIC_DISPATCH(reduce_job)(job);
}

void widen(std::span<void* const> destinations, const void* src, DType dtype, size_t count) {
  RUEDA_CHECK(is_rounding_of(dtype, DType::kFloat32));
  constexpr size_t kBlock = 4096;  // So many elements stay in the first-level cache.
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
