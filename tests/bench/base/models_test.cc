#include "bench/base/models.h"

#include <set>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

// The parameter counts are those published with torchvision's weights.
TEST(ModelsTest, ResNet50) {
  EXPECT_EQ(resnet50().size(), 161u);
  EXPECT_EQ(total_elements(resnet50()), 25'557'032);
}

TEST(ModelsTest, Vgg16) {
  EXPECT_EQ(vgg16().size(), 32u);
  EXPECT_EQ(total_elements(vgg16()), 138'357'544);
  EXPECT_EQ(vgg16()[4].name, "features.5.weight");
  EXPECT_EQ(vgg16()[24].name, "features.28.weight");
}

TEST(ModelsTest, GoogLeNetWithAuxiliaries) {
  EXPECT_EQ(googlenet_aux().size(), 187u);
  EXPECT_EQ(total_elements(googlenet_aux()), 13'004'888);
}

TEST(ModelsTest, Small1000) {
  EXPECT_EQ(model_by_name("small1000")->size(), 1000u);
  for (const Parameter& parameter : small(1000)) EXPECT_EQ(parameter.elements() * 4, 1024);
}

TEST(ModelsTest, ShapesOfTheFirstAndLastLayers) {
  EXPECT_EQ(resnet50().front().shape, (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(resnet50().back().shape, (std::vector<int64_t>{1000}));
  EXPECT_EQ(resnet50()[159].shape, (std::vector<int64_t>{1000, 2048}));
}

TEST(ModelsTest, NamesAreUniqueAndFitTheLibrary) {
  for (const std::string& model : model_names()) {
    const auto parameters = model_by_name(model);
    ASSERT_TRUE(parameters);
    std::set<std::string> names;
    for (const Parameter& parameter : *parameters) {
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
      EXPECT_LT(parameter.name.size(), 200u);
    }
  }
  EXPECT_FALSE(model_by_name("alexnet"));
  EXPECT_FALSE(model_by_name("googlenet"));  // with or without auxiliary classifiers?
}

}  // namespace
}  // namespace rueda::bench
