#include "client/src/request/repeats.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/client/requests.h"

namespace rueda::client {
namespace {

class RepeatsTest : public ::testing::Test {
 protected:
  void remember(const char* name, uint32_t id) {
    rueda_abi_submission record{};
    record.tensor_id = id;
    repeats_.remember(allreduce_of(name, memory_, memory_, 4, 2.0), record, 0);
  }
  // Returns the id that is remembered, or 0 if there is none.
  uint32_t find(const rueda_tensor& tensor) {
    const Repeats::Entry* entry = repeats_.find(tensor, &options_, "", 0);
    return entry == nullptr ? 0 : entry->record().tensor_id;
  }
  rueda_tensor tensor(const char* name) { return flat_tensor(name, memory_, memory_, &elements_); }

  float memory_[8] = {};
  int64_t elements_ = 4;
  rueda_reduce_options options_{sizeof(options_), RUEDA_SUM, 2.0, 1.0, 0};
  Repeats repeats_;
};

TEST_F(RepeatsTest, FindsWhatIsRememberedInAnyOrder) {
  EXPECT_EQ(find(tensor("a")), 0u);
  remember("a", 1);
  remember("b", 2);
  remember("c", 3);
  for (const char* order : {"abcabc", "cba", "aabb", "acb"}) {
    for (const char* at = order; *at != '\0'; ++at) {
      const char name[] = {*at, '\0'};
      EXPECT_EQ(find(tensor(name)), static_cast<uint32_t>(*at - 'a' + 1)) << order;
    }
  }
  EXPECT_EQ(find(tensor("d")), 0u);
  EXPECT_EQ(find(tensor("b")), 2u) << "after one that is not known";
}

TEST_F(RepeatsTest, AnythingElseIsNoRepeat) {
  remember("a", 1);
  ASSERT_EQ(find(tensor("a")), 1u);
  rueda_tensor other = tensor("a");
  other.input = memory_ + 4;
  EXPECT_EQ(find(other), 0u);
  other = tensor("a");
  other.output = memory_ + 4;
  EXPECT_EQ(find(other), 0u);
  other = tensor("a");
  other.dtype = RUEDA_INT32;
  EXPECT_EQ(find(other), 0u);
  const int64_t shapes[] = {2, 2};
  other = tensor("a");
  other.shape = shapes;
  EXPECT_EQ(find(other), 0u);
  other.ndim = 2;
  EXPECT_EQ(find(other), 0u);
  other.shape = nullptr;
  EXPECT_EQ(find(other), 0u);
  other = tensor("a");
  other.name = nullptr;
  EXPECT_EQ(find(other), 0u);
  EXPECT_EQ(find(tensor("a")), 1u);
}

TEST_F(RepeatsTest, OtherOptionsAreNoRepeat) {
  remember("a", 1);
  for (const rueda_reduce_options& other :
       {rueda_reduce_options{sizeof(options_), RUEDA_AVERAGE, 2.0, 1.0, 0},
        rueda_reduce_options{sizeof(options_), RUEDA_SUM, 1.0, 1.0, 0},
        rueda_reduce_options{sizeof(options_), RUEDA_SUM, 2.0, 2.0, 0},
        rueda_reduce_options{sizeof(options_), RUEDA_SUM, 2.0, 1.0, 1},
        rueda_reduce_options{sizeof(options_), RUEDA_SUM, 2.0, 1.0, 0, RUEDA_WIRE_FLOAT16},
        rueda_reduce_options{0, RUEDA_SUM, 2.0, 1.0, 0}}) {
    EXPECT_EQ(repeats_.find(tensor("a"), &other, "", 0), nullptr);
  }
  EXPECT_EQ(repeats_.find(tensor("a"), nullptr, "", 0), nullptr);
  EXPECT_EQ(repeats_.find(tensor("a"), &options_, "g", 1), nullptr);
  EXPECT_NE(repeats_.find(tensor("a"), &options_, "", 0), nullptr);
}

TEST_F(RepeatsTest, NoOptionsMeanTheAverage) {
  const rueda_tensor asked = tensor("a");
  repeats_.remember(check_allreduce(&asked, nullptr, "", 0).value(), {}, 7);
  const rueda_reduce_options average{sizeof(average), RUEDA_AVERAGE, 1.0, 1.0, 0};
  const Repeats::Entry* entry = repeats_.find(asked, nullptr, "", 0);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->frees(), 7u);
  EXPECT_EQ(repeats_.find(asked, &average, "", 0), entry);
}

TEST_F(RepeatsTest, ARoundedOneIsNoRepeatOfOneThatIsNot) {
  const rueda_tensor asked = tensor("a");
  const rueda_reduce_options rounded{sizeof(rounded),    RUEDA_AVERAGE, 1.0, 1.0, 0,
                                     RUEDA_WIRE_BFLOAT16};
  repeats_.remember(check_allreduce(&asked, &rounded, "", 0).value(), {}, 0);
  EXPECT_NE(repeats_.find(asked, &rounded, "", 0), nullptr);
  EXPECT_EQ(repeats_.find(asked, nullptr, "", 0), nullptr);
}

TEST_F(RepeatsTest, AGroupIsPartOfWhatIsAsked) {
  const rueda_tensor asked = tensor("a");
  repeats_.remember(check_allreduce(&asked, &options_, "g", 3).value(), {}, 0);
  EXPECT_NE(repeats_.find(asked, &options_, "g", 3), nullptr);
  EXPECT_EQ(repeats_.find(asked, &options_, "g", 2), nullptr);
  EXPECT_EQ(repeats_.find(asked, &options_, "h", 3), nullptr);
  EXPECT_EQ(repeats_.find(asked, &options_, "", 0), nullptr);
}

TEST_F(RepeatsTest, TheLastUnderANameCounts) {
  remember("a", 1);
  elements_ = 8;
  repeats_.remember(allreduce_of("a", memory_, memory_, 8, 2.0), {.tensor_id = 2}, 0);
  EXPECT_EQ(find(tensor("a")), 2u);
  elements_ = 4;
  EXPECT_EQ(find(tensor("a")), 0u);
}

}  // namespace
}  // namespace rueda::client
