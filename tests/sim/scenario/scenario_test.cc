// Tests that every file of tests/sim/scenarios goes as it tells, and that a story that does not is
// found out.

#include "tests/sim/scenario/scenario.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace rueda::sim {
namespace {

std::vector<std::string> scenario_files() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing_support::source_path("tests/sim/scenarios"))) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Scenario, EveryFileGoesAsItTells) {
  const std::vector<std::string> files = scenario_files();
  EXPECT_GT(files.size(), 5u);
  for (const std::string& file : files) EXPECT_EQ(run_scenario_file(file).error, "");
}

std::string error_of(const std::string& line) {
  const std::string cast = "ranks 1 1\ntensor a float32 4\nmode negotiate\nstart\n";
  return run_scenario("story", cast + line).error;
}

TEST(Scenario, AnUnmetExpectationNamesFileAndLine) {
  EXPECT_EQ(error_of("expect n0 launches a as 1"),
            "story:5: expect n0 launches a as 1: n0 launches nothing");
  EXPECT_EQ(error_of("every rank submits a\ndeliver everything\nexpect n1 launches a as 2"),
            "story:7: expect n1 launches a as 2: n1 launches 1 = a");
  EXPECT_EQ(error_of("deliver Ready from n1 to n0"),
            "story:5: deliver Ready from n1 to n0: no message is on its way from n1 to n0");
}

TEST(Scenario, AnUnknownPhraseNamesFileAndLine) {
  EXPECT_EQ(error_of("n0 sings"), "story:5: n0 sings: there is no such phrase");
  EXPECT_EQ(error_of("rank 7 submits a"), "story:5: rank 7 submits a: there is no rank 7");
  EXPECT_EQ(error_of("rank 0 submits z"), "story:5: rank 0 submits z: there is no tensor z");
  EXPECT_EQ(error_of("rank 0 adds set 1"), "story:5: rank 0 adds set 1: there is no set 1");
  EXPECT_EQ(error_of("expect n0 is locked in set 1"),
            "story:5: expect n0 is locked in set 1: n0 has no set 1");
  EXPECT_EQ(run_scenario("story", "set 2 has ranks 0").error,
            "story:1: set 2 has ranks 0: the next set is 1");
  EXPECT_EQ(run_scenario("story", "rank 0 submits a").error,
            "story:1: rank 0 submits a: the story has not begun: say start first");
}

TEST(Scenario, TheRulesHoldInStoriesToo) {
  // No node may be told that an operation is complete which it has not launched.
  EXPECT_EQ(error_of("n0 completes 1"), "story:5: n0 completes 1: 1 is not under way on n0");
}

TEST(Scenario, AFileThatIsNotThereIsAnError) {
  EXPECT_EQ(run_scenario_file("nowhere.txt").error, "nowhere.txt: cannot be read");
}

}  // namespace
}  // namespace rueda::sim
