#include "bench/base/models.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "bench/base/compute.h"

namespace rueda::bench {
namespace {

ParameterList network(const char* name) { return model_by_name(name).value(); }

struct Known {
  const char* name;
  size_t tensors;
  int64_t parameters;
  double giga_multiply_adds;
};

// Parameters are those published with torchvision's weights (Inception-v3 without its auxiliary
// classifier), and with Keras's for MobileNet and NASNet; multiply-adds are the papers', which
// leave some layers out, and torchvision's.
constexpr Known kKnown[] = {
    {"resnet18", 62, 11'689'512, 1.82},        {"resnet34", 110, 21'797'672, 3.67},
    {"resnet50", 161, 25'557'032, 4.09},       {"resnet101", 314, 44'549'160, 7.80},
    {"resnet152", 467, 60'192'808, 11.51},     {"googlenet-aux", 187, 13'004'888, 1.5},
    {"googlenet-no-aux", 173, 6'624'904, 1.5}, {"inception3", 284, 23'834'568, 5.71},
    {"vgg16", 32, 138'357'544, 15.47},         {"alexnet", 16, 61'100'840, 0.71},
    {"mobilenet1", 83, 4'231'976, 0.569},      {"nasnet-large", 1018, 88'753'150, 23.8},
};

TEST(ModelsTest, NetworksHaveThePublishedSizes) {
  EXPECT_EQ(network_names().size(), std::size(kKnown));
  for (const Known& known : kKnown) {
    const ParameterList parameters = network(known.name);
    EXPECT_EQ(parameters.size(), known.tensors) << known.name;
    EXPECT_EQ(total_elements(parameters), known.parameters) << known.name;
    EXPECT_NEAR(static_cast<double>(total_multiply_adds(parameters)) / 1e9,
                known.giga_multiply_adds, 0.02 * known.giga_multiply_adds)
        << known.name;
  }
}

TEST(ModelsTest, VggHasTorchvisionsNames) {
  EXPECT_EQ(network("vgg16")[4].name, "features.5.weight");
  EXPECT_EQ(network("vgg16")[24].name, "features.28.weight");
}

TEST(ModelsTest, Small1000) {
  EXPECT_EQ(network("small1000").size(), 1000u);
  for (const ParameterList list = network("small1000"); const Parameter& parameter : list) {
    EXPECT_EQ(parameter.elements() * 4, 1024);
  }
}

TEST(ModelsTest, ShapesOfTheFirstAndLastLayers) {
  EXPECT_EQ(network("resnet50").front().shape, (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(network("resnet50").back().shape, (std::vector<int64_t>{1000}));
  EXPECT_EQ(network("resnet50")[159].shape, (std::vector<int64_t>{1000, 2048}));
}

// The last layer's gradient is there first, right after the forward pass, and the first layer's at
// the end of the step.
TEST(ModelsTest, GradientsAreReadyFromTheLastLayerToTheFirst) {
  for (const char* name : {"resnet50", "vgg16", "nasnet-large", "small10"}) {
    const std::vector<double> shares = ready_shares(network(name));
    EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend())) << name;
    EXPECT_GE(shares.back(), 1.0 / 3) << name;
    EXPECT_NEAR(shares.front(), 1.0, 1e-9) << name;
  }
  // Nine tenths of VGG-16's parameters are in the layers behind the convolutions, which are a
  // hundredth of its work.
  const std::vector<double> shares = ready_shares(network("vgg16"));
  EXPECT_LT(shares[26], 1.0 / 3 + 0.01);
}

TEST(ComputeTest, PublishedSpeedsAreReturned) {
  EXPECT_NEAR(compute_on_p100("resnet50").images_per_s(64), 219, 0.01);
  EXPECT_NEAR(compute_on_p100("resnet50").images_per_s(32), 195, 0.01);
  EXPECT_NEAR(compute_on_p100("vgg16").images_per_s(32), 144, 0.01);
  EXPECT_NEAR(compute_on_p100("alexnet").images_per_s(512), 2987, 0.01);
}

TEST(ComputeTest, EveryNetworkHasATimeWithASource) {
  for (const std::string& name : network_names()) {
    const Compute& compute = compute_on_p100(name);
    EXPECT_GT(compute.fixed_ms, 0) << name;
    EXPECT_GT(compute.per_image_ms, 0) << name;
    EXPECT_FALSE(compute.source.empty()) << name;
    // Twice the batch takes longer, but not twice as long.
    EXPECT_GT(compute.step_ms(128), 1.7 * compute.step_ms(64)) << name;
    EXPECT_LT(compute.step_ms(128), 2.0 * compute.step_ms(64)) << name;
  }
  EXPECT_THROW(compute_on_p100("resnet51"), std::invalid_argument);
}

double giga_per_s(const char* name) {
  const Compute& compute = compute_on_p100(name);
  return compute.images_per_s(compute.usual_batch) *
         static_cast<double>(total_multiply_adds(network(name))) / 1e9;
}

// What is estimated is what its source says.
TEST(ComputeTest, EstimatesFollowMultiplyAdds) {
  const double inception = giga_per_s("inception3");
  EXPECT_NEAR(giga_per_s("googlenet-no-aux"), inception, 0.05 * inception);
  EXPECT_NEAR(giga_per_s("mobilenet1"), inception / 2, 0.05 * inception);
  EXPECT_NEAR(giga_per_s("nasnet-large"), inception / 2, 0.05 * inception);
  const double both = (giga_per_s("resnet50") + giga_per_s("vgg16")) / 2;
  EXPECT_NEAR(giga_per_s("resnet18"), both, 0.05 * both);
  const double neighbours = (giga_per_s("resnet50") + giga_per_s("resnet152")) / 2;
  EXPECT_NEAR(giga_per_s("resnet101"), neighbours, 0.05 * neighbours);
}

TEST(ModelsTest, NamesAreUniqueAndFitTheLibrary) {
  for (const std::string& model : network_names()) {
    const auto parameters = model_by_name(model);
    ASSERT_TRUE(parameters);
    std::set<std::string> names;
    for (const Parameter& parameter : *parameters) {
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
      EXPECT_LT(parameter.name.size(), 200u);
    }
  }
  EXPECT_FALSE(model_by_name("resnet51"));
  EXPECT_FALSE(model_by_name("googlenet"));  // with or without auxiliary classifiers?
}

}  // namespace
}  // namespace rueda::bench
