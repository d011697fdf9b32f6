// Tests what becomes of a declared plan before it goes to the daemon.

#include "client/src/request/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/dtype.h"

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

class DescribePlan : public ::testing::Test {
 protected:
  rueda_planned_tensor planned(const char* name) {
    rueda_planned_tensor one{};
    one.tensor.name = name;
    one.tensor.shape = &elements_;
    one.tensor.ndim = 1;
    one.tensor.dtype = RUEDA_FLOAT32;
    return one;
  }

  const int64_t elements_ = 5;
};

TEST_F(DescribePlan, ATensorIsOfTheMemoryThatItWillBeIn) {
  std::vector<rueda_planned_tensor> plan{planned("here"), planned("there")};
  plan[1].is_on_device = 1;
  const Result<std::vector<TensorRequest>> described = describe_plan(plan);
  ASSERT_TRUE(described.is_ok()) << described.status().message();
  EXPECT_EQ(described.value()[0].descriptor.memory, static_cast<uint32_t>(MemorySpace::kHost));
  EXPECT_EQ(described.value()[1].descriptor.memory, static_cast<uint32_t>(MemorySpace::kDevice));
}

TEST_F(DescribePlan, MemoryThatCannotBeIsNamed) {
  std::vector<rueda_planned_tensor> plan{planned("w")};
  for (const int32_t wrong : {2, -1}) {
    plan[0].is_on_device = wrong;
    EXPECT_THAT(describe_plan(plan).status().message(),
                HasSubstr("tensor \"w\" is neither in host memory (is_on_device 0)"));
  }
  rueda_reduce_options adasum{};
  adasum.struct_bytes = sizeof(adasum);
  adasum.op = RUEDA_ADASUM;
  adasum.prescale = adasum.postscale = 1;
  plan[0].options = &adasum;
  plan[0].is_on_device = 0;
  EXPECT_TRUE(describe_plan(plan).is_ok());
  plan[0].is_on_device = 1;
  EXPECT_THAT(describe_plan(plan).status().message(), HasSubstr("reduce it in host memory"));
}

}  // namespace
}  // namespace rueda::client
