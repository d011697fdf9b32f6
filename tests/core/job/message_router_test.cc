// Tests of the links of one node: how messages are numbered, held back and passed on, and which of
// those that come are taken. n1 is below n0, and n3 and n4 are below n1.

#include "daemon/core/job/message_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr NodeIndex n4{4};

class RoutedMessages : public testing::Test {
 protected:
  static Message from(NodeIndex node, uint64_t number) {
    return {node, Epoch{1}, number, Left{Rank{0}}};
  }
  static std::vector<std::pair<int, int>> ranks_sent(const Output& output) {
    std::vector<std::pair<int, int>> ranks;
    for (const auto& [to, message] : output.sends) {
      ranks.emplace_back(to.value, std::get<Left>(message.body).rank.value);
    }
    return ranks;
  }

  const Layout layout_ = layout_of(std::vector<int>(7, 1));
  MessageRouter router_{layout_, n1, 2};
  Output output_;
};

TEST_F(RoutedMessages, AMessageIsTakenOnceAndAGapIsNamed) {
  EXPECT_TRUE(router_.accept_number(from(n0, 1)).value());
  EXPECT_FALSE(router_.accept_number(from(n0, 1)).value());
  const Result<bool> gap = router_.accept_number(from(n0, 4));
  ASSERT_FALSE(gap.is_ok());
  EXPECT_THAT(gap.status().message(), HasSubstr("messages 2 to 3 of node n0 are missing"));
  EXPECT_TRUE(router_.accept_number(from(n0, 2)).value());
  EXPECT_TRUE(router_.check_received(n0, 2).is_ok());
  EXPECT_FALSE(router_.check_received(n0, 3).is_ok());
  EXPECT_FALSE(router_.check_received(n3, 1).is_ok());
}

TEST_F(RoutedMessages, WhatIsRepeatedUntilItIsAnsweredHasNoNumber) {
  router_.send(kNodeAbove, Join{}, output_);
  router_.send(kNodeAbove, Left{}, output_);
  router_.send_straight(n3, Fail{}, output_);
  router_.send(n3, Left{}, output_);
  std::vector<uint64_t> numbers;
  for (const auto& [to, message] : output_.sends) numbers.push_back(message.number);
  EXPECT_THAT(numbers, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(router_.sent_to(n0), 1);
  router_.begin(Epoch{2});
  EXPECT_EQ(router_.sent_to(n0), 0);
}

TEST_F(RoutedMessages, WhatIsHeldGoesToTheNewParentInItsOrder) {
  router_.hold_upwards();
  router_.send(kNodeAbove, Left{Rank{1}}, output_);
  router_.send(n2, Left{Rank{2}}, output_);
  router_.send(n3, Left{Rank{3}}, output_);
  EXPECT_THAT(ranks_sent(output_), ElementsAre(std::pair(3, 3)));
  router_.set_parent(n2);
  router_.release(output_);
  router_.send(kNodeAbove, Left{Rank{4}}, output_);
  EXPECT_THAT(ranks_sent(output_),
              ElementsAre(std::pair(3, 3), std::pair(2, 1), std::pair(2, 2), std::pair(2, 4)));
}

TEST_F(RoutedMessages, WhatWasHeldIsForgottenWithItsEpoch) {
  router_.hold_upwards();
  router_.send(kNodeAbove, Left{}, output_);
  router_.begin(Epoch{2});
  router_.release(output_);
  EXPECT_THAT(output_.sends, IsEmpty());
}

TEST_F(RoutedMessages, AMessageForOthersIsPassedOnAndOneThatMayNotPassIsAnError) {
  using Passage = MessageRouter::Passage;
  Message message = from(n0, 1);
  EXPECT_EQ(router_.take_in(message, output_).value(), Passage::kHere);
  message.to = kEverybodyBelow;
  EXPECT_EQ(router_.take_in(message, output_).value(), Passage::kBoth);
  message.to = n4;
  EXPECT_EQ(router_.take_in(message, output_).value(), Passage::kPassedOn);
  EXPECT_THAT(ranks_sent(output_), ElementsAre(std::pair(3, 0), std::pair(4, 0), std::pair(4, 0)));
  // n2 is not below n1, so n0 had no reason to send this here; nor may a child speak to all.
  message.to = n2;
  EXPECT_THAT(router_.take_in(message, output_).status().message(), HasSubstr("not to pass there"));
  message = from(n3, 1);
  message.to = kEverybodyBelow;
  EXPECT_FALSE(router_.take_in(message, output_).is_ok());
}

}  // namespace
}  // namespace rueda::core
