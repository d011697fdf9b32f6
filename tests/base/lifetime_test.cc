#include "daemon/base/lifetime.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace rueda {
namespace {

TEST(Lifetime, AGuardedCallbackRunsWhileTheLifeLastsAndNotAfter) {
  std::optional<Lifetime> life(std::in_place);
  std::string heard;
  std::function<void(const std::string&)> callback =
      life->guard([&](const std::string& word) { heard += word; });
  callback("one");
  life.reset();
  callback("two");
  EXPECT_EQ(heard, "one");
}

TEST(Lifetime, ALifeMayEndBeforeItsObject) {
  Lifetime life;
  int calls = 0;
  auto callback = life.guard([&, kept = std::make_unique<int>(1)] { calls += *kept; });
  callback();
  life.end();
  callback();
  EXPECT_EQ(calls, 1);
}

TEST(Lifetime, AWatchOutlivesTheObjectAndKnows) {
  std::optional<Lifetime> life(std::in_place);
  const Lifetime::Watch watch = life->watch();
  EXPECT_TRUE(watch.lasts());
  life.reset();
  EXPECT_FALSE(watch.lasts());
}

}  // namespace
}  // namespace rueda
