#include "daemon/service/convert/convert_timeline.h"

#include <functional>

#include <gtest/gtest.h>

namespace rueda::service {
namespace {

using observe::TraceBatch;
using observe::TraceReady;

TraceBatch batch() {
  const auto both = std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{4, 9});
  const auto one = std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{9});
  TraceBatch batch;
  batch.node = 2;
  batch.node_id = "n2";
  batch.tracks = {{4, "tensor a"}, {9, "tensor b"}};
  batch.operations = {
      {CollectiveKind::kAllreduce,
       0,
       7,
       1000,
       1200,
       5000,
       both,
       {{5, 1, -400}, {5, 1, TraceReady::kNever}, {6, 2, 1000}}},
      {CollectiveKind::kAlltoall, 3, uint64_t{1} << 63, -70, -70, -60, one, {{5, 1, -90}}},
      {CollectiveKind::kAllreduce, 0, 8, 6000, 6000, 6000, both, {}}};
  batch.is_last = true;
  return batch;
}

v1::TimelineMessage wire_of(const TraceBatch& batch) {
  v1::TimelineMessage wire;
  EXPECT_TRUE(
      wire.ParseFromString(to_proto(engine::TimelineMessage{"job", batch}).SerializeAsString()));
  return wire;
}

TEST(ConvertTimeline, OperationsComeThroughAsTheyWere) {
  const v1::TimelineMessage wire = wire_of(batch());
  EXPECT_EQ(wire.batch().tensors_size(), 2);  // a list that operations share goes once
  const auto back = from_proto(wire);
  ASSERT_TRUE(back.is_ok()) << back.status().message();
  const TraceBatch& came = std::get<TraceBatch>(back.value().body);
  const TraceBatch sent = batch();
  ASSERT_EQ(came.operations.size(), sent.operations.size());
  for (size_t i = 0; i < sent.operations.size(); ++i) {
    const observe::TraceOperation& left = came.operations[i];
    const observe::TraceOperation& right = sent.operations[i];
    EXPECT_EQ(left.kind, right.kind);
    EXPECT_EQ(left.process_set, right.process_set);
    EXPECT_EQ(left.number, right.number);
    EXPECT_EQ(left.launched_ns, right.launched_ns);
    EXPECT_EQ(left.begun_ns, right.begun_ns);
    EXPECT_EQ(left.ended_ns, right.ended_ns);
    EXPECT_EQ(*left.tensors, *right.tensors);
    EXPECT_EQ(left.ready, right.ready);
  }
  EXPECT_EQ(came.operations[0].tensors, came.operations[2].tensors);
  EXPECT_EQ(came.tracks, sent.tracks);
  EXPECT_TRUE(came.is_last);
}

TEST(ConvertTimeline, OperationsThatCannotBeAreRefused) {
  using Operation = v1::TimelineBatch::Operation;
  const std::vector<std::function<void(Operation&)>> mistakes{
      [](Operation& item) { item.set_tensors(2); },
      [](Operation& item) { item.set_kind(kCollectiveKindCount); },
      [](Operation& item) { item.add_ready_rank(1); },
      [](Operation& item) { item.add_ready_tensors(1); },
      [](Operation& item) { item.add_ready_before_ns(1); },
      [](Operation& item) { item.set_ready_tensors(2, 3); },
      [](Operation& item) { item.set_ready_before_ns(0, UINT64_MAX); },
      [](Operation& item) { item.set_launched_ns(INT64_MAX); },
      [](Operation& item) { item.set_begun_after_ns(-1); },
      [](Operation& item) { item.set_ended_after_ns(INT64_MAX); },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    v1::TimelineMessage wire = wire_of(batch());
    mistakes[i](*wire.mutable_batch()->mutable_operations(0));
    EXPECT_EQ(from_proto(wire).status().code(), Code::kInvalidArgument) << i;
  }
}

// Whoever accepts these times adds them to each other.
TEST(ConvertTimeline, ClocksAndEventsThatCannotBeAreRefused) {
  const std::vector<std::function<void(v1::TimelineMessage&)>> mistakes{
      [](auto& wire) { wire.mutable_batch()->set_clock_offset_ns(INT64_MIN); },
      [](auto& wire) { wire.mutable_batch()->set_clock_error_ns(-1); },
      [](auto& wire) { wire.mutable_batch()->set_begin_delta_ns(0, INT64_MAX); },
      [](auto& wire) { wire.mutable_batch()->set_duration_ns(0, INT64_MAX); },
      [](auto& wire) { wire.mutable_batch()->set_node(-1); },
      [](auto& wire) { wire.mutable_batch()->set_node(1 << 20); },
      [](auto& wire) { wire.mutable_clock_ask()->set_asked_ns(INT64_MAX); },
      [](auto& wire) { wire.mutable_clock_answer()->set_asked_ns(INT64_MIN); },
      [](auto& wire) { wire.mutable_clock_answer()->set_heard_ns(INT64_MAX); },
      [](auto& wire) { wire.mutable_clock_answer()->set_replied_ns(INT64_MAX); },
  };
  TraceBatch whole = batch();
  whole.events.push_back({4, observe::TraceKind::kRing, 0, 1000, 10, 7, 1});
  ASSERT_TRUE(from_proto(wire_of(whole)).is_ok());
  for (size_t i = 0; i < mistakes.size(); ++i) {
    v1::TimelineMessage wire = wire_of(whole);
    mistakes[i](wire);
    EXPECT_EQ(from_proto(wire).status().code(), Code::kInvalidArgument) << i;
  }
}

}  // namespace
}  // namespace rueda::service
