#include "bench/cli/report.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

TEST(ReportTest, KeysThatPeopleScriptAgainst) {
  const auto json = to_json(Row{.collective = "allreduce", .bytes = 8, .wrong = 3});
  for (const char* key : {"collective", "bytes", "dtype", "op", "nranks", "nnodes", "time_us",
                          "time_us_p99", "algbw_GBps", "busbw_GBps", "cpu_s_per_GB", "wrong"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["wrong"], 3);
  EXPECT_TRUE(json["cpu_s_per_GB"].is_null());
}

TEST(ReportTest, StepKeys) {
  const auto json = to_json(StepRow{.set = "vgg16", .tensors = 32, .memory = "foreign"});
  for (const char* key : {"set", "tensors", "bytes", "time_us", "time_us_p99", "pace_us", "nranks",
                          "nnodes", "cpu_s_per_GB", "wrong", "memory", "order_messages_per_step"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_TRUE(json["order_messages_per_step"].is_null());
  EXPECT_TRUE(json["first_steps_us"].empty());
  EXPECT_TRUE(json["declare_us"].is_null());
}

TEST(ReportTest, FirstStepsAreThereWhenTheyWereAskedFor) {
  const StepRow row{
      .first_steps_us = {50, 40}, .first_steps_declared_us = {30, 20}, .declare_us = 10};
  EXPECT_EQ(to_json(row)["first_steps_us"], (nlohmann::json{50, 40}));
  EXPECT_EQ(to_json(row)["first_steps_declared_us"], (nlohmann::json{30, 20}));
  EXPECT_EQ(to_json(row)["declare_us"], 10);
  EXPECT_THAT(
      step_lines(row),
      testing::EndsWith("# first steps (us): 50.0 40.0; of a plan declared ahead: 30.0 20.0, "
                        "and to declare it 10.0\n"));
  EXPECT_THAT(step_lines({}), testing::Not(testing::HasSubstr("first steps")));
}

TEST(ReportTest, TableLineHasTheNumbers) {
  const std::string line = table_line(
      {.bytes = 4096, .count = 1024, .dtype = "float32", .op = "sum", .time_us = 12.5, .wrong = 7});
  EXPECT_THAT(line, testing::HasSubstr(" 4096 "));
  EXPECT_THAT(line, testing::HasSubstr(" 12.5 "));
  EXPECT_THAT(line, testing::EndsWith(" 7\n"));
}

TEST(JsonLinesTest, OneObjectALine) {
  const std::string path = testing::TempDir() + "/rueda_report_test.jsonl";
  {
    JsonLines lines;
    std::string error;
    ASSERT_TRUE(lines.open(path, &error)) << error;
    lines.write({{"a", 1}});
    lines.write({{"a", 2}});
  }
  std::ifstream file(path);
  std::string line;
  std::vector<int> read;
  while (std::getline(file, line)) read.push_back(nlohmann::json::parse(line)["a"]);
  EXPECT_THAT(read, testing::ElementsAre(1, 2));
  std::remove(path.c_str());
}

TEST(JsonLinesTest, SaysWhichPathCannotBeWritten) {
  JsonLines lines;
  std::string error;
  EXPECT_FALSE(lines.open("/no/such/directory/x.json", &error));
  EXPECT_THAT(error, testing::HasSubstr("/no/such/directory/x.json"));
}

}  // namespace
}  // namespace rueda::bench
