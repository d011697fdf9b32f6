// Defines what the ranks contribute. Every value follows from (seed, rank, index) alone, so that
// any rank can compute what all ranks sent without storing or exchanging it. The components of
// complex numbers are numbered one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "bench/values/elements.h"

namespace rueda::bench {

enum class Pattern {
  // Rank r contributes 2^r: a sum decodes into who was in it, and who was in it twice. Where the
  // type
  // cannot hold the sum of all ranks exactly, elements take turns: each covers one group of ranks,
  // and the others contribute what changes nothing.
  kContributors,
  // Small integers, different at every index, whose every partial result is exact.
  kIntegers,
  // Floats in [-1, 1) (factors near +-1 for products); integers of the full range, which wrap.
  kRandom,
};
inline constexpr Pattern kAllPatterns[] = {Pattern::kContributors, Pattern::kIntegers,
                                           Pattern::kRandom};
const char* to_string(Pattern pattern);

struct Scenario {
  rueda_dtype dtype = RUEDA_FLOAT32;
  rueda_op op = RUEDA_SUM;
  Pattern pattern = Pattern::kContributors;
  int nranks = 1;
  int nnodes = 1;
  uint64_t seed = 0;
  rueda_wire_dtype wire = RUEDA_WIRE_SAME;

  // Returns the dtype that values are rounded to on their way, which is `dtype` if they are not.
  rueda_dtype travels_as() const;
};

// Writes what `rank` contributes to elements first_index, first_index + 1, ...
void fill(const Scenario& scenario, int rank, uint64_t first_index, size_t count, void* data);

// Returns how many consecutive ranks one element of kContributors can tell apart.
int contributor_group_size(rueda_dtype dtype, rueda_op op, int nranks);

// Returns n such that integers up to 2^n are exact.
int exact_bits(rueda_dtype dtype);

// Mixes a number with the finalizer of splitmix64, a bijection of 64 bits in which every input bit
// moves every output bit.
constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Computes the contribution of one rank, element by element.
template <class E>
class Generator {
 public:
  using Storage = typename E::Storage;

  Generator(const Scenario& scenario, int rank)
      : op_(scenario.op),
        pattern_(scenario.pattern),
        rank_(rank),
        nranks_(scenario.nranks),
        exact_bits_(exact_bits(scenario.travels_as())),
        key_(mix64(scenario.seed + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(rank + 1))) {
    const int group_size = contributor_group_size(scenario.travels_as(), op_, nranks_);
    groups_ = static_cast<uint64_t>((nranks_ + group_size - 1) / group_size);
    group_ = static_cast<uint64_t>(rank / group_size);
    group_size_ = group_size;
    if (extremum()) return;
    const int place = rank % group_size;
    // 2^0 would be invisible in a product, and an integer average must not lose bits to truncation.
    mine_ = power_of_two(op_ == RUEDA_PRODUCT ? place + 1 : place);
    if (E::kInteger && op_ == RUEDA_AVERAGE) mine_ = multiply(mine_, nranks_);
    others_ = op_ == RUEDA_PRODUCT ? power_of_two(0) : Storage{};
  }

  Storage operator()(uint64_t index) const {
    switch (pattern_) {
      case Pattern::kContributors: return contributors(index);
      case Pattern::kIntegers: return small_integer(hash(index));
      case Pattern::kRandom: break;
    }
    return random(hash(index));
  }

 private:
  static constexpr bool kUnsigned = E::kInteger && std::is_unsigned_v<Storage>;

  bool extremum() const { return op_ == RUEDA_MIN || op_ == RUEDA_MAX; }
  uint64_t hash(uint64_t index) const { return mix64(key_ + 0x9e3779b97f4a7c15ull * index); }

  static Storage from_integer(int64_t value) {
    return E::narrow(static_cast<typename E::Accumulator>(value));
  }
  static Storage multiply(Storage value, int factor) {
    return from_integer(static_cast<int64_t>(E::widen(value)) * factor);
  }
  static Storage power_of_two(int exponent) {
    if constexpr (E::kInteger) {
      return from_integer(int64_t{1} << exponent);
    } else {
      const double power = std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
      return E::narrow(static_cast<typename E::Accumulator>(power));
    }
  }

  Storage contributors(uint64_t index) const {
    // The ranks take turns in being the extreme one; otherwise only one rank's values would ever be
    // seen.
    if (extremum()) {
      const uint64_t turn = (static_cast<uint64_t>(rank_) + index) % static_cast<uint64_t>(nranks_);
      return power_of_two(static_cast<int>(turn) % group_size_);
    }
    return groups_ == 1 || index % groups_ == group_ ? mine_ : others_;
  }

  Storage small_integer(uint64_t hash) const {
    if (op_ == RUEDA_PRODUCT) {
      const int ranks_with_twos = std::min(14, exact_bits_);  // 2^14 is exact in the other types
      const int64_t magnitude = rank_ < ranks_with_twos && (hash & 2) != 0 ? 2 : 1;
      return from_integer((hash & 1) != 0 || kUnsigned ? magnitude : -magnitude);
    }
    const int64_t exact = int64_t{1} << exact_bits_;
    if (rank_ >= exact) return Storage{};
    const int64_t limit = std::clamp<int64_t>(exact / nranks_, 1, 1 << 20);
    const int64_t lowest = kUnsigned ? 0 : -limit;
    const uint64_t range = static_cast<uint64_t>(limit - lowest + 1);
    return from_integer(static_cast<int64_t>(((hash >> 32) * range) >> 32) + lowest);
  }

  Storage random(uint64_t hash) const {
    if constexpr (E::kInteger) {
      const Storage value = static_cast<Storage>(hash);
      return op_ == RUEDA_AVERAGE ? static_cast<Storage>(value / nranks_ / 2) : value;
    } else {
      const double uniform = static_cast<double>(static_cast<int64_t>(hash) >> 11) * 0x1p-52;
      if (op_ != RUEDA_PRODUCT) {
        return E::narrow(static_cast<typename E::Accumulator>(uniform));
      }
      // The factor is within 1 +- 1/(n+1), so that the product of n factors stays between 1/e and
      // e.
      const double factor = 1.0 + uniform / (nranks_ + 1);
      return E::narrow(static_cast<typename E::Accumulator>((hash & 1) != 0 ? factor : -factor));
    }
  }

  rueda_op op_;
  Pattern pattern_;
  int rank_;
  int nranks_;
  int exact_bits_;
  uint64_t key_;
  uint64_t groups_ = 1;
  uint64_t group_ = 0;
  int group_size_ = 1;
  Storage mine_{};
  Storage others_{};
};

}  // namespace rueda::bench
