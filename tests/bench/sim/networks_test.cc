#include "bench/sim/networks.h"

#include <numeric>

#include <gtest/gtest.h>

#include "bench/sim/run.h"

namespace rueda::scale {
namespace {

constexpr int64_t kThreshold = 64 << 20;

// The parameter counts are those published with torchvision's weights; Inception-v3 is without its
// auxiliary classifier.
TEST(NetworksTest, ParameterCounts) {
  const std::pair<const char*, int64_t> published[] = {
      {"resnet18", 11'689'512},  {"resnet34", 21'797'672},   {"resnet50", 25'557'032},
      {"resnet101", 44'549'160}, {"resnet152", 60'192'808},  {"googlenet-aux", 13'004'888},
      {"vgg16", 138'357'544},    {"inception3", 23'834'568}, {"alexnet", 61'100'840},
  };
  for (const auto& [name, parameters] : published) {
    ASSERT_TRUE(find_network(name)) << name;
    EXPECT_EQ(find_network(name)->bytes(), 4 * parameters) << name;
  }
  EXPECT_EQ(networks().size(), std::size(published));
  EXPECT_FALSE(find_network("resnet51"));
}

TEST(NetworksTest, EachHasAllThatIsNeeded) {
  for (const Network& network : networks()) {
    EXPECT_GT(network.images_per_s, 0) << network.name;
    EXPECT_GT(network.lis, 0) << network.name;
    EXPECT_LT(network.lis, 1) << network.name;
  }
}

TEST(NetworksTest, FusionLosesNothing) {
  for (const Network& network : networks()) {
    for (const bool look_ahead : {true, false}) {
      for (const int width : {2, 4}) {
        const std::vector<int64_t> batches = fused_bytes(network, kThreshold, look_ahead, width);
        EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), int64_t{0}),
                  network.bytes() / 4 * width);
      }
    }
  }
}

// AlexNet's large layers stand between small ones, so fusing only neighbours needs more batches.
TEST(NetworksTest, LookingAheadNeedsFewerBatches) {
  const Network& alexnet = *find_network("alexnet");
  EXPECT_LT(fused_bytes(alexnet, kThreshold, true, 2).size(),
            fused_bytes(alexnet, kThreshold, false, 2).size());
  Network network;
  network.tensors = {10, 30, 10};  // have 40, 120 and 40 bytes
  EXPECT_EQ(fused_bytes(network, 100, true, 4), (std::vector<int64_t>{80, 120}));
  EXPECT_EQ(fused_bytes(network, 100, false, 4), (std::vector<int64_t>{40, 120, 40}));
}

}  // namespace
}  // namespace rueda::scale
