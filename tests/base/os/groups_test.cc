#include "daemon/base/os/groups.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/fd.h"

namespace rueda {
namespace {

TEST(Groups, AreFoundByNameAndNumber) {
  EXPECT_EQ(find_group("root").value(), 0u);
  EXPECT_EQ(find_group("54321").value(), 54'321u);
  const Status unknown = find_group("no-such-group").status();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(unknown.message(), testing::HasSubstr("groupadd no-such-group"));
}

TEST(Groups, BehindAConnectionAreThoseOfWhoHasMadeIt) {
  std::vector<gid_t> before(64);
  before.resize(static_cast<size_t>(::getgroups(static_cast<int>(before.size()), before.data())));
  std::vector<gid_t> many = before;
  for (gid_t group = 54'321; group < 54'421; ++group) many.push_back(group);
  if (::setgroups(many.size(), many.data()) != 0) GTEST_SKIP() << "only root joins groups";
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  ASSERT_EQ(::setgroups(before.size(), before.data()), 0);
  EXPECT_THAT(groups_behind(here.get()), testing::UnorderedElementsAreArray(many));
  EXPECT_TRUE(groups_behind(-1).empty());
}

}  // namespace
}  // namespace rueda
