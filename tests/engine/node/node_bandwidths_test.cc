#include "daemon/engine/node/node_bandwidths.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

core::Layout layout_of(const std::vector<std::string>& ids) {
  std::vector<core::LayoutNode> nodes;
  for (size_t i = 0; i < ids.size(); ++i) {
    nodes.push_back({ids[i], "host:1", {Rank{static_cast<int32_t>(i)}}});
  }
  return core::Layout::make(std::move(nodes)).value();
}

const NodeBandwidths kThree{{"a", "b", "c"}, {{0, 12, 13}, {21, 0, 23}, {31, 0, 0}}};

TEST(NodeBandwidths, AreThoseOfALayoutInItsOrder) {
  EXPECT_EQ(kThree.of(layout_of({"c", "a"})).value(), (core::Bandwidths{{0, 31}, {13, 0}}));
  EXPECT_EQ(kThree.of(layout_of({"b"})).value(), core::Bandwidths{{0}});
}

TEST(NodeBandwidths, ANodeThatWasNotMeasuredIsNamed) {
  const Status status = kThree.of(layout_of({"a", "z"})).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("node z"));
}

TEST(NodeBandwidths, WhereNothingCameThrough) {
  EXPECT_THAT(kThree.unreachable(), ElementsAre(Pair("c", "b")));
  EXPECT_THAT(NodeBandwidths{}.unreachable(), IsEmpty());
}

TEST(NodeBandwidths, WhatCannotBeIsRefused) {
  EXPECT_TRUE(check(kThree).is_ok());
  const NodeBandwidths wrong[] = {
      {{"a", "a"}, {{0, 1}, {1, 0}}},   {{"a", "b"}, {{0, 1}}},
      {{"a", "b"}, {{0}, {1, 0}}},      {{"a", "b"}, {{0, -1}, {1, 0}}},
      {{"a", "b"}, {{0, 1}, {NAN, 0}}},
  };
  for (const NodeBandwidths& one : wrong) EXPECT_EQ(check(one).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rueda::engine
