#include "daemon/base/principal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda {
namespace {

using ::testing::HasSubstr;

TEST(Principal, IsItsNameOrItsUser) {
  const SocketPlace named{"/run/a.sock", "team-a"};
  EXPECT_EQ(principal_at(named, 0), principal_at(named, 1000));
  EXPECT_EQ(principal_at(named, 0).to_string(), "principal team-a");
  const SocketPlace unnamed{"/run/b.sock", ""};
  EXPECT_NE(principal_at(unnamed, 0), principal_at(unnamed, 1000));
  EXPECT_EQ(principal_at(unnamed, 1000).to_string(), "user 1000");
  EXPECT_NE(Principal::named("1000"), Principal::user(1000));
  EXPECT_NE(Principal::named("1000").label(), Principal::user(1000).label());
}

TEST(Principal, RootReachesAllAndRootAtANamedSocketDoesNot) {
  const Principal root = Principal::user(0);
  const Principal ada = Principal::user(1000);
  const Principal team = principal_at({"@a", "team-a"}, 0);
  const Principal others = principal_at({"@b", "team-b"}, 0);
  for (const Principal& owner : {root, ada, team}) EXPECT_TRUE(root.reaches(owner));
  EXPECT_TRUE(ada.reaches(ada));
  EXPECT_TRUE(team.reaches(team));
  EXPECT_FALSE(ada.reaches(root));
  EXPECT_FALSE(ada.reaches(team));
  for (const Principal& owner : {root, ada, others, Principal()}) EXPECT_FALSE(team.reaches(owner));
  EXPECT_FALSE(Principal().reaches(ada)) << "nobody";
}

TEST(Sockets, HaveANameBehindTheLastEqualsSign) {
  const auto parsed = [](const char* text) { return parse_socket(text).value(); };
  EXPECT_EQ(parsed("/run/r.sock"), (SocketPlace{"/run/r.sock", ""}));
  EXPECT_EQ(parsed("@abstract"), (SocketPlace{"@abstract", ""}));
  EXPECT_EQ(parsed("/run/r.sock=team-a"), (SocketPlace{"/run/r.sock", "team-a"}));
  EXPECT_EQ(parsed("@x=9.b"), (SocketPlace{"@x", "9.b"}));
  EXPECT_EQ(parsed("/run/a=b/r.sock"), (SocketPlace{"/run/a=b/r.sock", ""}));
  EXPECT_EQ(parsed("/run/a=b.sock=c"), (SocketPlace{"/run/a=b.sock", "c"}));
}

// A name with a mistake in it would else be a part of the path of a socket without a name, at which
// root is an operator.
TEST(Sockets, AWrongNameIsNoPartOfThePath) {
  const std::string long_name(64, 'x');
  for (const std::string& name :
       {std::string(), std::string("Team"), std::string("a_b"), std::string("a b"), long_name}) {
    const auto refused = parse_socket("/run/r.sock=" + name);
    ASSERT_FALSE(refused.is_ok()) << name;
    EXPECT_THAT(refused.status().message(),
                HasSubstr("\"" + name + "\" cannot be the name of a socket's principal"));
  }
}

}  // namespace
}  // namespace rueda
