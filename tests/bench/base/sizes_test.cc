#include "bench/base/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

using testing::ElementsAre;

TEST(ParseSizeTest, Suffixes) {
  EXPECT_EQ(parse_size("0")->value, 0u);
  EXPECT_EQ(parse_size("13")->value, 13u);
  EXPECT_EQ(parse_size("4K")->value, 4096u);
  EXPECT_EQ(parse_size("4k")->value, 4096u);
  EXPECT_EQ(parse_size("64M")->value, 64u << 20);
  EXPECT_EQ(parse_size("2G")->value, uint64_t{2} << 30);
  EXPECT_FALSE(parse_size("64M")->elements);
  EXPECT_TRUE(parse_size("13e")->elements);
}

TEST(ParseSizeTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "4KB", "4 K", "1.5M", "0x10", "4T", "4E",
                           "99999999999999999999", "17179869184G"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(ParseSizeTest, WholeElements) {
  EXPECT_EQ(parse_size("13")->bytes(4), 12u);
  EXPECT_EQ(parse_size("13e")->bytes(4), 52u);
  EXPECT_EQ(parse_size("3")->bytes(4), 0u);
}

TEST(SizeLadderTest, MultipliesUpToTheEnd) {
  EXPECT_THAT(size_ladder(4096, 65536, 4, 4), ElementsAre(4096, 16384, 65536));
  EXPECT_THAT(size_ladder(4096, 65535, 4, 4), ElementsAre(4096, 16384));
  EXPECT_THAT(size_ladder(8, 8, 2, 4), ElementsAre(8));
}

TEST(SizeLadderTest, FromZeroTheNextIsOneElement) {
  EXPECT_THAT(size_ladder(0, 64, 4, 4), ElementsAre(0, 4, 16, 64));
  EXPECT_THAT(size_ladder(0, 64, 4, 8), ElementsAre(0, 8, 32));
  EXPECT_THAT(size_ladder(0, 0, 4, 4), ElementsAre(0));
}

TEST(SizeLadderTest, RoundsDownWithoutRepetitions) {
  EXPECT_THAT(size_ladder(9, 40, 2, 8), ElementsAre(8, 16, 32));
  EXPECT_THAT(size_ladder(1, 16, 2, 8), ElementsAre(0, 8, 16));
}

TEST(SizeLadderTest, EndsNearTheLargestNumber) {
  const uint64_t huge = ~uint64_t{0};
  EXPECT_EQ(size_ladder(huge / 2, huge, 4, 1).size(), 1u);
}

TEST(DefaultIterationsTest, FewerForLargerSizes) {
  EXPECT_GT(default_iterations(4096), default_iterations(1 << 20));
  EXPECT_GT(default_iterations(1 << 20), default_iterations(64 << 20));
}

}  // namespace
}  // namespace rueda::bench
