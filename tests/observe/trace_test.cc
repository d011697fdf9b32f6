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

TEST(TraceBuffer, ABatchNamesTheTracksThatItUses) {
  TraceBuffer buffer(100, 100);
  const uint32_t a = buffer.track("a");
  const uint32_t b = buffer.track("b");
  EXPECT_EQ(buffer.track("a"), a);
  buffer.add(on_track(a, 1));
  buffer.add(on_track(a, 2));
  buffer.add(on_track(b, 3));
  const TraceBatch first = buffer.take(2);
  ASSERT_EQ(first.events.size(), 2u);
  EXPECT_EQ(first.tracks, (decltype(first.tracks){{a, "a"}}));
  const TraceBatch second = buffer.take(10);
  EXPECT_EQ(second.tracks, (decltype(second.tracks){{b, "b"}}));
  EXPECT_TRUE(buffer.is_empty());
}

TEST(TraceBuffer, BeyondItsBoundsEventsAreDroppedAndCounted) {
  TraceBuffer buffer(10, 2);
  const uint32_t track = buffer.track("a");
  (void)buffer.track("b");
  EXPECT_EQ(buffer.track("c"), TraceBuffer::kNoTrack);
  buffer.add(on_track(TraceBuffer::kNoTrack, 1));
  for (int i = 0; i < 15; ++i) buffer.add(on_track(track, i));
  buffer.count_dropped(3);
  const TraceBatch batch = buffer.take(100);
  EXPECT_EQ(batch.events.size(), 10u);
  EXPECT_EQ(batch.events.back().begin_ns, 9);
  EXPECT_EQ(batch.dropped, 1u + 5u + 3u);
}

TEST(StepWatch, AStepEndsWhenATensorComesAgain) {
  StepWatch watch;
  EXPECT_FALSE(watch.on_submitted(1, 10));
  EXPECT_FALSE(watch.on_submitted(2, 20));
  watch.on_delivered(35);
  const auto first = watch.on_submitted(1, 50);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->number, 1u);
  EXPECT_EQ(first->begin_ns, 10);
  EXPECT_EQ(first->first_submitted_ns, 10);
  EXPECT_EQ(first->last_submitted_ns, 20);
  EXPECT_EQ(first->end_ns, 35);
  EXPECT_FALSE(watch.on_submitted(2, 60));
  watch.on_delivered(70);
  const auto second = watch.finish();
  EXPECT_EQ(second->number, 2u);
  EXPECT_EQ(second->begin_ns, 35);
  EXPECT_EQ(second->first_submitted_ns, 50);
  EXPECT_EQ(second->end_ns, 70);
}

TEST(StepWatch, StepsDoNotOverlapWhereResultsComeLate) {
  StepWatch watch;
  (void)watch.on_submitted(1, 10);
  (void)watch.on_submitted(2, 20);
  watch.on_delivered(15);
  const auto first = watch.on_submitted(1, 18);
  EXPECT_LE(first->end_ns, 18);
}

}  // namespace
}  // namespace rueda::observe
