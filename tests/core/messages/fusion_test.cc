#include "daemon/core/messages/fusion.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;

FusionUnit alone(const DescriptorPtr& descriptor) { return {{descriptor}}; }

std::deque<FusionUnit> queue_of(const std::vector<DescriptorPtr>& tensors) {
  std::deque<FusionUnit> queue;
  for (const DescriptorPtr& item : tensors) queue.push_back(alone(item));
  return queue;
}

Names names_in(const std::deque<FusionUnit>& queue) {
  Names names;
  for (const FusionUnit& unit : queue) {
    for (const DescriptorPtr& item : unit.tensors) names.push_back(item->name);
  }
  return names;
}

FusionOptions bytes(int64_t threshold_bytes) { return {threshold_bytes, 256}; }

TEST(Fusion, TheDefaultThresholdIs64MiB) {
  EXPECT_EQ(FusionOptions{}.threshold_bytes, 67'108'864);
  const int64_t half = (int64_t{32} << 20) / 4;
  auto queue = queue_of({tensor("a", half), tensor("b", half), tensor("c", 1)});
  EXPECT_THAT(names_of(take_batch(queue, FusionOptions{})), ElementsAre("a", "b"));
}

TEST(Fusion, TakesInOrderUntilTheThresholdIsReachedExactly) {
  auto queue = queue_of({tensor("a", 2), tensor("b", 2), tensor("c", 2)});
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("a", "b"));
  EXPECT_THAT(names_in(queue), ElementsAre("c"));
}

TEST(Fusion, LooksPastWhatDoesNotFitAndKeepsTheOrderOfTheRest) {
  auto queue = queue_of({tensor("a", 2), tensor("big", 9), tensor("b", 1), tensor("wide", 8),
                         tensor("c", 1), tensor("d", 1)});
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("a", "b", "c"));
  EXPECT_THAT(names_in(queue), ElementsAre("big", "wide", "d"));
}

TEST(Fusion, LooksPastWhatIsUnlike) {
  const auto as_int = [](TensorDescriptor& t) { t.dtype = DType::kInt64; };
  auto queue =
      queue_of({tensor("f1"), tensor("i1", 1, as_int), tensor("f2"), tensor("i2", 1, as_int)});
  EXPECT_THAT(names_of(take_batch(queue, bytes(1024))), ElementsAre("f1", "f2"));
  EXPECT_THAT(names_of(take_batch(queue, bytes(1024))), ElementsAre("i1", "i2"));
  EXPECT_TRUE(queue.empty());
}

TEST(Fusion, ThresholdZeroPutsEveryUnitOnItsOwn) {
  auto queue = queue_of({tensor("a"), tensor("b")});
  EXPECT_THAT(names_of(take_batch(queue, bytes(0))), ElementsAre("a"));
  EXPECT_THAT(names_of(take_batch(queue, bytes(0))), ElementsAre("b"));
}

TEST(Fusion, ATensorAboveTheThresholdGoesAlone) {
  auto queue = queue_of({tensor("huge", 100), tensor("a"), tensor("b")});
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("huge"));
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("a", "b"));
}

TEST(Fusion, AGroupIsNeverSplit) {
  std::deque<FusionUnit> queue;
  queue.push_back(alone(tensor("a", 2)));
  queue.push_back({{member_of("g", 3, "g1"), member_of("g", 3, "g2"), member_of("g", 3, "g3")}});
  queue.push_back(alone(tensor("b", 2)));
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("a", "b"));
  EXPECT_THAT(names_of(take_batch(queue, bytes(4))), ElementsAre("g1", "g2", "g3"))
      << "above the threshold it goes whole, and alone";
}

TEST(Fusion, AGroupThatFitsIsFusedLikeAnyTensor) {
  std::deque<FusionUnit> queue;
  queue.push_back({{member_of("g", 2, "g1"), member_of("g", 2, "g2")}});
  queue.push_back(alone(tensor("a")));
  queue.push_back({{member_of("h", 2, "h1"), member_of("h", 2, "h2")}});
  EXPECT_THAT(names_of(take_batch(queue, bytes(16))), ElementsAre("g1", "g2", "a"));
  EXPECT_THAT(names_in(queue), ElementsAre("h1", "h2"));
}

