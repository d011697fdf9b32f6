#include "bench/values/patterns.h"

#include <bit>

namespace rueda::bench {

const char* to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::kContributors: return "contributors";
    case Pattern::kIntegers: return "integers";
    case Pattern::kRandom: return "random";
  }
  return "unknown";
}

rueda_dtype Scenario::travels_as() const {
  if (nnodes == 1) return dtype;
  switch (wire) {
    case RUEDA_WIRE_FLOAT16: return RUEDA_FLOAT16;
    case RUEDA_WIRE_BFLOAT16: return RUEDA_BFLOAT16;
    case RUEDA_WIRE_SAME: break;
  }
  return dtype;
}

int exact_bits(rueda_dtype dtype) {
  return with_element(dtype, []<class E>() { return E::kExactBits; });
}

int contributor_group_size(rueda_dtype dtype, rueda_op op, int nranks) {
  return with_element(dtype, [&]<class E>() {
    switch (op) {
      case RUEDA_MIN:
      case RUEDA_MAX: return E::kMaxExponent + 1;
      case RUEDA_PRODUCT: {
        // The product 2^1 * 2^2 * ... * 2^size must not overflow.
        int size = 1;
        while ((size + 1) * (size + 2) / 2 <= E::kMaxExponent) ++size;
        return size;
      }
      case RUEDA_AVERAGE:
        // Integer contributions are multiples of nranks, which leaves fewer bits for the ranks.
        if (E::kInteger) {
          return std::max<int>(1, E::kExactBits - std::bit_width(static_cast<unsigned>(nranks)));
        }
        break;
      case RUEDA_SUM:
      case RUEDA_ADASUM: break;
    }
    return E::kExactBits;
  });
}

void fill(const Scenario& scenario, int rank, uint64_t first_index, size_t count, void* data) {
  with_element(scenario.dtype, [&]<class E>() {
    const Generator<E> generator(scenario, rank);
    auto* out = static_cast<typename E::Storage*>(data);
    const size_t components = components_of(scenario.dtype);
    for (size_t i = 0; i < count * components; ++i) {
      out[i] = generator(first_index * components + i);
    }
  });
}

}  // namespace rueda::bench
