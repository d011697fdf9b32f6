#include "daemon/observe/trace.h"

#include <gtest/gtest.h>

#include "daemon/observe/step_watch.h"

namespace rueda::observe {
namespace {

TraceEvent on_track(uint32_t track, int64_t begin_ns) {
  TraceEvent event;
  event.track = track;
  event.begin_ns = begin_ns;
  return event;
}

TEST(TraceBuffer, ABatchNamesTheTracksThatNoneBeforeItHasNamed) {
  TraceBuffer buffer(100, 100);
  const uint32_t a = buffer.track("a");
  const uint32_t b = buffer.track("b");
  EXPECT_EQ(buffer.track("a"), a);
  buffer.add(on_track(a, 1));
  buffer.add(on_track(a, 2));
  buffer.add(on_track(b, 3));
  const TraceBatch first = buffer.take({.records = 2});
  ASSERT_EQ(first.events.size(), 2u);
  EXPECT_EQ(first.tracks, (decltype(first.tracks){{a, "a"}}));
  const TraceBatch second = buffer.take({});
  EXPECT_EQ(second.tracks, (decltype(second.tracks){{b, "b"}}));
  EXPECT_TRUE(buffer.is_empty());
  buffer.add(on_track(a, 4));
  EXPECT_TRUE(buffer.take({}).tracks.empty());
  buffer.name_again();
  buffer.add(on_track(b, 5));
  const TraceBatch third = buffer.take({});
  EXPECT_EQ(third.tracks, (decltype(third.tracks){{b, "b"}}));
}

TEST(TraceBuffer, BeyondItsBoundsEventsAreDroppedAndCounted) {
  TraceBuffer buffer(10, 2);
  const uint32_t track = buffer.track("a");
  (void)buffer.track("b");
  EXPECT_EQ(buffer.track("c"), TraceBuffer::kNoTrack);
  buffer.add(on_track(TraceBuffer::kNoTrack, 1));
  for (int i = 0; i < 15; ++i) buffer.add(on_track(track, i));
  buffer.count_dropped(3);
  const TraceBatch batch = buffer.take({});
  EXPECT_EQ(batch.events.size(), 10u);
  EXPECT_EQ(batch.events.back().begin_ns, 9);
  EXPECT_EQ(batch.dropped, 1u + 5u + 3u);
}

TraceOperation of_tensors(std::vector<uint32_t> tracks, std::vector<TraceReady> ready) {
  TraceOperation operation;
  operation.tensors = std::make_shared<const std::vector<uint32_t>>(std::move(tracks));
  operation.ready = std::move(ready);
  return operation;
}

TEST(TraceBuffer, OperationsNameTheTracksOfTheirTensorsOnce) {
  TraceBuffer buffer(100, 100);
  const uint32_t a = buffer.track("a");
  const uint32_t b = buffer.track("b");
  for (const auto& tracks : {std::vector{a}, {a, b}, {a}}) buffer.add(of_tensors(tracks, {}));
  const TraceBatch first = buffer.take({.records = 2});
  EXPECT_EQ(first.operations.size(), 2u);
  EXPECT_EQ(first.tracks, (decltype(first.tracks){{a, "a"}, {b, "b"}}));
  const TraceBatch second = buffer.take({});
  EXPECT_EQ(second.operations.size(), 1u);
  EXPECT_TRUE(second.tracks.empty());
  EXPECT_TRUE(buffer.is_empty());
}

TEST(TraceBuffer, WhatAnOperationTakesInTheFileIsKnown) {
  // There are three tensors; rank 0 has submitted two of them, and rank 1 all.
  const TraceOperation operation =
      of_tensors({1, 2, 3}, {{0, 2, 10}, {0, 1, TraceReady::kNever}, {1, 1, 10}, {1, 2, 20}});
  EXPECT_EQ(operation.events(), 3u * 2 + 5 + 3);
  EXPECT_EQ(of_tensors({1, 2, 3}, {{0, 3, TraceReady::kNever}}).events(), 6u);
}

TEST(TraceBuffer, ABatchHoldsNoMoreEventsThanItMay) {
  TraceBuffer buffer(100, 100);
  const uint32_t a = buffer.track("a");
  // have 12 events each
  for (int i = 0; i < 5; ++i) buffer.add(of_tensors({a, a, a}, {{0, 3, 10}}));
  EXPECT_EQ(buffer.take({.events = 20}).operations.size(), 2u);
  EXPECT_EQ(buffer.take({.events = 1}).operations.size(), 1u);  // otherwise nothing would ever go
  EXPECT_EQ(buffer.take({}).operations.size(), 2u);
}

TEST(TraceBuffer, BeyondItsBoundsOperationsAreDroppedAndCounted) {
  TraceBuffer buffer(4, 100);
  const uint32_t a = buffer.track("a");
  // have two records each
  for (int i = 0; i < 3; ++i) buffer.add(of_tensors({a, a}, {{0, 2, 10}}));
  const TraceBatch batch = buffer.take({});
  EXPECT_EQ(batch.operations.size(), 2u);
  EXPECT_EQ(batch.dropped, 8u);
  buffer.add(of_tensors({a, a}, {{0, 2, 10}}));  // has room again
  EXPECT_FALSE(buffer.is_empty());
}

constexpr uint32_t kFirst[] = {1};
constexpr uint32_t kSecond[] = {2};
constexpr uint32_t kBoth[] = {1, 2};

TEST(StepWatch, AStepEndsWhenATensorComesAgain) {
  StepWatch watch(10);
  EXPECT_FALSE(watch.on_submitted(kFirst, 10, 10));
  EXPECT_FALSE(watch.on_submitted(kSecond, 20, 20));
  watch.on_delivered(35);
  const auto first = watch.on_submitted(kFirst, 50, 50);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->number, 1u);
  EXPECT_EQ(first->begin_ns, 10);
  EXPECT_EQ(first->first_submitted_ns, 10);
  EXPECT_EQ(first->last_submitted_ns, 20);
  EXPECT_EQ(first->end_ns, 35);
  EXPECT_FALSE(watch.on_submitted(kSecond, 60, 60));
  watch.on_delivered(70);
  const auto second = watch.finish();
  EXPECT_EQ(second->number, 2u);
  EXPECT_EQ(second->begin_ns, 35);
  EXPECT_EQ(second->first_submitted_ns, 50);
  EXPECT_EQ(second->end_ns, 70);
}

TEST(StepWatch, StepsDoNotOverlapWhereResultsComeLate) {
  StepWatch watch(10);
  (void)watch.on_submitted(kBoth, 10, 16);
  watch.on_delivered(25);
  const auto first = watch.on_submitted(kFirst, 18, 18);
  EXPECT_EQ(first->end_ns, 18);
}

TEST(StepWatch, WhatIsLaunchedLaterMayHaveBeenSubmittedEarlier) {
  StepWatch watch(10);
  (void)watch.on_submitted(kSecond, 30, 40);
  watch.on_delivered(45);
  (void)watch.on_submitted(kSecond, 70, 80);
  EXPECT_FALSE(watch.on_submitted(kFirst, 60, 60));
  const auto second = watch.finish();
  EXPECT_EQ(second->begin_ns, 45);
  EXPECT_EQ(second->first_submitted_ns, 60);
  EXPECT_EQ(second->last_submitted_ns, 80);
}

TEST(StepWatch, NoTimeRunsBackwardsWhereStepsAreMixed) {
  StepWatch watch(10);
  (void)watch.on_submitted(kFirst, 10, 50);
  watch.on_delivered(45);
  const auto first = watch.on_submitted(kFirst, 40, 60);  // comes before the end of the last step
  EXPECT_LE(first->last_submitted_ns, first->end_ns);
  const auto second = watch.finish();
  EXPECT_EQ(second->begin_ns, first->end_ns);
  EXPECT_LE(second->begin_ns, second->first_submitted_ns);
  EXPECT_LE(second->first_submitted_ns, second->last_submitted_ns);
}

TEST(StepWatch, TensorsBeyondItsBoundAreNoneOfItsBusiness) {
  constexpr uint32_t kBeyond[] = {UINT32_MAX, 10};
  StepWatch watch(10);
  (void)watch.on_submitted(kBeyond, 10, 10);
  EXPECT_FALSE(watch.on_submitted(kBeyond, 20, 20));
}

}  // namespace
}  // namespace rueda::observe
