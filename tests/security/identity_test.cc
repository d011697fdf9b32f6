#include "daemon/security/identity.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::security {
namespace {

using ::testing::HasSubstr;

TEST(Identity, ComesBackFromItsUri) {
  for (const Role role : {Role::kNode, Role::kOperator, Role::kMetrics}) {
    const Identity identity{"cluster.example.org", role, "gpu-07.rack_1"};
    const Result<Identity> read = parse_identity(to_uri(identity));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_EQ(read.value(), identity);
  }
  EXPECT_EQ(to_uri({"a", Role::kNode, "b"}), "spiffe://a/rueda/node/b");
}

TEST(Identity, WhatIsNoneIsRefusedWithTheReason) {
  const std::string long_name(64, 'n');
  const std::string long_domain(256, 'd');
  for (const auto& [uri, why] : {std::pair<std::string, const char*>{"", "does not begin so"},
                                 {"https://a/rueda/node/b", "does not begin so"},
                                 {"SPIFFE://a/rueda/node/b", "does not begin so"},
                                 {"spiffe://a", "no /rueda/"},
                                 {"spiffe://a/other/node/b", "no /rueda/"},
                                 {"spiffe://a/rueda/node", "no name"},
                                 {"spiffe://a/rueda/wheel/b", "no role"},
                                 {"spiffe://a/rueda/Node/b", "no role"},
                                 {"spiffe:///rueda/node/b", "trust domain"},
                                 {"spiffe://A/rueda/node/b", "trust domain"},
                                 {"spiffe://a:1/rueda/node/b", "trust domain"},
                                 {"spiffe://a@b/rueda/node/b", "trust domain"},
                                 {"spiffe://" + long_domain + "/rueda/node/b", "trust domain"},
                                 {"spiffe://a/rueda/node/", "a name"},
                                 {"spiffe://a/rueda/node/b/c", "a name"},
                                 {"spiffe://a/rueda/node/..", "a name"},
                                 {"spiffe://a/rueda/node/%62", "a name"},
                                 {"spiffe://a/rueda/node/b?c", "a name"},
                                 {"spiffe://a/rueda/node/b c", "a name"},
                                 {std::string("spiffe://a/rueda/node/b\0c", 25), "a name"},
                                 {"spiffe://a/rueda/node/" + long_name, "a name"},
                                 {"spiffe://a/rueda/node/" + std::string(2000, 'n'), "too long"}}) {
    const Result<Identity> read = parse_identity(uri);
    ASSERT_FALSE(read.is_ok()) << uri;
    EXPECT_THAT(read.status().message(), HasSubstr(why));
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace rueda::security
