#include "daemon/service/convert/convert_timeline.h"

#include <algorithm>
#include <unordered_map>
#include <variant>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::service {
namespace {

using observe::TraceReady;

Status broken_timeline(const std::string& what) {
  return Status(Code::kInvalidArgument, "a timeline's message has " + what);
}

void fill(const engine::TimelineRequest& from, v1::TimelineMessage& to) {
  v1::TimelineRequest& request = *to.mutable_request();
  request.set_begins(from.begins);
  request.set_path(from.path);
  request.set_chunks(from.wants_chunks);
}

void fill(const engine::TimelineBegin& from, v1::TimelineMessage& to) {
  to.mutable_begin()->set_chunks(from.wants_chunks);
}

void fill(const engine::TimelineEnd&, v1::TimelineMessage& to) { to.mutable_end(); }

void fill(const observe::TraceOperation& from, v1::TimelineBatch::Operation& to) {
  to.set_kind(static_cast<uint32_t>(from.kind));
  to.set_process_set(from.process_set);
  to.set_number(from.number);
  to.set_launched_ns(from.launched_ns);
  to.set_begun_after_ns(from.begun_ns - from.launched_ns);
  to.set_ended_after_ns(from.ended_ns - from.launched_ns);
  const auto runs = static_cast<int>(from.ready.size());
  to.mutable_ready_rank()->Reserve(runs);
  to.mutable_ready_tensors()->Reserve(runs);
  to.mutable_ready_before_ns()->Reserve(runs);
  for (const TraceReady& item : from.ready) {
    to.add_ready_rank(item.rank);
    to.add_ready_tensors(item.tensors);
    if (item.at_ns == TraceReady::kNever) {
      to.add_ready_before_ns(0);
      continue;
    }
    // The value was a number of seconds, and may be wrong by a nanosecond.
    const int64_t before_ns = std::max<int64_t>(from.launched_ns - item.at_ns, 0);
    to.add_ready_before_ns(static_cast<uint64_t>(before_ns) + 1);
  }
}

void fill(const observe::TraceBatch& from, v1::TimelineBatch& to) {
  to.set_node(from.node);
  to.set_node_id(from.node_id);
  for (const auto& [number, name] : from.tracks) {
    v1::TimelineBatch::Track& track = *to.add_tracks();
    track.set_number(number);
    track.set_name(name);
  }
  int64_t before_ns = 0;
  for (const observe::TraceEvent& event : from.events) {
    to.add_track(event.track);
    to.add_kind(static_cast<uint32_t>(event.kind));
    to.add_process_set(event.process_set);
    to.add_begin_delta_ns(event.begin_ns - before_ns);
    to.add_duration_ns(event.duration_ns);
    to.add_operation(event.operation);
    to.add_value(event.value);
    before_ns = event.begin_ns;
  }
  std::unordered_map<const void*, uint32_t> places;
  for (const observe::TraceOperation& operation : from.operations) {
    const auto [place, is_new] =
        places.emplace(operation.tensors.get(), static_cast<uint32_t>(places.size()));
    if (is_new) {
      to.add_tensors()->mutable_track()->Add(operation.tensors->begin(), operation.tensors->end());
    }
    v1::TimelineBatch::Operation& added = *to.add_operations();
    added.set_tensors(place->second);
    fill(operation, added);
  }
  to.set_dropped(from.dropped);
  to.set_clock_offset_ns(from.clock_offset_ns);
  to.set_clock_error_ns(from.clock_error_ns);
  to.set_clock_exchanges(from.clock_exchanges);
  to.set_is_last(from.is_last);
}

void fill(const observe::TraceBatch& from, v1::TimelineMessage& to) {
  fill(from, *to.mutable_batch());
}

void fill(const engine::TimelineTaken&, v1::TimelineMessage& to) { to.mutable_taken(); }

void fill(const engine::ClockAsk& from, v1::TimelineMessage& to) {
  to.mutable_clock_ask()->set_asked_ns(from.asked_ns);
}

void fill(const engine::ClockAnswer& from, v1::TimelineMessage& to) {
  v1::ClockAnswer& answer = *to.mutable_clock_answer();
  answer.set_asked_ns(from.asked_ns);
  answer.set_heard_ns(from.heard_ns);
  answer.set_replied_ns(from.replied_ns);
}

// Times are bounded so that sums of a few of them do not overflow.
bool is_time(int64_t ns) { return ns > -INT64_MAX / 4 && ns < INT64_MAX / 4; }
bool is_duration(int64_t ns) { return ns >= 0 && is_time(ns); }

Result<observe::TraceOperation> read(const v1::TimelineBatch::Operation& from,
                                     const std::vector<observe::TraceTensors>& tensors) {
  observe::TraceOperation to;
  const int runs = from.ready_rank_size();
  if (from.tensors() >= tensors.size() || from.kind() >= kCollectiveKindCount ||
      from.ready_tensors_size() != runs || from.ready_before_ns_size() != runs) {
    return broken_timeline("an operation that is not whole");
  }
  if (!is_time(from.launched_ns()) || !is_duration(from.begun_after_ns()) ||
      !is_duration(from.ended_after_ns())) {
    return broken_timeline("times that cannot be");
  }
  to.kind = static_cast<CollectiveKind>(from.kind());
  to.process_set = from.process_set();
  to.number = from.number();
  to.launched_ns = from.launched_ns();
  to.begun_ns = from.launched_ns() + from.begun_after_ns();
  to.ended_ns = from.launched_ns() + from.ended_after_ns();
  to.tensors = tensors[from.tensors()];
  to.ready.reserve(static_cast<size_t>(runs));
  uint64_t of_rank = 0;
  for (int i = 0; i < runs; ++i) {
    if (i > 0 && from.ready_rank(i) != from.ready_rank(i - 1)) of_rank = 0;
    of_rank += from.ready_tensors(i);
    if (of_rank > to.tensors->size()) return broken_timeline("more tensors than an operation has");
    const uint64_t before_ns = from.ready_before_ns(i);
    if (before_ns > INT64_MAX / 4) return broken_timeline("times that cannot be");
    to.ready.push_back({from.ready_rank(i), from.ready_tensors(i),
                        before_ns == 0 ? TraceReady::kNever
                                       : to.launched_ns - static_cast<int64_t>(before_ns - 1)});
  }
  return to;
}

Result<observe::TraceBatch> read(const v1::TimelineBatch& from) {
  observe::TraceBatch to;
  if (from.node() < 0 || from.node() >= limits::kMaxNodes)
    return broken_timeline("a node that cannot be");
  to.node = from.node();
  to.node_id = one_line(from.node_id(), kShownNameBytes);
  for (const v1::TimelineBatch::Track& track : from.tracks()) {
    to.tracks.emplace_back(track.number(), one_line(track.name(), limits::kMaxTensorNameBytes));
  }
  const int count = from.track_size();
  for (const int other : {from.kind_size(), from.process_set_size(), from.begin_delta_ns_size(),
                          from.duration_ns_size(), from.operation_size(), from.value_size()}) {
    if (other != count) return broken_timeline("events that are not whole");
  }
  int64_t begin_ns = 0;
  to.events.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (from.kind(i) >= observe::kTraceKindCount) {
      return broken_timeline("events of kind " + std::to_string(from.kind(i)));
    }
    if (__builtin_add_overflow(begin_ns, from.begin_delta_ns(i), &begin_ns) || !is_time(begin_ns) ||
        !is_duration(from.duration_ns(i))) {
      return broken_timeline("times that cannot be");
    }
    to.events.push_back({from.track(i), static_cast<observe::TraceKind>(from.kind(i)),
                         from.process_set(i), begin_ns, from.duration_ns(i), from.operation(i),
                         from.value(i)});
  }
  std::vector<observe::TraceTensors> tensors;
  for (const v1::TimelineBatch::Tensors& item : from.tensors()) {
    tensors.push_back(
        std::make_shared<const std::vector<uint32_t>>(item.track().begin(), item.track().end()));
  }
  for (const v1::TimelineBatch::Operation& item : from.operations()) {
    Result<observe::TraceOperation> operation = read(item, tensors);
    if (!operation.is_ok()) return operation.status();
    to.operations.push_back(std::move(operation).value());
  }
  if (!is_time(from.clock_offset_ns()) || !is_duration(from.clock_error_ns())) {
    return broken_timeline("a clock that cannot be");
  }
  to.dropped = from.dropped();
  to.clock_offset_ns = from.clock_offset_ns();
  to.clock_error_ns = from.clock_error_ns();
  to.clock_exchanges = from.clock_exchanges();
  to.is_last = from.is_last();
  return to;
}

}  // namespace

