#include "bench/base/compute.h"

#include <map>
#include <optional>
#include <stdexcept>

namespace rueda::bench {
namespace {

constexpr const char* kGuide =
    "TensorFlow's guide \"Benchmarks\": one P100 of a DGX-1, synthetic data, May 2017";

// Holds images a second that TensorFlow's guide has, at a batch of 32 and at a larger one.
struct Published {
  const char* network;
  int batch;
  double images_per_s;
  std::optional<double> at_32;
};
constexpr Published kPublished[] = {
    {"resnet50", 64, 219, 195}, {"resnet152", 64, 91.8, 82.7}, {"inception3", 64, 142, 128},
    {"vgg16", 64, 154, 144},    {"alexnet", 512, 2987, {}},
};

// The part of a step at a batch of 64 that does not grow with the batch, where the guide has one
// batch or none. It has 0.123 for ResNet-50, 0.110 for ResNet-152, 0.109 for Inception-v3, and
// 0.069 for VGG-16.
constexpr double kFixedShare = 0.11;

// Holds images a second at a batch of 64 of networks without a published speed, and how they were
// estimated. The guide's speeds are 0.90 * 10^12 multiply-adds a second for ResNet-50, 1.06 for
// ResNet-152, 0.81 for Inception-v3, and 2.38 for VGG-16, whose convolutions are all of 3 x 3.
struct Estimated {
  const char* network;
  double images_per_s;
  const char* why;
};
constexpr const char* kLikeInception = "estimated: multiply-adds at Inception-v3's rate";
constexpr const char* kLikeBoth =
    "estimated: multiply-adds at the mean rate of ResNet-50 and VGG-16";
// Depthwise convolutions were slower for each multiply-add than dense ones on GPUs of that time.
constexpr const char* kSeparable = "assumed: multiply-adds at half of Inception-v3's rate";
constexpr Estimated kEstimated[] = {
    {"resnet18", 914, kLikeBoth},
    {"resnet34", 457, kLikeBoth},
    {"resnet101", 129, "estimated: multiply-adds at the mean rate of ResNet-50 and ResNet-152"},
    {"googlenet-aux", 540, kLikeInception},
    {"googlenet-no-aux", 540, kLikeInception},
    {"mobilenet1", 712, kSeparable},
    {"nasnet-large", 17, kSeparable},
};

Compute from(const Published& known) {
  Compute compute;
  compute.is_published = true;
  compute.usual_batch = known.batch;
  compute.source = kGuide;
  const double large_ms = known.batch / known.images_per_s * 1e3;
  if (known.at_32) {
    const double small_ms = 32 / *known.at_32 * 1e3;
    compute.per_image_ms = (large_ms - small_ms) / (known.batch - 32);
    compute.fixed_ms = large_ms - compute.per_image_ms * known.batch;
  } else {
    const double fixed_images = kFixedShare / (1 - kFixedShare) * 64;
    compute.per_image_ms = large_ms / (known.batch + fixed_images);
    compute.fixed_ms = compute.per_image_ms * fixed_images;
  }
  return compute;
}

Compute from(const Estimated& estimated) {
  Compute compute;
  compute.source = estimated.why;
  const double step_ms = 64 / estimated.images_per_s * 1e3;
  compute.fixed_ms = kFixedShare * step_ms;
  compute.per_image_ms = (1 - kFixedShare) * step_ms / 64;
  return compute;
}

}  // namespace

const Compute& compute_on_p100(std::string_view network) {
  static const std::map<std::string, Compute, std::less<>> all = [] {
    std::map<std::string, Compute, std::less<>> table;
    for (const Published& each : kPublished) table.emplace(each.network, from(each));
    for (const Estimated& each : kEstimated) table.emplace(each.network, from(each));
    return table;
  }();
  const auto found = all.find(network);
  if (found == all.end()) {
    throw std::invalid_argument("no compute time is known of '" + std::string(network) + "'");
  }
  return found->second;
}

}  // namespace rueda::bench
