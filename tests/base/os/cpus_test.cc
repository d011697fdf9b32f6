#include "daemon/base/os/cpus.h"

#include <thread>

#include <gtest/gtest.h>

namespace rueda {
namespace {

using Cpus = std::vector<int>;

TEST(Cpus, AreReadAsLinuxWritesThem) {
  EXPECT_EQ(parse_cpus("0").value(), Cpus({0}));
  EXPECT_EQ(parse_cpus("8,0-3").value(), Cpus({0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpus("2-2,1-3").value(), Cpus({1, 2, 3}));
  EXPECT_EQ(parse_cpus(to_string({0, 5, 1023})).value(), Cpus({0, 5, 1023}));
}

TEST(Cpus, WhatIsNoSetIsNamed) {
  for (const char* text :
       {"", " ", ",", "1,", "-1", "1-", "3-1", "a", "1;2", "1024", "0-1024", "99999999999", "1 "}) {
    const auto cpus = parse_cpus(text);
    ASSERT_FALSE(cpus.is_ok()) << text;
    EXPECT_NE(cpus.status().message().find('"' + std::string(text) + '"'), std::string::npos);
  }
}

TEST(Cpus, SharesTakeAllOfThem) {
  EXPECT_EQ(share_of({4, 5, 6, 7, 9}, 0, 2), Cpus({4, 5}));
  EXPECT_EQ(share_of({4, 5, 6, 7, 9}, 1, 2), Cpus({6, 7, 9}));
  EXPECT_EQ(share_of({4, 5}, 1, 2), Cpus({5}));
  EXPECT_EQ(share_of({4, 5}, 0, 3), Cpus());
}

TEST(Cpus, AThreadKeepsToThoseThatItIsGiven) {
  std::thread([] {
    const int last = allowed_cpus().back();
    ASSERT_TRUE(keep_to_cpus({last}).is_ok());
    EXPECT_EQ(allowed_cpus(), Cpus({last}));
    std::thread([last] { EXPECT_EQ(allowed_cpus(), Cpus({last})); }).join();
  }).join();
}

TEST(Cpus, ThoseThatAreNotThereAreNamed) {
  const Status status = keep_to_cpus({1023});
  ASSERT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("1023"), std::string::npos);
}

}  // namespace
}  // namespace rueda
