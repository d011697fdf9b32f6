#include "daemon/base/soon.h"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace rueda {
namespace {

class SoonTest : public testing::Test {
 protected:
  Soon::Work note(int number) {
    return [this, number] { done_.push_back(number); };
  }

  boost::asio::io_context io_{1};
  std::vector<int> done_;
};

TEST_F(SoonTest, WorkRunsLaterAndInItsOrder) {
  Soon soon(io_);
  const Soon::Use use(soon);
  Soon::run(io_, note(1));
  Soon::run(io_, note(2));
  EXPECT_TRUE(done_.empty());
  while (soon.run_one()) {
  }
  EXPECT_EQ(done_, (std::vector{1, 2}));
}

TEST_F(SoonTest, WhatWorkAddsComesBehindWhatWasThere) {
  Soon soon(io_);
  const Soon::Use use(soon);
  Soon::run(io_, [this] { Soon::run(io_, note(3)); });
  Soon::run(io_, note(1));
  while (soon.run_one()) {
  }
  EXPECT_EQ(done_, (std::vector{1, 3}));
}

TEST_F(SoonTest, ItIsPostedWhereNobodyRunsTheQueue) {
  Soon::run(io_, note(1));
  io_.run();
  EXPECT_EQ(done_, std::vector{1});
}

TEST_F(SoonTest, AnotherLoopsWorkIsPostedThere) {
  boost::asio::io_context other(1);
  Soon soon(io_);
  const Soon::Use use(soon);
  Soon::run(other, note(1));
  EXPECT_TRUE(soon.is_empty());
  other.run();
  EXPECT_EQ(done_, std::vector{1});
}

TEST_F(SoonTest, WorkThatThrowsDoesNotTakeTheRestWithIt) {
  Soon soon(io_);
  const Soon::Use use(soon);
  Soon::run(io_, [] { throw std::runtime_error("no"); });
  Soon::run(io_, note(2));
  EXPECT_THROW(soon.run_one(), std::runtime_error);
  EXPECT_TRUE(soon.run_one());
  EXPECT_EQ(done_, std::vector{2});
}

TEST_F(SoonTest, AnIoContextDoesNotEndBeforeItsWork) {
  Soon soon(io_);
  const Soon::Use use(soon);
  Soon::run(io_, note(1));
  io_.poll();
  EXPECT_FALSE(io_.stopped());
  soon.run_one();
  io_.poll();
  EXPECT_TRUE(io_.stopped());
}

TEST_F(SoonTest, WhatIsLeftAtTheEndIsPosted) {
  Soon soon(io_);
  {
    const Soon::Use use(soon);
    Soon::run(io_, note(1));
  }
  EXPECT_TRUE(soon.is_empty());
  io_.run();
  EXPECT_EQ(done_, std::vector{1});
}

}  // namespace
}  // namespace rueda
