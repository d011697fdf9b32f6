#include "bench/sim/random.h"

#include <vector>

#include <gtest/gtest.h>

namespace rueda::scale {
namespace {

TEST(RandomTest, TheSameSeedRepeatsAndAnotherDoesNot) {
  Random a(7);
  Random b(7);
  Random c(8);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    const double drawn = a.uniform();
    EXPECT_EQ(drawn, b.uniform());
    EXPECT_GT(drawn, 0);
    EXPECT_LT(drawn, 1);
    equal += drawn == c.uniform() ? 1 : 0;
  }
  EXPECT_EQ(equal, 0);
}

// One draw of the latest of n must be distributed as the latest of n draws.
TEST(RandomTest, TheLatestOfManyIsThatOfSoManyDraws) {
  const Delay delay{0.1, 2.4, 60};
  constexpr int kThreads = 500;
  constexpr int kTimes = 4000;
  Random random(1);
  double drawn_at_once = 0;
  double drawn_one_by_one = 0;
  for (int time = 0; time < kTimes; ++time) {
    drawn_at_once += delay.largest_of(kThreads, random) / kTimes;
    double latest = 0;
    for (int i = 0; i < kThreads; ++i) {
      latest = std::max(latest, delay.quantile(random.uniform()));
    }
    drawn_one_by_one += latest / kTimes;
  }
  EXPECT_NEAR(drawn_at_once, drawn_one_by_one, 0.02 * drawn_one_by_one);
}

TEST(RandomTest, DelaysAreMostlyNoneAndNeverBeyondTheLongest) {
  const Delay delay{0.1, 20, 60};
  EXPECT_EQ(delay.quantile(0.899), 0);
  EXPECT_GT(delay.quantile(0.901), 0);
  EXPECT_EQ(delay.quantile(1 - 1e-15), 60);
  Random random(3);
  double sum = 0;
  for (int i = 0; i < 1'000'000; ++i) sum += delay.quantile(random.uniform());
  EXPECT_NEAR(sum / 1e6, delay.average(), 0.02 * delay.average());
}

TEST(RandomTest, TheLargestOfManyNormalOnes) {
  Random random(5);
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) sum += largest_normal(24'576, random);
  EXPECT_NEAR(sum / 20'000, 4.09, 0.03);  // the value is the numerical integral of 1 - Phi^n
  EXPECT_EQ(largest_normal(1, random), 0);
}

}  // namespace
}  // namespace rueda::scale
