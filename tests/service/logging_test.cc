#include "daemon/logging.h"

#include <regex>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace rueda {
namespace {

// Makes standard error a pipe that holds 4 KiB, and that nobody reads at first.
class LoggingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    reads_ = ends[0];
    before_ = ::dup(STDERR_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  // Returns what was logged, after which the pipe is at its end.
  std::string read_all() {
    std::string said;
    std::thread reader([&] {
      char buffer[4096];
      for (ssize_t got = 0; (got = ::read(reads_, buffer, sizeof(buffer))) > 0;) {
        said.append(buffer, static_cast<size_t>(got));
      }
    });
    flush_log(std::chrono::minutes(1));
    ::dup2(before_, STDERR_FILENO);
    reader.join();
    return said;
  }
  static size_t count(const std::string& said, const std::string& pattern) {
    const std::regex wanted(pattern);
    return static_cast<size_t>(std::distance(std::sregex_iterator(said.begin(), said.end(), wanted),
                                             std::sregex_iterator()));
  }

  int reads_ = -1;
  int before_ = -1;
};

// The control loop once stood still in write(), and so did the daemon.
TEST_F(LoggingTest, WhoLogsNeverWaitsForWhoReadsAndWhatIsLostIsTold) {
  set_up_logging("info", "text");
  constexpr size_t kLines = 30'000;
  for (size_t i = 0; i < kLines; ++i) spdlog::info("line {} {}", i, std::string(100, 'x'));
  const uint64_t lost = log_lines_lost();
  EXPECT_GT(lost, 0u) << "three megabytes found room in one";
  flush_log(std::chrono::milliseconds(10));  // gives up, because nobody reads
  const std::string said = read_all();
  EXPECT_EQ(count(said, " line [0-9]+ x+\n"), kLines - lost);
  EXPECT_EQ(count(said, " warn(ing)? " + std::to_string(lost) + " lines of this log are missing"),
            1u)
      << said.substr(said.size() - std::min<size_t>(said.size(), 500));
}

TEST_F(LoggingTest, WhateverIsInALineItIsOneLine) {
  set_up_logging("info", "text");
  spdlog::info("a\n2026 error forged\x1b[2J{}", std::string(100'000, 'y'));
  const std::string said = read_all();
  EXPECT_EQ(count(said, "\n"), 1u);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
  EXPECT_NE(said.find("a\\n2026 error forged\\x1b[2Jyyy"), std::string::npos);
  EXPECT_LT(said.size(), 10'000u);
}

TEST_F(LoggingTest, InJsonAsWell) {
  set_up_logging("info", "json");
  spdlog::info("a \"b\"\nc");
  EXPECT_NE(read_all().find(R"("message":"a \"b\"\\nc")"), std::string::npos);
}

}  // namespace
}  // namespace rueda
