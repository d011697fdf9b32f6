#include "daemon/service/members/membership.h"

#include <gtest/gtest.h>

namespace rueda::service {
namespace {

TEST(StaticMembership, KnowsTheNodesOfItsList) {
  const auto parsed =
      StaticMembership::parse({"a=10.0.0.1:28400", "b=host.example:1", "c=[::1]:28400"});
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().address_of("a").value(), "10.0.0.1:28400");
  EXPECT_EQ(parsed.value().address_of("b").value(), "host.example:1");
  EXPECT_EQ(parsed.value().address_of("c").value(), "[::1]:28400");
  EXPECT_EQ(parsed.value().node_ids(), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(StaticMembership, AnUnknownNodeIsNamed) {
  const auto parsed = StaticMembership::parse({});
  ASSERT_TRUE(parsed.is_ok());
  const Status status = parsed.value().address_of("z").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(),
            "node z has no control address: neither the launcher gave one, nor is it in the "
            "daemon's --nodes");
}

TEST(StaticMembership, ABadEntryIsNamed) {
  for (const char* entry : {"", "a", "=h:1", "a=", "a=h", "a=h:", "a=:1", "a:1=h", ":", "="}) {
    const auto parsed = StaticMembership::parse({"ok=h:1", entry});
    ASSERT_FALSE(parsed.is_ok()) << entry;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(parsed.status().message(),
              "--nodes has \"" + std::string(entry) + "\"; write node_id=host:port");
  }
}

TEST(StaticMembership, ANodeTwiceIsNamed) {
  const auto parsed = StaticMembership::parse({"a=h:1", "a=h:2"});
  ASSERT_FALSE(parsed.is_ok());
  EXPECT_EQ(parsed.status().message(), "--nodes names node a twice");
}

}  // namespace
}  // namespace rueda::service
