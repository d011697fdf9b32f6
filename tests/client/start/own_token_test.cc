#include "client/src/start/own_token.h"

#include <cstdlib>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/os/sealed_text.h"

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class OwnTokenTest : public ::testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    ::unsetenv("RUEDA_JOB_TOKEN");
    ::unsetenv("RUEDA_JOB_TOKEN_FD");
  }
  // Gives this process a token of 32 bytes, each of which has these two digits, as ruedarun does.
  static int inherit(const std::string& digits) {
    std::string text;
    for (int i = 0; i < 32; ++i) text += digits;
    const int fd = make_sealed_text("rueda-rank-token", text).value().release();
    ::fcntl(fd, F_SETFD, 0);
    ::setenv("RUEDA_JOB_TOKEN_FD", std::to_string(fd).c_str(), 1);
    return fd;
  }
  static bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
};

TEST_F(OwnTokenTest, IsTakenOnceAndKept) {
  const int fd = inherit("ab");
  EXPECT_EQ(own_token(nullptr, "job-1").value(), std::string(32, '\xab'));
  EXPECT_FALSE(is_open(fd));
  EXPECT_EQ(std::getenv("RUEDA_JOB_TOKEN_FD"), nullptr);
  // The process leaves its job and comes back.
  EXPECT_EQ(own_token(nullptr, "job-1").value(), std::string(32, '\xab'));
  // It has put back what was in its environment, and something else has the number by now.
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::setenv("RUEDA_JOB_TOKEN_FD", std::to_string(null).c_str(), 1);
  EXPECT_EQ(own_token(nullptr, "job-1").value(), std::string(32, '\xab'));
  EXPECT_TRUE(is_open(null));
  ::close(null);
}

TEST_F(OwnTokenTest, IsOfOneJob) {
  inherit("ab");
  EXPECT_TRUE(own_token(nullptr, "job-2").is_ok());
  EXPECT_THAT(own_token(nullptr, "job-3").status().message(),
              AllOf(HasSubstr("neither RUEDA_JOB_TOKEN_FD nor RUEDA_JOB_TOKEN is set"),
                    HasSubstr("ruedarun")));
  inherit("cd");
  EXPECT_EQ(own_token(nullptr, "job-3").value(), std::string(32, '\xcd'));
}

TEST_F(OwnTokenTest, OptionsGoBeforeDescriptorsAndTheseBeforeTheVariable) {
  ::setenv("RUEDA_JOB_TOKEN", std::string(64, 'e').c_str(), 1);
  const int fd = inherit("ab");
  EXPECT_EQ(own_token(std::string(64, '1').c_str(), "job-4").value(), std::string(32, '\x11'));
  EXPECT_TRUE(is_open(fd));
  EXPECT_EQ(own_token(nullptr, "job-4").value(), std::string(32, '\xab'));
  EXPECT_EQ(own_token(nullptr, "job-4").value(), std::string(32, '\xee'));
}

TEST_F(OwnTokenTest, ADescriptorThatWasClosedOnTheWayIsNamedWithTheRemedy) {
  for (const char* number : {"1000", "0", "x", "-1", "99999999999999"}) {
    ::setenv("RUEDA_JOB_TOKEN_FD", number, 1);
    EXPECT_THAT(own_token(nullptr, "job-5").status().message(),
                AllOf(HasSubstr(std::string("RUEDA_JOB_TOKEN_FD=") + number),
                      HasSubstr("close_fds=False"), HasSubstr("--token-in-environment")));
  }
  EXPECT_TRUE(is_open(0));
  ::setenv("RUEDA_JOB_TOKEN", std::string(64, 'e').c_str(), 1);
  EXPECT_EQ(own_token(nullptr, "job-5").value(), std::string(32, '\xee'));
}

// A shell starts one program of a rank after another, and Python's multiprocessing forks.
TEST_F(OwnTokenTest, AForkedChildTakesTheTokenForItself) {
  const int fd = inherit("ab");
  for (int i = 0; i < 2; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Result<std::string> token = own_token(nullptr, "job-6");
      ::_exit(token.is_ok() && token.value() == std::string(32, '\xab') ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(is_open(fd));
  EXPECT_TRUE(own_token(nullptr, "job-6").is_ok());
}

TEST_F(OwnTokenTest, WhatIsNoTokenIsNamed) {
  ::setenv("RUEDA_JOB_TOKEN", "abc", 1);
  EXPECT_THAT(own_token(nullptr, "job").status().message(),
              HasSubstr("RUEDA_JOB_TOKEN is not 64 hexadecimal digits"));
}

}  // namespace
}  // namespace rueda::client
