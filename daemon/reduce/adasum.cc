#include "daemon/reduce/adasum.h"

#include <cmath>
#include <limits>

#include "daemon/base/check.h"
#include "daemon/reduce/weighted.h"

namespace rueda::reduce {
namespace {

constexpr double kRoundingNoise = 0x1p-46;

using Vectors = std::span<const size_t>;

class Weigher {
 public:
  Weigher(std::span<const double> products, size_t vectors)
      : products_(products), weights_(vectors, 1.0) {}

  void meet_within(Vectors vectors) {
    if (vectors.size() < 2) return;
    const size_t first_half = (vectors.size() + 1) / 2;
    meet_within(vectors.first(first_half));
    meet_within(vectors.subspan(first_half));
    meet(vectors.first(first_half), vectors.subspan(first_half));
  }
  // Makes groups meet. `vectors` holds the vectors of all groups, one group behind the other, and
  // `ends` says where each group ends.
  void meet_groups(Vectors vectors, std::span<const size_t> ends, size_t begin) {
    if (ends.size() < 2) return;
    const size_t first_half = (ends.size() + 1) / 2;
    const size_t middle = ends[first_half - 1];
    meet_groups(vectors, ends.first(first_half), begin);
    meet_groups(vectors, ends.subspan(first_half), middle);
    meet(vectors.subspan(begin, middle - begin), vectors.subspan(middle, ends.back() - middle));
  }

  std::vector<double> weights() && { return std::move(weights_); }

 private:
  // The dot product of the weighted sums of two sets of vectors.
  struct Product {
    double value = 0;
    double uncancelled = 0;  // The value that it would have if nothing had been subtracted.

    bool is_noise() const { return value <= kRoundingNoise * uncancelled; }
  };
  Product product(Vectors left, Vectors right) const {
    Product sum;
    for (const size_t i : left) {
      for (const size_t j : right) {
        const double term = weights_[i] * weights_[j] * products_[pair_place(i, j)];
        sum.value += term;
        sum.uncancelled += std::fabs(term);
      }
    }
    return sum;
  }

  void meet(Vectors left, Vectors right) {
    const Product left_square = product(left, left);
    const Product right_square = product(right, right);
    const double common = product(left, right).value;
    if (!std::isfinite(left_square.value) || !std::isfinite(right_square.value) ||
        !std::isfinite(common)) {
      return scale_both(left, right, std::numeric_limits<double>::quiet_NaN());
    }
    if (left_square.is_noise() || right_square.is_noise()) return;
    scale(left, 1.0 - common / left_square.value / 2);
    scale(right, 1.0 - common / right_square.value / 2);
  }
  void scale_both(Vectors left, Vectors right, double factor) {
    scale(left, factor);
    scale(right, factor);
  }
  void scale(Vectors vectors, double factor) {
    for (const size_t i : vectors) weights_[i] *= factor;
  }

  const std::span<const double> products_;
  std::vector<double> weights_;
};

}  // namespace

std::vector<double> adasum_weights(std::span<const double> products, const AdasumTree& tree) {
  std::vector<size_t> vectors;
  std::vector<size_t> ends;
  for (const std::vector<size_t>& group : tree) {
    vectors.insert(vectors.end(), group.begin(), group.end());
    ends.push_back(vectors.size());
  }
  RUEDA_CHECK(products.size() == pairs_of(vectors.size()));
  Weigher weigher(products, vectors.size());
  for (const std::vector<size_t>& group : tree) weigher.meet_within(group);
  weigher.meet_groups(vectors, ends, 0);
  return std::move(weigher).weights();
}

}  // namespace rueda::reduce
