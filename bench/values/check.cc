#include "bench/values/check.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace rueda::bench {
namespace {

constexpr size_t kBlock = 1024;

// Holds the exact result of one block, and the magnitude that scales its error.
template <class E>
struct Block {
  typename E::Wide value[kBlock];
  typename E::Wide magnitude[kBlock];
};

// Adds two values. Integers wrap as the daemon's do: two's complement, in the width of the type.
template <class E>
typename E::Wide add(typename E::Wide a, typename E::Wide b) {
  if constexpr (E::kInteger) {
    const uint64_t sum = static_cast<uint64_t>(a) + static_cast<uint64_t>(b);
    return static_cast<typename E::Storage>(sum);
  } else {
    return a + b;
  }
}

template <class E>
typename E::Wide multiply(typename E::Wide a, typename E::Wide b) {
  if constexpr (E::kInteger) {
    const uint64_t product = static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
    return static_cast<typename E::Storage>(product);
  } else {
    return a * b;
  }
}

template <class E>
typename E::Wide absolute(typename E::Wide x) {
  if constexpr (E::kInteger) {
    return 0;
  } else {
    return std::abs(x);
  }
}

template <class E, class Combine>
void combine_ranks(const Scenario& scenario, uint64_t first_index, size_t count, Block<E>& block,
                   Combine combine) {
  for (int rank = 0; rank < scenario.nranks; ++rank) {
    const Generator<E> generator(scenario, rank);
    for (size_t i = 0; i < count; ++i) {
      const auto x = E::widen(generator(first_index + i));
      block.value[i] = rank == 0 ? x : combine(block.value[i], x);
      block.magnitude[i] = absolute<E>(x) + (rank == 0 ? 0 : block.magnitude[i]);
    }
  }
}

template <class E>
void reference(const Scenario& scenario, uint64_t first_index, size_t count, Block<E>& block) {
  using Wide = typename E::Wide;
  switch (scenario.op) {
    case RUEDA_SUM:
    case RUEDA_AVERAGE: combine_ranks<E>(scenario, first_index, count, block, add<E>); break;
    case RUEDA_MIN:
      combine_ranks<E>(scenario, first_index, count, block,
                       [](Wide a, Wide b) { return b < a ? b : a; });
      break;
    case RUEDA_MAX:
      combine_ranks<E>(scenario, first_index, count, block,
                       [](Wide a, Wide b) { return a < b ? b : a; });
      break;
    case RUEDA_PRODUCT:
      combine_ranks<E>(scenario, first_index, count, block, multiply<E>);
      for (size_t i = 0; i < count; ++i) block.magnitude[i] = absolute<E>(block.value[i]);
      break;
    case RUEDA_ADASUM: break;  // kAllOps does not have it
  }
}

// Returns the value that a final value becomes by being rounded for its way.
template <class E>
typename E::Wide after_travel(const Scenario& scenario, typename E::Wide value) {
  const auto single = static_cast<float>(value);
  const float rounded = scenario.travels_as() == RUEDA_FLOAT16
                            ? half_to_float(float_to_half(single))
                            : bfloat16_to_float(float_to_bfloat16(single));
  return static_cast<typename E::Wide>(rounded);
}

// Divides an exact sum for an average: in the accumulator's type, then with one rounding.
template <class E>
typename E::Wide exact_average(typename E::Wide sum, int nranks) {
  using Accumulator = typename E::Accumulator;
  const auto quotient =
      static_cast<Accumulator>(static_cast<Accumulator>(sum) / static_cast<Accumulator>(nranks));
  return E::widen(E::narrow(quotient));
}

bool must_be_exact(const Scenario& scenario, bool integer) {
  return integer || scenario.pattern != Pattern::kRandom || scenario.op == RUEDA_MIN ||
         scenario.op == RUEDA_MAX;
}

template <class E>
void judge(const Scenario& scenario, uint64_t first_index, size_t count, const Block<E>& block,
           const typename E::Storage* result, Verdict& verdict) {
  using Wide = typename E::Wide;
  const bool exact = must_be_exact(scenario, E::kInteger);
  const bool average = scenario.op == RUEDA_AVERAGE;
  const bool is_rounded = scenario.travels_as() != scenario.dtype;
  const Wide divisor = static_cast<Wide>(average ? scenario.nranks : 1);
  const auto relative = static_cast<Wide>(exact ? 0 : error_bound(scenario, 1.0L));
  const auto absolute_part = static_cast<Wide>(exact ? 0 : error_bound(scenario, 0.0L));
  for (size_t i = 0; i < count; ++i) {
    const Wide got = E::widen(result[i]);
    Wide expected = block.value[i];
    Wide bound = 0;
    bool right = false;
    if (exact) {
      if (average) expected = exact_average<E>(expected, scenario.nranks);
      if (is_rounded) expected = after_travel<E>(scenario, expected);
      right = got == expected;
    } else {
      expected /= divisor;
      bound = relative * block.magnitude[i] / divisor + absolute_part;
      right = absolute<E>(got - expected) <= bound;  // false for NaN
    }
    if (right) continue;
    if (verdict.wrong++ == 0) {
      verdict.index = (first_index + i) / components_of(scenario.dtype);
      verdict.got = static_cast<double>(got);
      verdict.expected = static_cast<double>(expected);
      verdict.bound = static_cast<double>(bound);
    }
  }
}

// Returns a text such as "rank 2 is missing", if the bits of a wrong sum say so.
std::string missing_ranks(const Scenario& scenario, const Verdict& verdict) {
  const int group_size =
      contributor_group_size(scenario.travels_as(), scenario.op, scenario.nranks);
  const bool readable = scenario.op == RUEDA_SUM && scenario.pattern == Pattern::kContributors &&
                        scenario.nranks <= group_size && verdict.got >= 0 &&
                        verdict.got <= verdict.expected && verdict.got == std::floor(verdict.got);
  if (!readable) return "";
  std::string ranks;
  for (int rank = 0; rank < scenario.nranks; ++rank) {
    if (std::fmod(std::floor(std::ldexp(verdict.got, -rank)), 2.0) != 0.0) continue;
    ranks += (ranks.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return ranks + " missing";
}

struct Rounding {
  long double unit_roundoff = 0;
  long double half_tiny = 0;
};

Rounding rounding_of(rueda_dtype dtype) {
  return with_element(dtype, []<class E>() -> Rounding {
    if constexpr (E::kInteger) {
      return {};
    } else {
      return {E::kUnitRoundoff, E::kHalfTiny};
    }
  });
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

}  // namespace

void Verdict::merge(const Verdict& other) {
  const uint64_t total = wrong + other.wrong;
  if (wrong == 0) *this = other;
  wrong = total;
}

long double error_bound(const Scenario& scenario, long double magnitude) {
  if (scenario.op == RUEDA_MIN || scenario.op == RUEDA_MAX) return 0;
  return with_element(scenario.dtype, [&]<class E>() -> long double {
    if constexpr (E::kInteger) {
      return 0;
    } else {
      const int roundings =
          scenario.nranks - 1 + scenario.nnodes + (scenario.op == RUEDA_AVERAGE ? 1 : 0);
      const bool is_rounded = scenario.travels_as() != scenario.dtype;
      // For a sum each value is rounded on its way once; for a product all values are, both ways.
      const int most = scenario.op == RUEDA_PRODUCT ? 2 * scenario.nnodes - 1 : scenario.nnodes;
      const int on_wire = is_rounded ? most : 0;
      const Rounding wire = rounding_of(scenario.travels_as());
      const long double growth = std::expm1(roundings * std::log1p(E::kUnitRoundoff) +
                                            on_wire * std::log1p(wire.unit_roundoff));
      return growth * magnitude + roundings * E::kHalfTiny + on_wire * wire.half_tiny;
    }
  });
}

Verdict check_reduction(const Scenario& scenario, uint64_t first_index, size_t count,
                        const void* result) {
  return with_element(scenario.dtype, [&]<class E>() {
    Verdict verdict;
    Block<E> block;
    const auto* numbers = static_cast<const typename E::Storage*>(result);
    const size_t components = components_of(scenario.dtype);
    const uint64_t first = first_index * components;
    for (size_t done = 0; done < count * components; done += kBlock) {
      const size_t now = std::min(kBlock, count * components - done);
      reference<E>(scenario, first + done, now, block);
      judge<E>(scenario, first + done, now, block, numbers + done, verdict);
    }
    return verdict;
  });
}

Verdict check_copy(const Scenario& scenario, int rank, uint64_t first_index, size_t count,
                   const void* result) {
  return with_element(scenario.dtype, [&]<class E>() {
    Verdict verdict;
    const Generator<E> generator(scenario, rank);
    const auto* numbers = static_cast<const typename E::Storage*>(result);
    const size_t components = components_of(scenario.dtype);
    for (size_t i = 0; i < count * components; ++i) {
      const typename E::Storage expected = generator(first_index * components + i);
      if (std::memcmp(&numbers[i], &expected, sizeof(expected)) == 0) continue;
      if (verdict.wrong++ == 0) {
        verdict.index = first_index + i / components;
        verdict.got = static_cast<double>(E::widen(numbers[i]));
        verdict.expected = static_cast<double>(E::widen(expected));
      }
    }
    return verdict;
  });
}

std::string describe(const Scenario& scenario, const Verdict& verdict) {
  if (verdict.wrong == 0) return "";
  std::string text = "element " + std::to_string(verdict.index) + " is " + number(verdict.got) +
                     ", not " + number(verdict.expected);
  if (verdict.bound > 0) text += " within " + number(verdict.bound);
  const std::string missing = missing_ranks(scenario, verdict);
  return missing.empty() ? text : text + ": " + missing;
}

uint64_t hash_bytes(const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  uint64_t state = mix64(bytes + 1);
  uint64_t word = 0;
  for (; bytes >= sizeof(word); bytes -= sizeof(word), from += sizeof(word)) {
    std::memcpy(&word, from, sizeof(word));
    // An odd multiplier and a rotation make a bijection of the state for a given word, and of the
    // word.
    state = std::rotl((state ^ word) * 0x9e3779b97f4a7c15ull, 29);
  }
  word = 0;
  if (bytes > 0) std::memcpy(&word, from, bytes);
  return mix64(state ^ word);
}

}  // namespace rueda::bench
