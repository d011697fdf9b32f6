#include "daemon/core/model/coordination.h"

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

TEST(Coordination, EveryModeIsReadByItsName) {
  for (Coordination mode :
       {Coordination::kNegotiate, Coordination::kCached, Coordination::kGlobalSleep,
        Coordination::kNonblocking, Coordination::kEventDriven, Coordination::kLocked}) {
    const Result<Coordination> read = parse_coordination(to_string(mode));
    ASSERT_TRUE(read.is_ok()) << to_string(mode);
    EXPECT_EQ(read.value(), mode);
  }
}

TEST(Coordination, AnotherNameIsRefusedWithTheList) {
  for (const char* name : {"telepathy", "", "Locked", "global_sleep"}) {
    EXPECT_EQ(
        parse_coordination(name).status(),
        Status(Code::kInvalidArgument,
               "there is no coordination \"" + std::string(name) +
                   "\"; the modes are negotiate, cached, global-sleep, nonblocking, event-driven, "
                   "locked"));
  }
}

TEST(Coordination, ThePapersModesHaveACycleAndTheOthersHaveNone) {
  for (Coordination mode :
       {Coordination::kCached, Coordination::kGlobalSleep, Coordination::kNonblocking}) {
    EXPECT_TRUE(has_cycle(mode)) << to_string(mode);
  }
  for (Coordination mode :
       {Coordination::kNegotiate, Coordination::kEventDriven, Coordination::kLocked}) {
    EXPECT_FALSE(has_cycle(mode)) << to_string(mode);
  }
}

}  // namespace
}  // namespace rueda::core
