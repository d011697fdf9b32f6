#include "agent/launch/host_discovery.h"

#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace rueda::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using std::chrono_literals::operator""ms;

const std::set<std::string> kNames{"localhost", "alpha", "192.0.2.7", "2001:db8::7"};

TEST(SlotsOfHost, OneLineAHostAndTheLastOneCounts) {
  EXPECT_EQ(slots_of_host("beta:2\nalpha:3\n", kNames).value(), 3);
  EXPECT_EQ(slots_of_host("alpha", kNames).value(), 1);
  EXPECT_EQ(slots_of_host("  alpha:0 \r\n\n# gamma\n", kNames).value(), 0);
  EXPECT_EQ(slots_of_host("192.0.2.7:4\n", kNames).value(), 4);
  EXPECT_EQ(slots_of_host("[2001:db8::7]:5\n", kNames).value(), 5);
  EXPECT_EQ(slots_of_host("[2001:db8::7]\n", kNames).value(), 1);
  EXPECT_EQ(slots_of_host("alpha:1\nalpha:2\n", kNames).value(), 2);
  EXPECT_EQ(slots_of_host("", kNames).value(), 0);
}

TEST(SlotsOfHost, ALineThatIsNoHostIsNamed) {
  for (const char* line : {"alpha:many", "alpha:-1", "alpha:99999999", ":3", "two words:3",
                           "2001:db8::7:3", "[2001:db8::7:3", "alpha:"}) {
    const Result<int> slots = slots_of_host(std::string("beta:1\n") + line + "\n", kNames);
    ASSERT_FALSE(slots.is_ok()) << line;
    EXPECT_THAT(slots.status().message(), HasSubstr(line));
  }
  const std::string binary("\x1b[2J\xff", 5);
  EXPECT_THAT(slots_of_host(binary, kNames).status().message(), testing::Not(HasSubstr("\x1b")));
}

TEST(SlotsOfHost, ThisHostHasItsNameAndItsAddresses) {
  const std::set<std::string> names = names_of_this_host();
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  EXPECT_TRUE(names.contains(name));
  EXPECT_TRUE(names.contains("localhost"));
  EXPECT_TRUE(names.contains("127.0.0.1"));
}

class HostDiscoveryTest : public testing::Test {
 protected:
  void discover(const std::string& script, std::chrono::milliseconds patience = 10'000ms) {
    discovery_.emplace(
        loop_, script,
        HostDiscovery::Events{[this](int slots) { slots_.push_back(slots); },
                              [this](const std::string& note) { notes_.push_back(note); }},
        HostDiscovery::Limits{1ms, patience});
    discovery_->start();
  }
  template <class Condition>
  bool run_until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < end) loop_.run_one_for(100ms);
    return condition();
  }

  boost::asio::io_context loop_;
  std::vector<int> slots_;
  std::vector<std::string> notes_;
  std::optional<HostDiscovery> discovery_;
};

TEST_F(HostDiscoveryTest, AnAnswerIsToldWhenItIsAnotherOne) {
  const std::string file = testing::TempDir() + "/discovered" + std::to_string(::getpid());
  const auto write = [&](int slots) { std::ofstream(file) << "localhost:" << slots << "\n"; };
  write(2);
  discover("cat " + file);
  ASSERT_TRUE(run_until([&] { return slots_.size() == 1; }));
  write(3);
  ASSERT_TRUE(run_until([&] { return slots_.back() == 3; }));
  ::unlink(file.c_str());
  ASSERT_TRUE(run_until([&] { return !notes_.empty(); }));
  EXPECT_THAT(notes_.front(), HasSubstr("it exited with status 1; going on with 3 slots here"));
}

TEST_F(HostDiscoveryTest, AScriptThatHangsIsKilledWithWhatItHasStarted) {
  const std::string file = testing::TempDir() + "/sleeper" + std::to_string(::getpid());
  discover("sleep 1000 & echo $! > " + file + "; echo localhost:1", 200ms);
  ASSERT_TRUE(run_until([&] { return notes_.size() == 1; }));
  EXPECT_THAT(notes_[0], HasSubstr("it did not end, and close its output, within 200 ms"));
  EXPECT_FALSE(discovery_->slots().has_value());
  discovery_->stop();
  pid_t sleeper = 0;
  std::ifstream(file) >> sleeper;
  ::unlink(file.c_str());
  ASSERT_GT(sleeper, 0);
  // It may be a zombie of whoever reaps orphans here.
  ASSERT_TRUE(run_until([&] {
    std::string stat;
    std::getline(std::ifstream("/proc/" + std::to_string(sleeper) + "/stat"), stat);
    return stat.empty() || stat.find(") Z ") != std::string::npos;
  }));
}

TEST_F(HostDiscoveryTest, AScriptThatPrintsWithoutEndIsKilled) {
  discover("yes localhost:1");
  ASSERT_TRUE(run_until([&] { return notes_.size() == 1; }));
  EXPECT_THAT(notes_[0], HasSubstr("it printed more than 1 MiB"));
}

TEST_F(HostDiscoveryTest, ThereNeedBeNoSuchScript) {
  discover("/nowhere/at/all 2>/dev/null");
  ASSERT_TRUE(run_until([&] { return notes_.size() == 1; }));
  EXPECT_THAT(notes_[0], HasSubstr("it exited with status 127"));
}

}  // namespace
}  // namespace rueda::agent
