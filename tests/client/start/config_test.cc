#include "client/src/start/config.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Installs a ruedarun that answers with `text`.
class FakeRuedarun {
 public:
  explicit FakeRuedarun(const std::string& text) {
    const int fd = ::mkstemp(path_);
    const std::string script = "#!/bin/sh\ncat <<END\n" + text + "\n$*\nEND\n";
    EXPECT_EQ(::write(fd, script.data(), script.size()), static_cast<ssize_t>(script.size()));
    ::fchmod(fd, 0700);
    ::close(fd);
    ::setenv("RUEDA_RUEDARUN", path_, 1);
  }
  ~FakeRuedarun() {
    ::unlink(path_);
    ::unsetenv("RUEDA_RUEDARUN");
  }

 private:
  char path_[32] = "/tmp/rueda-test-XXXXXX";
};

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
    ::setenv("RUEDA_JOB_ID", "job", 1);
    ::setenv("RUEDA_JOB_TOKEN", std::string(64, 'f').c_str(), 1);
    ::setenv("RANK", "3", 1);
    ::setenv("LOCAL_RANK", "1", 1);
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  static constexpr const char* kNames[] = {
      "RUEDA_SOCKET", "RUEDA_JOB_ID", "RUEDA_JOB_TOKEN",        "RUEDA_JOB_TOKEN_FD",
      "RANK",         "LOCAL_RANK",   "RUEDA_START_TIMEOUT_MS", "OMPI_COMM_WORLD_RANK",
      "PMI_RANK",     "SLURM_PROCID", "SLURM_STEP_ID",          "WORLD_SIZE"};
};

TEST_F(ConfigTest, ReadsTheEnvironment) {
  ::setenv("RUEDA_START_TIMEOUT_MS", "1234", 1);
  Config config = resolve_config(nullptr).value();
  EXPECT_EQ(config.socket_path, "/run/rueda/ruedad.sock");
  EXPECT_EQ(config.job_id, "job");
  EXPECT_EQ(config.token, std::string(32, '\xff'));
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.timeout_ms, 1234);
}

TEST_F(ConfigTest, OptionsWin) {
  ::setenv("RUEDA_SOCKET", "/elsewhere", 1);
  rueda_init_options options{sizeof(options), "@here", "other", nullptr, 0, 0, 77};
  Config config = resolve_config(&options).value();
  EXPECT_EQ(config.socket_path, "@here");
  EXPECT_EQ(config.job_id, "other");
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.local_rank, 0);
  EXPECT_EQ(config.timeout_ms, 77);
}

TEST_F(ConfigTest, WhatIsMissingIsNamedWithTheRemedy) {
  for (const char* name : {"RUEDA_JOB_ID", "RUEDA_JOB_TOKEN", "RANK", "LOCAL_RANK"}) {
    SetUp();
    ::unsetenv(name);
    Status status = resolve_config(nullptr).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("ruedarun")));
  }
}

TEST_F(ConfigTest, WhatMakesNoSenseIsNamed) {
  const std::pair<const char*, const char*> cases[] = {{"RANK", "x"},
                                                       {"LOCAL_RANK", "-1"},
                                                       {"RUEDA_START_TIMEOUT_MS", "5s"},
                                                       {"RUEDA_JOB_TOKEN", "abc"}};
  for (auto [name, value] : cases) {
    SetUp();
    ::setenv(name, value, 1);
    EXPECT_THAT(resolve_config(nullptr).status().message(), HasSubstr(name));
  }
  SetUp();
  ::setenv("RUEDA_JOB_ID", std::string(64, 'j').c_str(), 1);
  EXPECT_THAT(resolve_config(nullptr).status().message(), HasSubstr("63 bytes"));
  rueda_init_options options{};
  EXPECT_THAT(resolve_config(&options).status().message(), HasSubstr("struct_bytes"));
}

TEST_F(ConfigTest, RuedarunsVariablesGoBeforeMpiruns) {
  ::setenv("OMPI_COMM_WORLD_RANK", "7", 1);
  EXPECT_EQ(resolve_config(nullptr).value().rank, 3);
}

TEST_F(ConfigTest, ABatchScriptOfSlurmsIsNoRank) {
  ::unsetenv("RUEDA_JOB_ID");
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_THAT(resolve_config(nullptr).status().message(), HasSubstr("RUEDA_JOB_ID is not set"));
}

// Some variables of a launcher are set, and the missing ones are reported.
TEST_F(ConfigTest, OnlyAProgramThatNobodyStartedIsAlone) {
  ::setenv("RUEDA_RUEDARUN", "/no/ruedarun", 1);
  for (const char* name : {"RUEDA_JOB_TOKEN", "RANK", "LOCAL_RANK", "WORLD_SIZE"}) {
    TearDown();
    ::setenv(name, "0", 1);
    EXPECT_THAT(resolve_config(nullptr).status().message(), HasSubstr("RUEDA_JOB_ID is not set"));
  }
  TearDown();
  rueda_init_options options{sizeof(options), nullptr, nullptr, nullptr, 0, -1, 0};
  EXPECT_THAT(resolve_config(&options).status().message(), HasSubstr("RUEDA_JOB_ID is not set"));
  testing::internal::CaptureStderr();
  EXPECT_THAT(resolve_config(nullptr).status().message(),
              HasSubstr("cannot be run as \"/no/ruedarun\""));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("so it is a job of one"));
  ::unsetenv("RUEDA_RUEDARUN");
}

// The order matters: a way that has worked once is kept for the life of the process.
TEST_F(ConfigTest, ARankOfMpirunsIsRegisteredByRuedarun) {
  ::unsetenv("RUEDA_JOB_ID");
  ::setenv("PMI_RANK", "0", 1);
  ::setenv("RUEDA_RUEDARUN", "/no/ruedarun", 1);
  EXPECT_THAT(resolve_config(nullptr).status().message(),
              HasSubstr("cannot be run as \"/no/ruedarun\""));
  {
    const FakeRuedarun refuses("error: no daemon answers");
    EXPECT_EQ(resolve_config(nullptr).status().message(), "no daemon answers");
  }
  {
    const FakeRuedarun crashes("RANK=1");
    EXPECT_THAT(resolve_config(nullptr).status().message(),
                HasSubstr("ended without registering this rank"));
  }
  const FakeRuedarun registers(
      "RANK=5\nLOCAL_RANK=2\nRUEDA_JOB_ID=j\nRUEDA_JOB_TOKEN=" + std::string(64, 'a') + "\nready");
  rueda_init_options options{sizeof(options), "@here", nullptr, nullptr, -1, -1, 1500};
  const Config config = resolve_config(&options).value();
  EXPECT_EQ(config.rank, 5);
  EXPECT_EQ(config.local_rank, 2);
  EXPECT_EQ(config.job_id, "j");
  EXPECT_EQ(config.token, std::string(32, '\xaa'));
  EXPECT_EQ(config.socket_path, "@here");
}

}  // namespace
}  // namespace rueda::client
