#include "tests/sim/scenario/scenario_grammar.h"

#include <gtest/gtest.h>

namespace rueda::sim {
namespace {

TEST(Phrases, WordsAreSplitAtBlanksAndKeptByQuotes) {
  EXPECT_EQ(split_words("  a  \"b c\"d # e"), (Words{"a", "b c", "d"}));
  EXPECT_EQ(split_words("# nothing"), Words{});
}

TEST(Phrases, CapitalsStandForSomething) {
  const auto args = match("RANKS submits NAMES with NUMBER elements",
                          split_words("every rank submits a b with 9 elements"));
  ASSERT_TRUE(args);
  EXPECT_EQ(*args, (std::vector<Words>{{"every", "rank"}, {"a", "b"}, {"9"}}));
  EXPECT_TRUE(match("NODES completes NUMBER", split_words("n12 completes 3")));
}

TEST(Phrases, WhatDoesNotFitDoesNotMatch) {
  EXPECT_FALSE(match("NODE dies", split_words("every node dies")));
  EXPECT_FALSE(match("NODE dies", split_words("n1 dies twice")));
  EXPECT_FALSE(match("RANKS leaves", split_words("rank x leaves")));
  EXPECT_FALSE(match("RANKS submits NAMES", split_words("rank 1 submits")));
}

}  // namespace
}  // namespace rueda::sim
