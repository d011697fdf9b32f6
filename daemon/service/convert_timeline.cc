#include "daemon/service/convert_timeline.h"

#include <variant>

#include "daemon/base/limits.h"

namespace rueda::service {
namespace {

Status broken(const std::string& what) {
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

Result<observe::TraceBatch> read(const v1::TimelineBatch& from) {
  observe::TraceBatch to;
  if (from.node() < 0 || from.node() >= limits::kMaxNodes) return broken("a node that cannot be");
  to.node = from.node();
  to.node_id = from.node_id();
  for (const v1::TimelineBatch::Track& track : from.tracks()) {
    to.tracks.emplace_back(track.number(), track.name());
  }
  const int count = from.track_size();
  for (const int other : {from.kind_size(), from.process_set_size(), from.begin_delta_ns_size(),
                          from.duration_ns_size(), from.operation_size(), from.value_size()}) {
    if (other != count) return broken("events that are not whole");
  }
  int64_t begin_ns = 0;
  to.events.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (from.kind(i) >= observe::kTraceKindCount) {
      return broken("events of kind " + std::to_string(from.kind(i)));
    }
    if (__builtin_add_overflow(begin_ns, from.begin_delta_ns(i), &begin_ns) ||
        from.duration_ns(i) < 0) {
      return broken("times that cannot be");
    }
    to.events.push_back({from.track(i), static_cast<observe::TraceKind>(from.kind(i)),
                         from.process_set(i), begin_ns, from.duration_ns(i), from.operation(i),
                         from.value(i)});
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
  if (request.path().size() > limits::kMaxTimelinePathBytes ||
      request.path().find('\0') != std::string::npos) {
    return Status(Code::kInvalidArgument, "the path of a timeline has at most " +
                                              std::to_string(limits::kMaxTimelinePathBytes) +
                                              " bytes, none of them 0");
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
      to.body = engine::ClockAsk{message.clock_ask().asked_ns()};
      return to;
    case v1::TimelineMessage::kClockAnswer:
      to.body =
          engine::ClockAnswer{message.clock_answer().asked_ns(), message.clock_answer().heard_ns(),
                              message.clock_answer().replied_ns()};
      return to;
    case v1::TimelineMessage::BODY_NOT_SET: break;
  }
  return broken("no body");
}

v1::AgentEvent to_proto(const engine::TimelineNews& news) {
  v1::AgentEvent event;
  if (const auto* opened = std::get_if<engine::TimelineOpened>(&news)) {
    event.mutable_timeline_opened()->set_path(opened->path);
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
