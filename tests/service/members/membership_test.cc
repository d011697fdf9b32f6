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

TEST(StaticMembership, ABindingListIsAllThereIs) {
  const std::vector<std::string> entries{"a=10.0.0.1:28400", "b=host.example:1"};
  const auto open = StaticMembership::parse(entries);
  ASSERT_TRUE(open.is_ok());
  EXPECT_FALSE(open.value().is_binding());
  EXPECT_TRUE(open.value().check_dial("10.0.0.9:22").is_ok());
  const auto binding = StaticMembership::parse(entries, /*is_binding=*/true);
  ASSERT_TRUE(binding.is_ok());
  EXPECT_TRUE(binding.value().is_binding());
  EXPECT_EQ(binding.value().address_of("a").value(), "10.0.0.1:28400");
  const Status unknown = binding.value().address_of("z\n").status();
  EXPECT_EQ(unknown.code(), Code::kPermission);
  EXPECT_EQ(
      unknown.message(),
      "node z\\n is not in the daemon's --nodes, and with --dial nodes it knows no other: add "
      "it there");
  EXPECT_TRUE(binding.value().check_dial("host.example:1").is_ok());
  for (const char* address : {"10.0.0.1:28401", "10.0.0.9:22", "host.example:11", ""}) {
    const Status may = binding.value().check_dial(address);
    EXPECT_EQ(may.code(), Code::kPermission) << address;
    EXPECT_EQ(may.message(), "the address " + std::string(address) +
                                 " is not in the daemon's --nodes, and with --dial nodes it "
                                 "connects to no other: write it there as others tell it");
  }
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
