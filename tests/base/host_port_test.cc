#include "daemon/base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(HostPort, AreWrittenAsPeopleDo) {
  EXPECT_EQ(parse_host_port("a.b:80"), (HostPort{"a.b", 80}));
  EXPECT_EQ(parse_host_port("[::1]:65535"), (HostPort{"::1", 65535}));
  EXPECT_EQ(parse_host_port("a:0"), (HostPort{"a", 0}));
  for (const char* wrong :
       {"", "a", ":80", "a:", "a:-1", "a:65536", "a:8x", "::1:80", "[::1:80", "[]:80", "a:80 "}) {
    EXPECT_FALSE(parse_host_port(wrong)) << wrong;
  }
  EXPECT_EQ(join_host_port("::1", 8), "[::1]:8");
  EXPECT_EQ(join_host_port("a", 8), "a:8");
}

TEST(HostPort, NothingButAHostAndAPortCanBeDialled) {
  EXPECT_EQ(parse_dial_address("node-1.example:28400").value(),
            (HostPort{"node-1.example", 28400}));
  EXPECT_EQ(parse_dial_address("[fe80::1%eth0]:1").value(), (HostPort{"fe80::1%eth0", 1}));
  // gRPC would take these names for schemes.
  EXPECT_EQ(parse_dial_address("unix:11").value(), (HostPort{"unix", 11}));
  EXPECT_EQ(parse_dial_address("dns:11").value(), (HostPort{"dns", 11}));
  for (const char* wrong : {"", "node", "node:0", "node:65536", "unix:/root-only.sock",
                            "unix-abstract:name", "dns:///a:1", "ipv4:10.0.0.1:80,10.0.0.2:80",
                            "xds:///a:1", "a b:1", "a/b:1", "a\n:1", "a,b:1"}) {
    const Result<HostPort> parsed = parse_dial_address(wrong);
    ASSERT_FALSE(parsed.is_ok()) << wrong;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.status().message(), HasSubstr("is not HOST:PORT")) << wrong;
  }
  EXPECT_FALSE(parse_dial_address(std::string(254, 'a') + ":1").is_ok());
}

TEST(HostPort, NumericHostsAreKnownWithoutAsking) {
  for (const char* host : {"127.0.0.1", "::1", "fe80::1%eth0"}) EXPECT_TRUE(is_numeric_host(host));
  for (const char* host : {"", "node", "localhost", "1.2.3", "10.0.0.1%x", "fe80::x"}) {
    EXPECT_FALSE(is_numeric_host(host)) << host;
  }
}

TEST(HostPort, GrpcIsGivenAddresses) {
  EXPECT_EQ(dial_target({"127.0.0.1", 80}).value(), "ipv4:127.0.0.1:80");
  EXPECT_EQ(dial_target({"::1", 80}).value(), "ipv6:[::1]:80");
  // The addresses are of one family, whatever addresses the name has.
  EXPECT_THAT(dial_target({"localhost", 80}).value(),
              AnyOf("ipv4:127.0.0.1:80", "ipv6:[::1]:80", "ipv6:[::1]:80,[::ffff:127.0.0.1]:80",
                    "ipv6:[::ffff:127.0.0.1]:80,[::1]:80"));
}

TEST(HostPort, WhereMachinesKeepWhatTheyTellThemselvesIsNotDialled) {
  for (const char* const host : {"169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254"}) {
    const Status status = dial_target({host, 80}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << host;
    EXPECT_THAT(status.message(), HasSubstr("is a link-local address, which is not dialled"));
  }
  EXPECT_TRUE(dial_target({"169.253.169.254", 80}).is_ok());
}

TEST(HostPort, AnUnknownNameIsNamed) {
  const Status status = dial_target({"no..such", 80}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("\"no..such\" is not known here ("));
}

}  // namespace
}  // namespace rueda
