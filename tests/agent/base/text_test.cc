#include "agent/base/text.h"

#include <gtest/gtest.h>

namespace rueda::agent {
namespace {

TEST(Text, AFileIsReadWhole) {
  EXPECT_NE(contents_of("/proc/self/stat").find(" (agent_test) "), std::string::npos);
  EXPECT_EQ(contents_of("/proc/self/no such file"), "");
}

// contents_of() once threw when a process ended while its leftovers were looked for, and that ended
// the launcher.
TEST(Text, WhatCannotBeReadIsNoException) { EXPECT_EQ(contents_of("/proc/self/mem"), ""); }

}  // namespace
}  // namespace rueda::agent
