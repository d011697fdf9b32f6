// Tests Adasum's weights against the recursive formula on whole vectors.
#include "daemon/reduce/adasum.h"

#include <cmath>
#include <limits>
#include <random>

#include "daemon/reduce/weighted.h"
#include "tests/reduce/reference.h"
#include "tests/support/adasum_reference.h"

namespace rueda::reduce::testing {
namespace {

using rueda::testing::adasum;
using rueda::testing::Vector;

AdasumTree one_row(size_t vectors) {
  AdasumTree tree(1);
  for (size_t i = 0; i < vectors; ++i) tree.front().push_back(i);
  return tree;
}

std::vector<double> weights_of(const std::vector<Vector>& vectors, const AdasumTree& tree) {
  std::vector<double> products(pairs_of(vectors.size()));
  std::vector<const void*> pointers;
  for (const Vector& vector : vectors) pointers.push_back(vector.data());
  add_dot_products(DType::kFloat64, pointers, vectors.front().size(), products);
  return adasum_weights(products, tree);
}

Vector weighted_sum(const std::vector<Vector>& vectors, const std::vector<double>& weights) {
  Vector sum(vectors.front().size());
  for (size_t i = 0; i < vectors.size(); ++i) {
    for (size_t at = 0; at < sum.size(); ++at) sum[at] += weights[i] * vectors[i][at];
  }
  return sum;
}

void expect_near(const Vector& got, const Vector& want, double relative) {
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::fabs(value));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], relative * largest) << i;
}

// Returns vectors of different lengths that have something in common.
std::vector<Vector> random_vectors(size_t vectors, size_t elements, double scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Vector common(elements);
  for (double& value : common) value = normal(random);
  std::vector<Vector> out;
  for (size_t i = 0; i < vectors; ++i) {
    Vector& vector = out.emplace_back(elements);
    const double length = scale * std::exp(normal(random));
    for (size_t at = 0; at < elements; ++at) vector[at] = length * (common[at] + normal(random));
  }
  return out;
}

TEST(AdasumWeights, AreThoseOfTheFormulaForAnyNumberOfVectorsAndAnyMagnitude) {
  for (size_t vectors = 1; vectors <= 9; ++vectors) {
    for (const double scale : {1.0, 1e-40, 1e37}) {
      SCOPED_TRACE(std::to_string(vectors) + " of " + std::to_string(scale));
      const auto given = random_vectors(vectors, 257, scale, static_cast<uint32_t>(vectors));
      expect_near(weighted_sum(given, weights_of(given, one_row(vectors))), adasum(given), 1e-12);
    }
  }
}

TEST(AdasumWeights, GroupsMeetWithinThemselvesFirst) {
  const auto given = random_vectors(7, 100, 1, 5);
  const AdasumTree tree{{4, 1, 0}, {2}, {6, 3, 5}};
  const std::vector<std::vector<Vector>> groups{
      {given[4], given[1], given[0]}, {given[2]}, {given[6], given[3], given[5]}};
  expect_near(weighted_sum(given, weights_of(given, tree)), adasum(groups), 1e-12);
}

// For unequal halves of the tree, sums of equal products may be rounded differently.
TEST(AdasumWeights, OfEqualVectorsMakeTheirAverage) {
  const Vector one = random_vectors(1, 1001, 3, 1).front();
  for (size_t vectors = 1; vectors <= 9; ++vectors) {
    const std::vector<Vector> given(vectors, one);
    const std::vector<double> weights = weights_of(given, one_row(vectors));
    double sum = 0;
    for (const double weight : weights) sum += weight;
    EXPECT_NEAR(sum, 1.0, 1e-15) << vectors;
    if ((vectors & (vectors - 1)) != 0) continue;
    for (const double weight : weights) EXPECT_EQ(weight, 1.0 / static_cast<double>(vectors));
  }
}

TEST(AdasumWeights, OfOrthogonalVectorsAreOne) {
  std::vector<Vector> given;
  for (size_t i = 0; i < 6; ++i) {
    given.emplace_back(6)[i] = std::ldexp(1.0, 20 * static_cast<int>(i) - 60);
  }
  EXPECT_EQ(weights_of(given, one_row(6)), std::vector<double>(6, 1.0));
}

TEST(AdasumWeights, ParallelVectorsMakeTheAverageOfTheirLengths) {
  const Vector one = random_vectors(1, 100, 1, 1).front();
  Vector longer = one;
  for (double& value : longer) value *= 1e6;
  Vector want = one;
  for (double& value : want) value *= (1 + 1e6) / 2;
  const std::vector<Vector> given{one, longer};
  expect_near(weighted_sum(given, weights_of(given, one_row(2))), want, 1e-14);
}

TEST(AdasumWeights, AScaledInputScalesTheResult) {
  const auto given = random_vectors(5, 100, 1, 9);
  std::vector<Vector> scaled = given;
  for (Vector& vector : scaled) {
    for (double& value : vector) value *= 1024;
  }
  EXPECT_EQ(weights_of(scaled, one_row(5)), weights_of(given, one_row(5)));
}

TEST(AdasumWeights, WithAZeroVectorItIsTheSum) {
  const auto given = random_vectors(1, 10, 1, 2);
  const Vector zero(10);
  EXPECT_EQ(weights_of({zero, given[0]}, one_row(2)), (std::vector<double>{1, 1}));
  EXPECT_EQ(weights_of({given[0], zero}, one_row(2)), (std::vector<double>{1, 1}));
  EXPECT_EQ(weights_of({zero, zero, zero}, one_row(3)), (std::vector<double>{1, 1, 1}));
}

// The first two vectors cancel each other except for rounding. Their direction means nothing, and a
// division by its square would make something large of it.
TEST(AdasumWeights, WhatRoundingLeavesOfACancellationCountsAsZero) {
  const auto given = random_vectors(2, 1000, 1, 3);
  Vector opposite = given[0];
  for (double& value : opposite) value *= -1 - 1e-9;
  const std::vector<double> weights = weights_of({given[0], opposite, given[1]}, one_row(3));
  EXPECT_EQ(weights[2], 1.0);
  for (const double weight : weights) EXPECT_LE(std::fabs(weight), 4.0);
}

TEST(AdasumWeights, OfInfiniteProductsAreNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {infinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (const double weight : weights_of({{1, wrong}, {1, 1}}, one_row(2))) {
      EXPECT_TRUE(std::isnan(weight));
    }
  }
}

}  // namespace
}  // namespace rueda::reduce::testing
