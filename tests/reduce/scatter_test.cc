#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/reduce/kernels.h"

namespace rueda::reduce {
namespace {

TEST(Scatter, CopiesToEveryDestinationAndNotPastIt) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{16384}, size_t{16385}, size_t{100003}}) {
    std::vector<uint8_t> src(bytes);
    for (size_t i = 0; i < bytes; ++i) src[i] = static_cast<uint8_t>(i * 31 + i / 251);
    for (size_t copies : {0, 1, 2, 5}) {
      std::vector<std::vector<uint8_t>> out(copies, std::vector<uint8_t>(bytes + 1, 0x5a));
      std::vector<void*> destinations;
      for (auto& copy : out) destinations.push_back(copy.data());
      for (const bool streams : {false, true}) {
        for (auto& copy : out) std::fill(copy.begin(), copy.end(), 0x5a);
        scatter(destinations, src.data(), bytes, streams);
        for (const auto& copy : out) {
          EXPECT_EQ(copy.back(), 0x5a);
          EXPECT_TRUE(std::equal(src.begin(), src.end(), copy.begin()));
        }
      }
    }
  }
}

TEST(Scatter, SkipsTheSourceAmongTheDestinations) {
  std::vector<uint8_t> src(40000), other(40000);
  std::iota(src.begin(), src.end(), uint8_t{0});
  const std::vector<uint8_t> before = src;
  const std::vector<void*> destinations{src.data(), other.data()};
  for (const bool streams : {false, true}) {
    std::fill(other.begin(), other.end(), uint8_t{0});
    scatter(destinations, src.data(), src.size(), streams);
    EXPECT_EQ(src, before);
    EXPECT_EQ(other, before);
  }
}

}  // namespace
}  // namespace rueda::reduce
