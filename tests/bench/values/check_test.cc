#include "bench/values/check.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

constexpr size_t kCount = 2500;  // is more than two of the checker's blocks
constexpr uint64_t kFirst = 17;

template <class E>
typename E::Accumulator after_travel(const Scenario& scenario, typename E::Accumulator value) {
  if (scenario.travels_as() == scenario.dtype) {
    return static_cast<typename E::Accumulator>(E::widen(E::narrow(value)));
  }
  const auto single = static_cast<float>(value);
  return static_cast<typename E::Accumulator>(scenario.wire == RUEDA_WIRE_FLOAT16
                                                  ? half_to_float(float_to_half(single))
                                                  : bfloat16_to_float(float_to_bfloat16(single)));
}

// Reduces the way a node does: every addition in the accumulator's type, in the order of `ranks`,
// and rounded to the type in which it travels after each `per_node` ranks, then finished.
template <class E>
std::vector<typename E::Storage> reduce(const Scenario& scenario, const std::vector<int>& ranks,
                                        int per_node) {
  using Accumulator = typename E::Accumulator;
  using Storage = typename E::Storage;
  std::vector<Storage> result(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    Accumulator total{};
    int seen = 0;
    for (int rank : ranks) {
      const auto x = static_cast<Accumulator>(E::widen(Generator<E>(scenario, rank)(kFirst + i)));
      using Unsigned = std::conditional_t<E::kInteger, uint64_t, Accumulator>;
      if (seen == 0) {
        total = x;
      } else if (scenario.op == RUEDA_MIN) {
        total = std::min(total, x);
      } else if (scenario.op == RUEDA_MAX) {
        total = std::max(total, x);
      } else if (scenario.op == RUEDA_PRODUCT) {
        total = static_cast<Accumulator>(static_cast<Unsigned>(total) * static_cast<Unsigned>(x));
      } else {
        total = static_cast<Accumulator>(static_cast<Unsigned>(total) + static_cast<Unsigned>(x));
      }
      if (++seen % per_node == 0 && seen != static_cast<int>(ranks.size())) {
        total = after_travel<E>(scenario, total);
      }
    }
    if (scenario.op == RUEDA_AVERAGE) {
      total = static_cast<Accumulator>(total / static_cast<Accumulator>(scenario.nranks));
    }
    result[i] = E::narrow(after_travel<E>(scenario, total));
  }
  return result;
}

