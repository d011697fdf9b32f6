#include "daemon/session/server/listener.h"

#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/session/raw_client.h"
#include "tests/support/temporary_folder.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
  const testing_support::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  const std::string path_ = directory_ + "/d.sock";
};

TEST_F(ListenerTest, EverybodyMayConnectAndTheFileGoes) {
  {
    Result<ListeningSocket> socket = ListeningSocket::open(path_);
    ASSERT_TRUE(socket.is_ok()) << socket.status().to_string();
    struct stat info {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666u);
    RawClient client(path_);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ListenerTest, LiveSocketIsAnError) {
  Result<ListeningSocket> first = ListeningSocket::open(path_);
  ASSERT_TRUE(first.is_ok());
  Result<ListeningSocket> second = ListeningSocket::open(path_);
  ASSERT_FALSE(second.is_ok());
  EXPECT_THAT(second.status().message(), HasSubstr("another daemon listens on " + path_));
  RawClient client(path_);
}

TEST_F(ListenerTest, LiveAbstractNameIsAnError) {
  std::string name = "@rueda-listener-" + std::to_string(::getpid());
  Result<ListeningSocket> first = ListeningSocket::open(name);
  ASSERT_TRUE(first.is_ok());
  EXPECT_THAT(ListeningSocket::open(name).status().message(), HasSubstr("another daemon"));
}

TEST_F(ListenerTest, StaleSocketIsReplaced) {
  {
    Result<ListeningSocket> dead = ListeningSocket::open(path_);
    ASSERT_TRUE(dead.is_ok());
    // A killed daemon leaves a file with nobody behind it.
    std::filesystem::rename(path_, path_ + ".kept");
  }
  std::filesystem::rename(path_ + ".kept", path_);
  Result<ListeningSocket> socket = ListeningSocket::open(path_);
  ASSERT_TRUE(socket.is_ok()) << socket.status().to_string();
  RawClient client(path_);
}

TEST_F(ListenerTest, OtherFilesAreLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(ListeningSocket::open(path_).status().message(), HasSubstr("is not a socket"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ListenerTest, FileOfASuccessorIsLeftAlone) {
  Result<ListeningSocket> first = ListeningSocket::open(path_);
  ASSERT_TRUE(first.is_ok());
  {
    std::optional<ListeningSocket> moved(std::move(first).value());
    std::filesystem::rename(path_, path_ + ".old");
    std::ofstream(path_) << "successor";
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ListenerTest, MissingDirectoryIsNamedWithTheRemedy) {
  Status status = ListeningSocket::open(directory_ + "/none/d.sock").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("mkdir -p " + directory_ + "/none"));
}

TEST_F(ListenerTest, ImpossiblePaths) {
  for (const std::string& path : {std::string(), std::string("@"), std::string(108, 'x')}) {
    EXPECT_EQ(ListeningSocket::open(path).status().code(), Code::kInvalidArgument) << path;
  }
}

}  // namespace
}  // namespace rueda::session
