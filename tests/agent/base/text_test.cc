#include "agent/base/text.h"

#include <gtest/gtest.h>

namespace rueda::agent {
namespace {

TEST(Text, AFileIsReadWhole) {
  EXPECT_NE(contents_of("/proc/self/stat").find(" (agent_test) "), std::string::npos);
  EXPECT_EQ(contents_of("/proc/self/no such file"), "");
}

// A process ended while what it left was looked for, and the launcher with it: its stream threw.
TEST(Text, WhatCannotBeReadIsNoException) { EXPECT_EQ(contents_of("/proc/self/mem"), ""); }

}  // namespace
}  // namespace rueda::agent