std::vector<int> all_ranks(int nranks) {
  std::vector<int> ranks(static_cast<size_t>(nranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <class Visitor>
void for_every_pattern(Scenario scenario, Visitor visitor) {
  for (rueda_op op : kAllOps) {
    for (Pattern pattern : kAllPatterns) {
      scenario.op = op;
      scenario.pattern = pattern;
      SCOPED_TRACE(std::string(to_string(scenario.dtype)) + " " + to_string(op) + " " +
                   to_string(pattern) + " " + std::to_string(scenario.nranks) + " wire " +
                   to_string(scenario.wire));
      visitor(scenario);
    }
  }
}

template <class Visitor>
void for_every_scenario(int nranks, int nnodes, Visitor visitor) {
  Scenario scenario = {.nranks = nranks, .nnodes = nnodes, .seed = 3};
  for (rueda_dtype dtype : kRealDTypes) {
    scenario.dtype = dtype;
    for_every_pattern(scenario, visitor);
  }
  scenario.dtype = RUEDA_FLOAT32;
  for (rueda_wire_dtype wire : {RUEDA_WIRE_FLOAT16, RUEDA_WIRE_BFLOAT16}) {
    scenario.wire = wire;
    for_every_pattern(scenario, visitor);
  }
}

TEST(CheckTest, AcceptsWhatTheContractAllows) {
  const std::pair<int, int> layouts[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 3}, {16, 16}};
  for (const auto& [nranks, nnodes] : layouts) {
    for_every_scenario(nranks, nnodes, [&, per_node = nranks / nnodes](const Scenario& scenario) {
      with_element(scenario.dtype, [&]<class E>() {
        auto ranks = all_ranks(scenario.nranks);
        auto result = reduce<E>(scenario, ranks, per_node);
        Verdict verdict = check_reduction(scenario, kFirst, kCount, result.data());
        EXPECT_EQ(verdict.wrong, 0u) << describe(scenario, verdict);
        std::reverse(ranks.begin(), ranks.end());
        result = reduce<E>(scenario, ranks, per_node);
        verdict = check_reduction(scenario, kFirst, kCount, result.data());
        EXPECT_EQ(verdict.wrong, 0u) << describe(scenario, verdict);
      });
    });
  }
}

// Whatever the pattern, dtype and operator, a rank that is left out must show in some element.
TEST(CheckTest, FindsAMissingRank) {
  for_every_scenario(4, 2, [](const Scenario& scenario) {
    with_element(scenario.dtype, [&]<class E>() {
      for (int missing = 0; missing < scenario.nranks; ++missing) {
        auto ranks = all_ranks(scenario.nranks);
        ranks.erase(ranks.begin() + missing);
        const auto result = reduce<E>(scenario, ranks, 2);
        EXPECT_GT(check_reduction(scenario, kFirst, kCount, result.data()).wrong, 0u) << missing;
      }
    });
  });
}

TEST(CheckTest, FindsARankCountedTwice) {
  for_every_scenario(4, 2, [](const Scenario& scenario) {
    if (scenario.op == RUEDA_MIN || scenario.op == RUEDA_MAX) return;
    with_element(scenario.dtype, [&]<class E>() {
      const auto result = reduce<E>(scenario, {0, 1, 2, 3, 3}, 2);
      EXPECT_GT(check_reduction(scenario, kFirst, kCount, result.data()).wrong, 0u);
    });
  });
}

TEST(CheckTest, FindsShiftedData) {
  for_every_scenario(4, 2, [](const Scenario& scenario) {
    const bool same_everywhere = scenario.pattern == Pattern::kContributors;
    if (same_everywhere) return;
    with_element(scenario.dtype, [&]<class E>() {
      const auto result = reduce<E>(scenario, all_ranks(4), 2);
      const Verdict verdict = check_reduction(scenario, kFirst + 1, kCount, result.data());
      EXPECT_GT(verdict.wrong, kCount / 4);
    });
  });
}

TEST(CheckTest, CountsExactlyTheWrongElements) {
  const Scenario scenario = {.dtype = RUEDA_FLOAT32, .op = RUEDA_SUM, .nranks = 4};
  auto result = reduce<Float32>(scenario, all_ranks(4), 4);
  result[3] = 11;
  result[1024] += 1;
  result[kCount - 1] = std::numeric_limits<float>::quiet_NaN();
  const Verdict verdict = check_reduction(scenario, kFirst, kCount, result.data());
  EXPECT_EQ(verdict.wrong, 3u);
  EXPECT_EQ(verdict.index, kFirst + 3);
  EXPECT_EQ(describe(scenario, verdict), "element 20 is 11, not 15: rank 2 missing");
}

TEST(CheckTest, NotANumberIsWrongUnderABoundToo) {
  const Scenario scenario = {.dtype = RUEDA_FLOAT64, .pattern = Pattern::kRandom, .nranks = 2};
  auto result = reduce<Float64>(scenario, all_ranks(2), 2);
  result[5] = std::numeric_limits<double>::quiet_NaN();
  result[6] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(check_reduction(scenario, kFirst, kCount, result.data()).wrong, 2u);
}

// The bound is tight enough to show an error a few times larger than rounding explains.
TEST(CheckTest, BoundSeesALostHalfOfThePrecision) {
  const Scenario scenario = {
      .dtype = RUEDA_FLOAT32, .pattern = Pattern::kRandom, .nranks = 4, .nnodes = 2};
  auto result = reduce<Float32>(scenario, all_ranks(4), 2);
  for (float& value : result) value = half_to_float(float_to_half(value));
  EXPECT_GT(check_reduction(scenario, kFirst, kCount, result.data()).wrong, kCount * 9 / 10);
}

TEST(CheckTest, BoundOfAWireDtypeCountsItsRoundings) {
  Scenario scenario = {
      .dtype = RUEDA_FLOAT32, .pattern = Pattern::kRandom, .nranks = 4, .nnodes = 3};
  const long double own = error_bound(scenario, 1.0L);
  scenario.wire = RUEDA_WIRE_BFLOAT16;
  const long double three_roundings = std::pow(1 + 0x1p-8L, 3) - 1;
  EXPECT_NEAR(static_cast<double>(error_bound(scenario, 1.0L)),
              static_cast<double>(three_roundings + own), 1e-7);
  auto result = reduce<Float32>(scenario, all_ranks(4), 2);
  for (float& value : result) value *= 1.1F;
  EXPECT_GT(check_reduction(scenario, kFirst, kCount, result.data()).wrong, kCount / 2);
  scenario.nnodes = 1;
  EXPECT_LT(error_bound(scenario, 1.0L), own) << "nothing travels";
}

TEST(CheckTest, BoundGrowsWithRoundings) {
  Scenario scenario = {
      .dtype = RUEDA_FLOAT32, .pattern = Pattern::kRandom, .nranks = 4, .nnodes = 2};
  const long double five_roundings = std::pow(1 + 0x1p-24L, 5) - 1;
  EXPECT_NEAR(static_cast<double>(error_bound(scenario, 1.0L) / five_roundings), 1.0, 1e-6);
  scenario.op = RUEDA_AVERAGE;
  EXPECT_GT(error_bound(scenario, 1.0L), five_roundings);
  scenario.op = RUEDA_MAX;
  EXPECT_EQ(error_bound(scenario, 1.0L), 0);
}

TEST(CheckTest, NothingIsNeverWrong) {
  const Scenario scenario;
  EXPECT_EQ(check_reduction(scenario, 0, 0, nullptr).wrong, 0u);
  EXPECT_EQ(check_copy(scenario, 0, 0, 0, nullptr).wrong, 0u);
}

TEST(CheckTest, ComplexNumbersAreCheckedByTheirComponents) {
  for (const auto& [complex, real] :
       {std::pair{RUEDA_COMPLEX64, RUEDA_FLOAT32}, {RUEDA_COMPLEX128, RUEDA_FLOAT64}}) {
    for (Pattern pattern : kAllPatterns) {
      const Scenario numbers = {
          .dtype = real, .op = RUEDA_AVERAGE, .pattern = pattern, .nranks = 4, .seed = 3};
      Scenario scenario = numbers;
      scenario.dtype = complex;
      const size_t bytes = kCount * element_bytes(complex);
      EXPECT_EQ(bytes, 2 * kCount * element_bytes(real));
      std::vector<char> own(bytes);
      std::vector<char> components(bytes);
      fill(scenario, 1, kFirst, kCount, own.data());
      fill(numbers, 1, 2 * kFirst, 2 * kCount, components.data());
      EXPECT_EQ(own, components);
      EXPECT_EQ(check_copy(scenario, 1, kFirst, kCount, own.data()).wrong, 0u);
      own[bytes - 1] ^= 1;
      const Verdict verdict = check_copy(scenario, 1, kFirst, kCount, own.data());
      EXPECT_EQ(verdict.wrong, 1u);
      EXPECT_EQ(verdict.index, kFirst + kCount - 1);
    }
  }
}

TEST(CheckTest, TheSecondComponentOfAComplexNumberIsCheckedToo) {
  const Scenario scenario = {.dtype = RUEDA_COMPLEX64, .op = RUEDA_SUM, .nranks = 4};
  std::vector<float> result(2 * kCount, 15);
  EXPECT_EQ(check_reduction(scenario, kFirst, kCount, result.data()).wrong, 0u);
  result[7] = 14;
  const Verdict verdict = check_reduction(scenario, kFirst, kCount, result.data());
  EXPECT_EQ(verdict.wrong, 1u);
  EXPECT_EQ(describe(scenario, verdict), "element 20 is 14, not 15: rank 0 missing");
}

TEST(CheckTest, ACopyMustBeTheRanksBits) {
  const Scenario scenario = {.dtype = RUEDA_BFLOAT16, .pattern = Pattern::kRandom, .nranks = 3};
  std::vector<uint16_t> result(kCount);
  fill(scenario, 1, kFirst, kCount, result.data());
  EXPECT_EQ(check_copy(scenario, 1, kFirst, kCount, result.data()).wrong, 0u);
  EXPECT_GT(check_copy(scenario, 2, kFirst, kCount, result.data()).wrong, 0u);
  result[9] ^= 1;
  const Verdict verdict = check_copy(scenario, 1, kFirst, kCount, result.data());
  EXPECT_EQ(verdict.wrong, 1u);
  EXPECT_EQ(verdict.index, kFirst + 9);
}

TEST(VerdictTest, MergeKeepsTheFirst) {
  Verdict sum;
  sum.merge({.wrong = 2, .index = 7});
  sum.merge({.wrong = 3, .index = 1});
  sum.merge({});
  EXPECT_EQ(sum.wrong, 5u);
  EXPECT_EQ(sum.index, 7u);
}

TEST(HashTest, EveryBitCounts) {
  std::vector<unsigned char> bytes(21, 0);
  const uint64_t hash = hash_bytes(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    bytes[i / 8] ^= static_cast<unsigned char>(1u << (i % 8));
    EXPECT_NE(hash_bytes(bytes.data(), bytes.size()), hash) << i;
    bytes[i / 8] ^= static_cast<unsigned char>(1u << (i % 8));
  }
  EXPECT_EQ(hash_bytes(bytes.data(), bytes.size()), hash);
  EXPECT_NE(hash_bytes(bytes.data(), bytes.size() - 1), hash);
}

}  // namespace
}  // namespace rueda::bench
