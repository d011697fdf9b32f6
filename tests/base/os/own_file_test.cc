#include "daemon/base/os/own_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace rueda {
namespace {

class OwnFileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ + '/' + name; }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const testing_support::TemporaryFolder kept_folder_;
  const std::string folder_ = kept_folder_.path();
};

TEST_F(OwnFileTest, IsMadeAndEmptied) {
  std::ofstream(path("file")) << "old, and longer";
  const Status written = write_own_file(path("file"), "new");
  ASSERT_TRUE(written.is_ok()) << written.message();
  EXPECT_EQ(text_of(path("file")), "new");
  EXPECT_TRUE(open_own_file(path("other")).is_ok());
  EXPECT_FALSE(open_own_file(path("no/such")).is_ok());
  EXPECT_FALSE(open_own_file(folder_).is_ok());
  EXPECT_TRUE(open_own_file("/dev/null").is_ok());
}

TEST_F(OwnFileTest, OwnLinksAreFollowedAndThoseOfOthersAreNot) {
  std::ofstream(path("secret")) << "mine";
  ASSERT_EQ(::symlink(path("secret").c_str(), path("link").c_str()), 0);
  if (::geteuid() == 0) {  // only root can make a file of another user
    ASSERT_EQ(::lchown(path("link").c_str(), 1234, 1234), 0);
    const Status refused = open_own_file(path("link")).status();
    EXPECT_NE(refused.message().find("symbolic link"), std::string::npos) << refused.message();
    EXPECT_EQ(text_of(path("secret")), "mine");
    ASSERT_EQ(::lchown(path("link").c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(open_own_file(path("link")).is_ok());
  EXPECT_EQ(text_of(path("secret")), "");
}

TEST_F(OwnFileTest, ReplacingLeavesWhatIsBesideAlone) {
  std::ofstream(path("secret")) << "mine";
  ASSERT_EQ(::symlink(path("secret").c_str(), path("plan.tmp").c_str()), 0);
  ASSERT_EQ(::symlink(path("secret").c_str(), path("plan").c_str()), 0);
  ASSERT_TRUE(replace_file(path("plan"), "text").is_ok());
  EXPECT_EQ(text_of(path("plan")), "text");
  EXPECT_FALSE(std::filesystem::is_symlink(path("plan"))) << "the link itself is replaced";
  EXPECT_EQ(text_of(path("secret")), "mine");
  EXPECT_FALSE(replace_file(path("no/such"), "text").is_ok());
  std::filesystem::create_directory(path("folder"));
  EXPECT_FALSE(replace_file(path("folder"), "text").is_ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    files += !entry.path().empty();
  EXPECT_EQ(files, 4u) << "nothing is left of what failed";
}

}  // namespace
}  // namespace rueda
