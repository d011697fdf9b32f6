#include "tests/sim/setup/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::sim {
namespace {

using testing::ElementsAre;

constexpr SegmentResult kOfSix{Epoch{1}, 6};
constexpr SegmentResult kOfFour{Epoch{2}, 4};

TEST(SegmentTally, ATensorIsCompleteWithItsLastSegment) {
  SegmentTally tally(3, MixedEpochs::kRefuse);
  EXPECT_FALSE(tally.complete(2, kOfSix));
  EXPECT_FALSE(tally.complete(0, kOfSix));
  const auto tensor = tally.complete(1, kOfSix);
  ASSERT_TRUE(tensor);
  EXPECT_FALSE(tensor->mixed);
  EXPECT_FALSE(tensor->refused);
}

TEST(SegmentTally, SegmentsOfTwoEpochsAreRefusedUnlessAskedFor) {
  for (const MixedEpochs policy : {MixedEpochs::kRefuse, MixedEpochs::kAverage}) {
    SegmentTally tally(2, policy);
    EXPECT_FALSE(tally.complete(1, kOfFour));
    const auto tensor = tally.complete(0, kOfSix);
    ASSERT_TRUE(tensor);
    EXPECT_TRUE(tensor->mixed);
    EXPECT_EQ(tensor->refused, policy == MixedEpochs::kRefuse);
    EXPECT_THAT(tensor->segments, ElementsAre(kOfSix, kOfFour)) << "each with its own divisor";
  }
}

TEST(SegmentTally, ATensorOfOneSegmentIsNeverMixed) {
  EXPECT_FALSE(SegmentTally(1, MixedEpochs::kRefuse).complete(0, kOfFour)->mixed);
}

TEST(SegmentTallyDeathTest, ASegmentThatCompletesTwiceIsOurBug) {
  SegmentTally tally(2, MixedEpochs::kRefuse);
  EXPECT_FALSE(tally.complete(0, kOfSix));
  EXPECT_DEATH((void)tally.complete(0, kOfSix), "segments_");
}

}  // namespace
}  // namespace rueda::sim
