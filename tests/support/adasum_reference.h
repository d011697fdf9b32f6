// Computes Adasum as its paper defines it, in float64, with every vector in full. It shares nothing
// with the daemon's computation.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace rueda::testing {

using Vector = std::vector<double>;

inline Vector adasum_of_two(const Vector& a, const Vector& b) {
  const auto dot = [](const Vector& x, const Vector& y) {
    return static_cast<double>(std::inner_product(x.begin(), x.end(), y.begin(), 0.0L));
  };
  const double a_square = dot(a, a);
  const double b_square = dot(b, b);
  const bool is_sum = a_square == 0 || b_square == 0;
  const double of_a = is_sum ? 1 : 1 - dot(a, b) / (2 * a_square);
  const double of_b = is_sum ? 1 : 1 - dot(a, b) / (2 * b_square);
  Vector result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = of_a * a[i] + of_b * b[i];
  return result;
}

// Combines a row of vectors, which is halved again and again; the first half has one more if the
// number is odd.
inline Vector adasum(const std::vector<Vector>& row) {
  if (row.size() == 1) return row.front();
  const auto middle = row.begin() + static_cast<ptrdiff_t>((row.size() + 1) / 2);
  return adasum_of_two(adasum({row.begin(), middle}), adasum({middle, row.end()}));
}

// Combines the rows of groups first, then their results.
inline Vector adasum(const std::vector<std::vector<Vector>>& groups) {
  std::vector<Vector> row;
  for (const std::vector<Vector>& group : groups) row.push_back(adasum(group));
  return adasum(row);
}

}  // namespace rueda::testing
