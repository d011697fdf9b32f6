#include "daemon/core/order/begun_groups.h"

#include <gtest/gtest.h>

#include "daemon/core/modes/coordinator.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

TEST(BegunGroups, LackWhatHasNoPlaceYet) {
  const DescriptorPtr a = member_of("g", 3, "a");
  const DescriptorPtr b = member_of("g", 3, "b");
  const DescriptorPtr c = member_of("g", 3, "c");
  BegunGroups begun;
  EXPECT_FALSE(begun.lack(*a));
  begun.note(*b);
  EXPECT_TRUE(begun.lack(*a));
  EXPECT_FALSE(begun.lack(*b));
  begun.note(*a);
  begun.note(*c);
  EXPECT_TRUE(begun.empty());
  EXPECT_FALSE(begun.lack(*a));
}

TEST(BegunGroups, ATensorWithoutAGroupIsNoneOfThem) {
  const DescriptorPtr a = tensor("a", 4);
  BegunGroups begun;
  begun.note(*a);
  EXPECT_TRUE(begun.empty());
}

// A plan has ended b of this turn and b of the next while a of this turn is under way.
TEST(BegunGroups, TheNextTurnIsCountedForItself) {
  const DescriptorPtr a = member_of("g", 2, "a");
  const DescriptorPtr b = member_of("g", 2, "b");
  BegunGroups begun;
  begun.note(*b);
  begun.note(*b);
  begun.note(*a);
  EXPECT_TRUE(begun.lack(*a));
  begun.note(*a);
  EXPECT_TRUE(begun.empty());
}

// The tensors that were submitted when the epoch began were once the only ones known to come alone.
// The rest, submitted later, waited for ever for those that the plan had launched.
TEST(CallerOfTheNextEpoch, TheRestOfABegunGroupThatIsSubmittedLaterWaitsForNobody) {
  const Layout layout = layout_of({1, 1});
  const std::vector<NodeIndex> all{NodeIndex{0}, NodeIndex{1}};
  const DescriptorPtr a = member_of("g", 2, "a");
  const DescriptorPtr b = member_of("g", 2, "b");
  AgreementOptions options;
  options.begun.note(*b);
  Coordinator caller(layout, options);
  EXPECT_TRUE(caller.is_within_group());

  // b belongs to the next turn, and waits for the next a.
  for (const DescriptorPtr& submitted : {b, a}) {
    ASSERT_TRUE(caller.on_report(all, ReadyTensor{submitted, Rank{0}, {}}).is_ok());
  }
  std::vector<DecreedOperation> called;
  caller.call(called);
  ASSERT_EQ(called.size(), 1u);
  EXPECT_EQ(called[0].operation.tensors, std::vector<std::string>{"a"});
  EXPECT_FALSE(caller.is_within_group());

  ASSERT_TRUE(caller.on_report(all, ReadyTensor{a, Rank{0}, {}}).is_ok());
  caller.call(called);
  ASSERT_EQ(called.size(), 2u);
  EXPECT_EQ(called[1].operation.tensors, (std::vector<std::string>{"b", "a"}));
}

}  // namespace
}  // namespace rueda::core
