#include "bench/sim/random.h"

#include <cmath>

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

TEST(RandomTest, NormalOnesHaveTheirMeanTheirVarianceAndTheirTail) {
  Random random(5);
  constexpr int kDraws = 1'000'000;
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double drawn = random.normal();
    sum += drawn;
    squares += drawn * drawn;
    beyond_two += std::abs(drawn) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.005);
  EXPECT_NEAR(squares / kDraws, 1, 0.01);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kDraws, 0.0455, 0.001);
}

}  // namespace
}  // namespace rueda::scale
