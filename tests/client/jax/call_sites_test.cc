// Tests which calls of a name count as one place of a program.
#include "client/jax/call_sites.h"

#include <gtest/gtest.h>

namespace rueda::jax {
namespace {

constexpr char kText[] = "ab";  // two places

TEST(CallSites, APlaceThatALoopRunsAgainIsOnePlace) {
  CallSites sites;
  for (int turn = 0; turn < 3; ++turn) EXPECT_TRUE(sites.note("step.allreduce.1", &kText[0], 7));
}

TEST(CallSites, AnotherPlaceOfTheSameRunIsFound) {
  CallSites sites;
  EXPECT_TRUE(sites.note("step.allreduce.1", &kText[0], 7));
  EXPECT_FALSE(sites.note("step.allreduce.1", &kText[1], 7));
  EXPECT_FALSE(sites.note("step.allreduce.1", &kText[0], 7));
}

TEST(CallSites, AnotherProgramWithTheNameIsAnotherRun) {
  CallSites sites;
  EXPECT_TRUE(sites.note("step.allreduce.1", &kText[0], 7));
  EXPECT_TRUE(sites.note("step.allreduce.1", &kText[1], 8));
  EXPECT_TRUE(sites.note("step.allreduce.1", &kText[0], 9));
}

TEST(CallSites, OtherNamesAreOtherPlaces) {
  CallSites sites;
  EXPECT_TRUE(sites.note("step.allreduce.1", &kText[0], 7));
  EXPECT_TRUE(sites.note("step.allreduce.2", &kText[1], 7));
}

}  // namespace
}  // namespace rueda::jax
