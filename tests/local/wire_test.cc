#include "daemon/local/wire.h"

#include <set>

#include <gtest/gtest.h>

#include "daemon/security/policy.h"

namespace rueda::local {
namespace {

TEST(Wire, HeadersAreThoseOfTheDocument) {
  const std::string frame = make_frame(Method::kListJobs, "abc");
  EXPECT_EQ(frame, std::string("RUDG\x01\x01\x04\x00\x03\x00\x00\x00\x00\x00\x00\x00"
                               "abc",
                               19));
  const auto header = encode({Kind::kStatus, 0x1234, 0x01020304});
  EXPECT_EQ(std::string(header.data(), header.size()),
            std::string("RUDG\x01\x04\x34\x12\x04\x03\x02\x01\x00\x00\x00\x00", 16));
}

TEST(Wire, WhatIsEncodedIsDecoded) {
  for (const Kind kind : {Kind::kCall, Kind::kMessage, Kind::kEnd, Kind::kStatus}) {
    for (const uint32_t bytes : {0u, 1u, 0xffu, 0xffffu, 0xffffffffu}) {
      const auto encoded = encode({kind, 0xfedc, bytes});
      const Result<Header> header = decode({encoded.data(), encoded.size()});
      ASSERT_TRUE(header.is_ok());
      EXPECT_EQ(header.value().kind, kind);
      EXPECT_EQ(header.value().code, 0xfedc);
      EXPECT_EQ(header.value().bytes, bytes);
    }
  }
}

TEST(Wire, WhatIsNoFrameIsRefused) {
  const std::string good = make_frame(Method::kDescribe, "");
  EXPECT_EQ(decode(good.substr(0, 15)).status().code(), Code::kInvalidArgument);
  for (const size_t at : {0, 1, 2, 3, 12, 13, 14, 15}) {
    std::string bad = good;
    bad[at] = '\x7f';
    EXPECT_EQ(decode(bad).status().code(), Code::kInvalidArgument) << at;
  }
  for (const char kind : {'\x00', '\x05', '\xff'}) {
    std::string bad = good;
    bad[5] = kind;
    EXPECT_EQ(decode(bad).status().code(), Code::kInvalidArgument) << int{kind};
  }
}

// What follows the version may be different in another one.
TEST(Wire, AnotherVersionIsNamedBeforeAllElse) {
  std::string other = make_frame(Method::kDescribe, "");
  other[4] = '\x07';
  other[5] = '\x7f';
  other[15] = '\x01';
  EXPECT_EQ(decode(other).status().code(), Code::kVersion);
  EXPECT_EQ(decode(other).status().message(), "7");
}

TEST(Wire, StatusesHaveTextsOfBoundedLength) {
  const std::string frame =
      make_frame(CallStatus{CallCode::kNotFound, std::string(kMaxTextBytes + 1, 'x')});
  EXPECT_EQ(frame.size(), kHeaderBytes + kMaxTextBytes);
  const CallStatus status = status_of(decode(frame).value(), frame.substr(kHeaderBytes));
  EXPECT_EQ(status.code, CallCode::kNotFound);
  EXPECT_EQ(status.text, std::string(kMaxTextBytes, 'x'));
}

// Each method has its line in the table of callers and actions, under the same name.
TEST(Wire, MethodsAreThoseOfTheServicesAtTheSocket) {
  std::set<std::string_view> names;
  for (const security::Rule& rule : security::rules()) {
    if (rule.method.starts_with("rueda.v1.Admin/") || rule.method.starts_with("rueda.v1.Agent/")) {
      names.insert(rule.method);
      ASSERT_TRUE(find_method(rule.method)) << rule.method;
      EXPECT_EQ(name_of(*find_method(rule.method)), rule.method);
    } else {
      EXPECT_FALSE(find_method(rule.method)) << rule.method;
    }
  }
  EXPECT_EQ(names.size(), kMethods);
  EXPECT_EQ(name_of(static_cast<Method>(0)), "");
  EXPECT_EQ(name_of(static_cast<Method>(kMethods + 1)), "");
  EXPECT_EQ(max_request_bytes(Method::kRun), size_t{4} << 20) << "a plan takes 3 MiB";
  EXPECT_EQ(max_request_bytes(Method::kEndJob), size_t{64} << 10);
}

}  // namespace
}  // namespace rueda::local
