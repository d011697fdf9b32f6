#include "client/src/config.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  static constexpr const char* kNames[] = {"RUEDA_SOCKET",    "RUEDA_JOB_ID",
                                           "RUEDA_JOB_TOKEN", "RANK",
                                           "LOCAL_RANK",      "RUEDA_START_TIMEOUT_MS"};
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

}  // namespace
}  // namespace rueda::client
