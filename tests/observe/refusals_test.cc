#include "daemon/observe/refusals.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "daemon/observe/metrics.h"

namespace rueda::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RefusalsTest : public ::testing::Test {
 protected:
  RefusalsTest() : before_(spdlog::default_logger()) {
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
  }
  ~RefusalsTest() override { spdlog::set_default_logger(before_); }

  size_t lines() const {
    const std::string text = log_.str();
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream log_;
  Metrics metrics_{{"0", "n0", "none"}};
  Refusals refusals_{"HTTP port", metrics_.daemon().refused_at_http};
};

TEST_F(RefusalsTest, AllAreCountedAndAnOffenderIsNamedOnce) {
  for (int i = 0; i < 1000; ++i) refusals_.note("10.0.0.7", "it has no certificate");
  refusals_.note("10.0.0.8", "it has no certificate");
  EXPECT_EQ(metrics_.daemon().refused_at_http.Value(), 1001);
  EXPECT_EQ(lines(), 2u) << log_.str();
  EXPECT_THAT(log_.str(), HasSubstr("HTTP port: refused 10.0.0.7: it has no certificate"));
}

TEST_F(RefusalsTest, OffendersWhoAlwaysSaySomethingElseDoNotFillTheLog) {
  for (int i = 0; i < 10'000; ++i) refusals_.note("10.0.0.7", "no page " + std::to_string(i));
  EXPECT_EQ(metrics_.daemon().refused_at_http.Value(), 10'000);
  EXPECT_EQ(lines(), Refusals::kMostLines);
}

TEST_F(RefusalsTest, WhatTheySayIsOneLine) {
  refusals_.note("user 7", "a\n2026 error forged \x1b[2J" + std::string(4 << 20, 'x'));
  EXPECT_EQ(lines(), 1u);
  EXPECT_THAT(log_.str(), Not(HasSubstr("\x1b")));
  EXPECT_LT(log_.str().size(), 2'000u);
}

}  // namespace
}  // namespace rueda::observe
