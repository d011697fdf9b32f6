#include "daemon/core/schedules/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/model/tuning.h"

namespace rueda::core {
namespace {

using ::testing::HasSubstr;

constexpr TransferCosts kFastNetwork{10e-6, 0.1e-9, 0.1e-9};

TEST(AlgorithmChoice, HasANameThatIsRead) {
  for (int i = 0; i <= static_cast<int>(AlgorithmChoice::kCentral); ++i) {
    const auto choice = static_cast<AlgorithmChoice>(i);
    const Result<AlgorithmChoice> read = parse_algorithm(to_string(choice));
    ASSERT_TRUE(read.is_ok()) << to_string(choice);
    EXPECT_EQ(read.value(), choice);
  }
  EXPECT_THAT(parse_algorithm("wheel").status().message(),
              HasSubstr("there is no algorithm \"wheel\"; there are auto, table, ring, "));
}

TEST(AlgorithmFor, TakesTheFirstLineThatIsLargeEnough) {
  const AlgorithmTable table{{100, Algorithm::kRecursiveDoubling},
                             {1000, Algorithm::kHalvingDoubling},
                             {INT64_MAX, Algorithm::kRing}};
  EXPECT_EQ(algorithm_for(table, 0), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(algorithm_for(table, 100), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(algorithm_for(table, 101), Algorithm::kHalvingDoubling);
  EXPECT_EQ(algorithm_for(table, 1001), Algorithm::kRing);
  EXPECT_EQ(algorithm_for({{1, Algorithm::kCentral}}, 2), Algorithm::kCentral);
}

// The numbers are those of Thakur, Rabenseifner and Gropp 2005, table 1: steps and bytes for 8
// nodes.
TEST(CostModel, CountsStepsAndBytes) {
  const TransferCosts steps{1, 0, 0};
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRing, 8, 1000, steps), 14);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRecursiveDoubling, 8, 1000, steps), 3);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kHalvingDoubling, 8, 1000, steps), 6);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kDirect, 8, 1000, steps), 2);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kCentral, 8, 1000, steps), 2);
  const TransferCosts bytes{0, 1, 0};
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRing, 8, 8000, bytes), 14'000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRecursiveDoubling, 8, 8000, bytes), 24'000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kHalvingDoubling, 8, 8000, bytes), 14'000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kDirect, 8, 8000, bytes), 14'000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kCentral, 8, 8000, bytes), 14 * 8000);
  const TransferCosts additions{0, 0, 1};
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRing, 8, 8000, additions), 7000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRecursiveDoubling, 8, 8000, additions), 24'000);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kHalvingDoubling, 8, 8000, additions), 7000);
}

TEST(CostModel, ANodeBeyondAPowerOfTwoCostsTwoStepsMore) {
  const TransferCosts steps{1, 0, 0};
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRecursiveDoubling, 4, 0, steps), 2);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kRecursiveDoubling, 5, 0, steps), 4);
  EXPECT_DOUBLE_EQ(cost_s(Algorithm::kHalvingDoubling, 5, 0, steps), 6);
}

TEST(AlgorithmTable, GoesFromFewStepsToFewBytes) {
  for (const int nodes : {2, 3, 4, 5, 8, 16, 100}) {
    const AlgorithmTable table = make_table(nodes, kFastNetwork);
    EXPECT_EQ(table.front().algorithm, Algorithm::kRecursiveDoubling) << nodes;
    EXPECT_EQ(table.back(), (AlgorithmLine{INT64_MAX, Algorithm::kRing})) << nodes;
    for (size_t i = 1; i < table.size(); ++i) {
      EXPECT_GT(table[i].up_to_bytes, table[i - 1].up_to_bytes);
      EXPECT_NE(table[i].algorithm, table[i - 1].algorithm);
    }
    for (const AlgorithmLine& line : table) {
      if (line.algorithm == Algorithm::kRing) continue;
      EXPECT_LE(cost_s(line.algorithm, nodes, line.up_to_bytes, kFastNetwork),
                cost_s(Algorithm::kRing, nodes, line.up_to_bytes, kFastNetwork));
    }
  }
}

TEST(AlgorithmTable, ASlowNetworkAndAQuickOneDiffer) {
  const TransferCosts slow{500e-6, 8e-9, 0.1e-9};
  EXPECT_GT(make_table(8, slow).front().up_to_bytes,
            make_table(8, {5e-6, 8e-9, 0.1e-9}).front().up_to_bytes);
}

TEST(AlgorithmTable, WithoutMeasurementsItIsTheSameEachTime) {
  EXPECT_EQ(fixed_table(AlgorithmChoice::kTable, 4), fixed_table(AlgorithmChoice::kTable, 4));
  EXPECT_EQ(fixed_table(AlgorithmChoice::kTable, 4).front().algorithm,
            Algorithm::kRecursiveDoubling);
  EXPECT_EQ(fixed_table(AlgorithmChoice::kCentral, 4),
            (AlgorithmTable{{INT64_MAX, Algorithm::kCentral}}));
}

TEST(AlgorithmTable, CutOversMoveAsTheyAreTuned) {
  const AlgorithmTable table{{1000, Algorithm::kRecursiveDoubling}, {INT64_MAX, Algorithm::kRing}};
  const auto tuned = [&](int64_t bytes, int32_t log2,
                         AlgorithmChoice choice = AlgorithmChoice::kAuto) {
    return tuned_algorithm_for(table, bytes, log2, choice, 4);
  };
  for (const int64_t bytes : {1, 1000, 1001, 1 << 20}) {
    EXPECT_EQ(tuned(bytes, 0), algorithm_for(table, bytes));
    EXPECT_EQ(tuned(bytes, kRingAlways), Algorithm::kRing);
  }
  EXPECT_EQ(tuned(4003, 2), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(tuned(4004, 2), Algorithm::kRing);
  EXPECT_EQ(tuned(250, -2), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(tuned(251, -2), Algorithm::kRing);
  EXPECT_EQ(tuned(INT64_MAX, -2), Algorithm::kRing);
  // Sizes that go round the ring whatever is measured also do so whatever is tuned.
  EXPECT_EQ(tuned((4 * (128 << 10)) + 1, 62), Algorithm::kRing);
  const AlgorithmTable only = fixed_table(AlgorithmChoice::kCentral, 4);
  EXPECT_EQ(tuned_algorithm_for(only, 10, kRingAlways, AlgorithmChoice::kCentral, 4),
            Algorithm::kCentral);
}

TEST(AlgorithmTable, TheRingNeedsNoOtherChannels) {
  EXPECT_TRUE(exchanges_of(AlgorithmChoice::kRing).empty());
  EXPECT_EQ(exchanges_of(AlgorithmChoice::kDirect), std::vector{Algorithm::kDirect});
}

}  // namespace
}  // namespace rueda::core