TEST(Fusion, InspectsNoMoreThanTheLookAhead) {
  const auto as_int = [](TensorDescriptor& t) { t.dtype = DType::kInt64; };
  auto queue = queue_of(
      {tensor("a"), tensor("i1", 1, as_int), tensor("i2", 1, as_int), tensor("b"), tensor("c")});
  EXPECT_THAT(names_of(take_batch(queue, {1024, 3})), ElementsAre("a", "b"));
  EXPECT_THAT(names_in(queue), ElementsAre("i1", "i2", "c"));
  EXPECT_THAT(names_of(take_batch(queue, {1024, 0})), ElementsAre("i1"));
}

TEST(Fusion, WithinTheLookAheadEverythingSmallGoesInOneBatch) {
  std::vector<DescriptorPtr> tensors;
  for (int i = 0; i < 257; ++i) tensors.push_back(tensor("t" + std::to_string(i)));
  auto queue = queue_of(tensors);
  EXPECT_EQ(take_batch(queue, FusionOptions{}).size(), 257u);
  EXPECT_TRUE(queue.empty());
}

TEST(Fusion, OnlyLikeAllreducesShareAnOperation) {
  const TensorDescriptor usual = *tensor("a", 4);
  const auto fuses = [&](const std::function<void(TensorDescriptor&)>& change) {
    const DescriptorPtr other = tensor("b", 9, change);
    EXPECT_EQ(can_fuse(usual, *other), can_fuse(*other, usual));
    return can_fuse(usual, *other);
  };
  EXPECT_TRUE(fuses([](auto&) {})) << "shapes and names may differ";
  EXPECT_FALSE(fuses([](auto& t) { t.dtype = DType::kFloat64; }));
  EXPECT_FALSE(fuses([](auto& t) { t.op = ReduceOp::kSum; }));
  EXPECT_FALSE(fuses([](auto& t) { t.process_set = 1; }));
  EXPECT_FALSE(fuses([](auto& t) { t.prescale = 2; }));
  EXPECT_FALSE(fuses([](auto& t) { t.postscale = 2; }));
  EXPECT_FALSE(fuses([](auto& t) { t.wire_dtype = WireDType::kFloat16; }));
  EXPECT_FALSE(fuses([](auto& t) { t.memory = MemorySpace::kDevice; }));
  EXPECT_FALSE(fuses([](auto& t) { t.kind = CollectiveKind::kBroadcast; }));
  const auto broadcast = [](TensorDescriptor& t) { t.kind = CollectiveKind::kBroadcast; };
  EXPECT_FALSE(can_fuse(*tensor("a", 1, broadcast), *tensor("b", 1, broadcast)));
  const auto barrier = [](TensorDescriptor& t) { t.kind = CollectiveKind::kBarrier; };
  EXPECT_FALSE(can_fuse(*tensor("a", 1, barrier), *tensor("b", 1, barrier)));
}

TEST(Fusion, NothingIsLostDoubledOrReorderedAmongLikeTensors) {
  std::deque<FusionUnit> queue;
  for (int i = 0; i < 200; ++i) {
    queue.push_back(alone(tensor("t" + std::to_string(1000 + i), i % 7, [i](auto& t) {
      t.dtype = i % 3 == 0 ? DType::kInt64 : DType::kFloat32;
    })));
  }
  Names taken;
  while (!queue.empty()) {
    const auto batch = take_batch(queue, {40, 16});
    int64_t total = 0;
    for (const DescriptorPtr& item : batch) {
      EXPECT_TRUE(can_fuse(*batch.front(), *item));
      total += item->bytes();
    }
    EXPECT_TRUE(batch.size() == 1 || total <= 40);
    const Names names = names_of(batch);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    taken.insert(taken.end(), names.begin(), names.end());
  }
  EXPECT_EQ(taken.size(), 200u);
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(std::unique(taken.begin(), taken.end()), taken.end());
}

TEST(FusionDeathTest, AnEmptyQueueIsABug) {
  std::deque<FusionUnit> empty;
  EXPECT_DEATH((void)take_batch(empty, FusionOptions{}), "check failed");
}

TEST(PlanHash, NamesTheBatchAndItsOrder) {
  const DescriptorPtr a = tensor("a"), b = tensor("b"), longer = tensor("a", 2);
  EXPECT_EQ(plan_hash({a, b}), plan_hash({tensor("a"), tensor("b")}));
  EXPECT_NE(plan_hash({a, b}), plan_hash({b, a}));
  EXPECT_NE(plan_hash({a}), plan_hash({a, b}));
  EXPECT_NE(plan_hash({a}), plan_hash({longer}));
}

}  // namespace
}  // namespace rueda::core
