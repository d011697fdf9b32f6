// Draws pseudo-random numbers that are the same on every machine.
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
  // Returns a number of a standard normal distribution (Box and Muller 1958).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }

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
  double draw(Random& random) const { return quantile(random.uniform()); }
};

}  // namespace rueda::scale