v1::TimelineMessage to_proto(const engine::TimelineMessage& message) {
  v1::TimelineMessage to;
  to.set_job_id(message.job);
  std::visit([&](const auto& body) { fill(body, to); }, message.body);
  return to;
}

Result<engine::TimelineRequest> from_proto(const v1::TimelineRequest& request) {
  if (request.path().size() > limits::kMaxTimelinePathBytes || !is_one_line(request.path())) {
    return Status(Code::kInvalidArgument, "the path of a timeline has at most " +
                                              std::to_string(limits::kMaxTimelinePathBytes) +
                                              " bytes, all of them printable UTF-8");
  }
  if (request.begins() && request.path().empty()) {
    return Status(Code::kInvalidArgument, "a timeline needs the path of a file");
  }
  return engine::TimelineRequest{request.begins(), request.path(), request.chunks()};
}

Result<engine::TimelineMessage> from_proto(const v1::TimelineMessage& message) {
  engine::TimelineMessage to;
  to.job = message.job_id();
  switch (message.body_case()) {
    case v1::TimelineMessage::kRequest: {
      Result<engine::TimelineRequest> request = from_proto(message.request());
      if (!request.is_ok()) return request.status();
      to.body = std::move(request).value();
      return to;
    }
    case v1::TimelineMessage::kBegin:
      to.body = engine::TimelineBegin{message.begin().chunks()};
      return to;
    case v1::TimelineMessage::kEnd: to.body = engine::TimelineEnd{}; return to;
    case v1::TimelineMessage::kBatch: {
      Result<observe::TraceBatch> batch = read(message.batch());
      if (!batch.is_ok()) return batch.status();
      to.body = std::move(batch).value();
      return to;
    }
    case v1::TimelineMessage::kTaken: to.body = engine::TimelineTaken{}; return to;
    case v1::TimelineMessage::kClockAsk:
      if (!is_time(message.clock_ask().asked_ns()))
        return broken_timeline("a clock that cannot be");
      to.body = engine::ClockAsk{message.clock_ask().asked_ns()};
      return to;
    case v1::TimelineMessage::kClockAnswer: {
      const v1::ClockAnswer& answer = message.clock_answer();
      if (!is_time(answer.asked_ns()) || !is_time(answer.heard_ns()) ||
          !is_time(answer.replied_ns())) {
        return broken_timeline("a clock that cannot be");
      }
      to.body = engine::ClockAnswer{answer.asked_ns(), answer.heard_ns(), answer.replied_ns()};
      return to;
    }
    case v1::TimelineMessage::BODY_NOT_SET: break;
  }
  return broken_timeline("no body");
}

v1::AgentEvent to_proto(const engine::TimelineNews& news) {
  v1::AgentEvent event;
  if (const auto* opened = std::get_if<engine::TimelineOpened>(&news)) {
    event.mutable_timeline_opened()->set_path(opened->path);
    event.mutable_timeline_opened()->set_is_from_elsewhere(opened->is_from_elsewhere);
  } else if (const auto* batch = std::get_if<observe::TraceBatch>(&news)) {
    fill(*batch, *event.mutable_timeline_batch());
  } else {
    v1::TimelineClosed& closed = *event.mutable_timeline_closed();
    for (const std::string& node : std::get<engine::TimelineClosed>(news).missing_nodes) {
      closed.add_missing_nodes(node);
    }
  }
  return event;
}

}  // namespace rueda::service
