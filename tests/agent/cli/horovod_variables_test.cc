#include "agent/cli/horovod_variables.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cli/options.h"

namespace rueda::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

TEST(HorovodVariables, BecomeRuedas) {
  Variables environment{{"HOROVOD_FUSION_THRESHOLD", "33554432"},
                        {"HOROVOD_STALL_CHECK_TIME_SECONDS", "30"},
                        {"HOROVOD_LOG_LEVEL", "warning"},
                        {"HOROVOD_TIMELINE", "/tmp/timeline.json"},
                        {"PATH", "/bin"}};
  EXPECT_THAT(
      translate_horovod_variables(environment),
      ElementsAre(
          "HOROVOD_FUSION_THRESHOLD=33554432 is taken as RUEDA_FUSION_THRESHOLD=33554432",
          "HOROVOD_LOG_LEVEL=warning is taken as RUEDA_LOG_LEVEL=warn",
          "HOROVOD_STALL_CHECK_TIME_SECONDS=30 is taken as "
          "RUEDA_STALL_CHECK_TIME_SECONDS=30",
          "HOROVOD_TIMELINE=/tmp/timeline.json is taken as RUEDA_TIMELINE=/tmp/timeline.json"));
  const ParseOutcome parsed = parse_options({"-np", "2", "p"}, environment);
  ASSERT_TRUE(parsed.options) << parsed.text;
  EXPECT_EQ(parsed.options->agreement.fusion_threshold_bytes, 32u << 20);
  EXPECT_EQ(parsed.options->stall_check_ms, 30'000);
  EXPECT_EQ(parsed.options->log_level, "warn");
  EXPECT_EQ(parsed.options->timeline, "/tmp/timeline.json");
}

TEST(HorovodVariables, GiveWayToRuedasOwn) {
  Variables environment{{"HOROVOD_FUSION_THRESHOLD", "1"}, {"RUEDA_FUSION_THRESHOLD", "2"}};
  EXPECT_THAT(translate_horovod_variables(environment),
              ElementsAre("HOROVOD_FUSION_THRESHOLD is not used: RUEDA_FUSION_THRESHOLD is set"));
  EXPECT_EQ(environment["RUEDA_FUSION_THRESHOLD"], "2");
}

TEST(HorovodVariables, ThatAreNotUsedAreNamed) {
  Variables environment{{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3"},
                        {"HOROVOD_CYCLE_TIME", "5"},
                        {"HOROVOD_NUM_NCCL_STREAMS", "1"},
                        {"HOROVOD_TIMELINE", ""},
                        {"HOROVOD_CACHE_CAPACITY", "0"}};
  const Variables before = environment;
  EXPECT_THAT(translate_horovod_variables(environment),
              ElementsAre("HOROVOD_AUTOTUNE_WARMUP_SAMPLES is not used: the search finds its own "
                          "lengths",
                          "HOROVOD_CACHE_CAPACITY=0 is not used",
                          "HOROVOD_CYCLE_TIME is not used: there is no cycle: what is ready goes "
                          "at once",
                          "HOROVOD_NUM_NCCL_STREAMS is not used"));
  EXPECT_EQ(environment, before);
}

TEST(HorovodVariables, TheCycleTimeIsTakenWhereTheModeHasACycle) {
  for (const char* mode : {"cached", "global-sleep", "nonblocking"}) {
    Variables environment{{"HOROVOD_CYCLE_TIME", "3.5"}};
    EXPECT_THAT(translate_horovod_variables(environment, mode),
                ElementsAre("HOROVOD_CYCLE_TIME=3.5 is taken as RUEDA_CYCLE_TIME=3.5"));
    EXPECT_EQ(environment["RUEDA_CYCLE_TIME"], "3.5") << mode;
  }
  for (const char* mode : {"", "locked", "negotiate", "event-driven"}) {
    Variables environment{{"HOROVOD_CYCLE_TIME", "3.5"}};
    EXPECT_THAT(translate_horovod_variables(environment, mode),
                ElementsAre("HOROVOD_CYCLE_TIME is not used: there is no cycle: what is ready goes "
                            "at once"));
    EXPECT_FALSE(environment.contains("RUEDA_CYCLE_TIME")) << mode;
  }
  Variables never_sleeps{{"HOROVOD_CYCLE_TIME", "0"}};
  EXPECT_THAT(translate_horovod_variables(never_sleeps, "cached"),
              ElementsAre("HOROVOD_CYCLE_TIME=0 is not used"));
}

TEST(HorovodVariables, TheModeIsThatOfFlagsPresetAndVariables) {
  EXPECT_EQ(coordination_of({"-np", "2", "p"}, {}), "");
  EXPECT_EQ(coordination_of({"--coordination", "cached", "-np", "2", "p"}, {}), "cached");
  EXPECT_EQ(coordination_of({"--preset", "horovod", "-np", "2", "p"}, {}), "cached");
  EXPECT_EQ(coordination_of({"-np", "2", "p"}, {{"RUEDA_COORDINATION", "nonblocking"}}),
            "nonblocking");
  EXPECT_EQ(coordination_of({"--no-such-flag"}, {{"RUEDA_COORDINATION", "nonblocking"}}), "");
}

TEST(HorovodVariables, AutotuningIsRuedas) {
  Variables environment{{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "a.csv"}};
  translate_horovod_variables(environment);
  EXPECT_EQ(environment["RUEDA_AUTOTUNE"], "1");
  EXPECT_EQ(environment["RUEDA_AUTOTUNE_LOG"], "a.csv");
}

TEST(HorovodVariables, CanTurnStallReportsOff) {
  Variables environment{{"HOROVOD_STALL_CHECK_DISABLE", "1"},
                        {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"}};
  translate_horovod_variables(environment);
  EXPECT_EQ(environment["RUEDA_STALL_CHECK_TIME_SECONDS"], "0");
  Variables none{{"PATH", "/bin"}};
  EXPECT_THAT(translate_horovod_variables(none), IsEmpty());
}

}  // namespace
}  // namespace rueda::agent
