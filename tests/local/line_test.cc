#include "daemon/local/line.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace rueda::local {
namespace {

using ::testing::ElementsAre;

class LineTest : public ::testing::Test {
 protected:
  void enter(const std::string& principal, const std::string& name) {
    line_.enter(principal, key_of(name), [this, name] { begun_.push_back(name); });
  }
  const void* key_of(const std::string& name) { return &keys_[name]; }
  void run_for(std::chrono::milliseconds time) {
    loop_.restart();
    loop_.run_for(time);
  }

  boost::asio::io_context loop_{1};
  Line line_{loop_};
  std::map<std::string, int> keys_;
  std::vector<std::string> begun_;
};

TEST_F(LineTest, PrincipalsTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4"}) enter("a", name);
  enter("b", "b1");
  enter("c", "c1");
  enter("b", "b2");
  for (int i = 0; i < 6; ++i) line_.done({});
  EXPECT_THAT(begun_, ElementsAre("a1", "a2", "b1", "c1", "a3", "b2", "a4"));
  line_.done({});
  enter("a", "a5");
  EXPECT_EQ(begun_.back(), "a5") << "nobody is before it";
}

TEST_F(LineTest, WhoeverLeavesIsNotCalled) {
  for (const char* name : {"a1", "a2", "a3"}) enter("a", name);
  enter("b", "b1");
  line_.leave("a", key_of("a2"));
  line_.leave("b", key_of("b1"));
  line_.leave("b", key_of("b1"));
  line_.leave("c", key_of("c1"));
  line_.done({});
  EXPECT_THAT(begun_, ElementsAre("a1", "a3"));
  line_.done({});
  EXPECT_EQ(begun_.size(), 2u);
}

TEST_F(LineTest, TheNextOneComesAfterTheRest) {
  enter("a", "a1");
  enter("b", "b1");
  line_.done(std::chrono::milliseconds(50));
  enter("c", "c1");
  run_for(std::chrono::milliseconds(10));
  EXPECT_THAT(begun_, ElementsAre("a1"));
  run_for(std::chrono::milliseconds(200));
  EXPECT_THAT(begun_, ElementsAre("a1", "b1"));
}

TEST_F(LineTest, ARestIsASecondAtMost) {
  enter("a", "a1");
  line_.done(std::chrono::hours(1));
  enter("b", "b1");
  run_for(std::chrono::milliseconds(1'500));
  EXPECT_THAT(begun_, ElementsAre("a1", "b1"));
}

}  // namespace
}  // namespace rueda::local
