// Draws pseudo-random numbers that are the same on every machine, and the latest of many for the
// price of one: the maximum of n independent draws has the distribution function F^n, so u^(1/n)
// put into the inverse of F is a draw of the maximum (David and Nagaraja 2003, "Order Statistics",
// section 2.1).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rueda::scale {

// Implements SplitMix64 (Steele, Lea and Flood 2014, figure 16). The class is not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Returns a number in (0, 1).
  double uniform() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 0.5) / 9007199254740992.0;  // 2^53
  }
  // Returns the largest of n uniform numbers, n >= 1.
  double largest_uniform(int64_t n) { return std::pow(uniform(), 1.0 / static_cast<double>(n)); }

 private:
  uint64_t state_;
};

// Describes the time that a thread that wakes or spins may lose: nothing, or with some probability
// an exponential delay, cut off at the longest.
struct Delay {
  double probability = 0;
  double mean = 0;
  double longest = 0;

  // Returns the delay that the share u of all threads does not exceed.
  double quantile(double u) const {
    if (u <= 1 - probability) return 0;
    return std::min(longest, -mean * std::log((1 - u) / probability));
  }
  double average() const {
    return mean == 0 ? 0 : probability * mean * (1 - std::exp(-longest / mean));
  }
  double largest_of(int64_t n, Random& random) const { return quantile(random.largest_uniform(n)); }
};

// Returns the largest of n draws of a standard normal distribution, for n >= 2 (Hall 1979, "On the
// rate of convergence of normal extremes": Gumbel's distribution with these constants), and 0 for n
// = 1.
inline double largest_normal(int64_t n, Random& random) {
  const double u = random.uniform();
  if (n < 2) return 0;
  const double b = std::sqrt(2 * std::log(static_cast<double>(n)));
  const double at = b - (std::log(std::log(static_cast<double>(n))) + std::log(4 * M_PI)) / (2 * b);
  return std::max(0.0, at - std::log(-std::log(u)) / b);
}

}  // namespace rueda::scale
