#include "tests/gpu/fake/reduce_batch.h"

#include <cstring>
#include <vector>

#include "daemon/gpu/dispatch.h"

namespace rueda::gpu::fake {
namespace {

// A segment whose addresses have been looked up.
struct Pointers {
  uint64_t count = 0;
  const std::byte* partial = nullptr;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
};

template <class Element>
typename Element::Value load(const std::byte* values, uint64_t i) {
  typename Element::Stored stored;
  std::memcpy(&stored, values + i * sizeof stored, sizeof stored);
  return Element::load(stored);
}

struct Pass {
  const Pointers& at;
  const Scales& scales;

  template <class K>
  void run() const {
    const Scaler<typename K::Value> scaler(scales);
    for (uint64_t i = 0; i < at.count; ++i) {
      const bool has_partial = at.partial != nullptr;
      auto sum = has_partial ? load<typename K::Partial>(at.partial, i)
                             : scaler.source(load<typename K::Source>(at.sources[0], i));
      for (size_t k = has_partial ? 0 : 1; k < at.sources.size(); ++k) {
        sum = combine<K::kOp>(sum, scaler.source(load<typename K::Source>(at.sources[k], i)));
      }
      const typename K::Dst::Stored out = K::Dst::store(scaler.finish(sum));
      for (std::byte* destination : at.destinations) {
        std::memcpy(destination + i * sizeof out, &out, sizeof out);
      }
    }
  }
};

void run_pass(const Batch& batch, const Pass& pass) {
  switch (batch.dtype) {
    case DType::kFloat32: return visit_float32(batch, pass);
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex64:
    case DType::kComplex128: return visit_other_floats(batch, pass);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return visit_signed(batch, pass);
    default: return visit_unsigned(batch, pass);
  }
}

}  // namespace

DeviceAddress reduce_batch(const Batch& batch, const Resolve& resolve) {
  const Scales scales{batch.prescale, batch.postscale, batch.divisor};
  DeviceAddress missing = 0;
  const auto look_up = [&](DeviceAddress address, DType dtype, uint64_t count) {
    std::byte* found = resolve(address, count * element_bytes(dtype));
    if (found == nullptr && missing == 0) missing = address;
    return found;
  };
  for (const Segment& segment : batch.segments) {
    Pointers at{.count = segment.count};
    if (segment.partial != 0) {
      at.partial =
          look_up(segment.partial, batch.partial_dtype.value_or(batch.dtype), segment.count);
    }
    for (const DeviceAddress source : segment.sources) {
      at.sources.push_back(look_up(source, batch.dtype, segment.count));
    }
    for (const DeviceAddress destination : segment.destinations) {
      const DType dtype = batch.dst_dtype.value_or(batch.dtype);
      at.destinations.push_back(look_up(destination, dtype, segment.count));
    }
    if (missing != 0) return missing;
    run_pass(batch, Pass{at, scales});
  }
  return 0;
}

}  // namespace rueda::gpu::fake
