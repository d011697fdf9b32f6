#include "daemon/engine/trace/timeline.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

namespace rueda::engine {
namespace {

constexpr observe::TraceBatchSize kBatch{.records = 4096, .events = 1 << 16};
constexpr int kMaxInFlight = 8;       // In batches.
constexpr size_t kMaxFromBelow = 64;  // In batches.
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kQuickAsks = 8;  // They come before the first events go.
constexpr int64_t kAskEveryNs = 500'000'000;
constexpr auto kEndPatience = std::chrono::milliseconds(1000);

}  // namespace

Timeline::Timeline(boost::asio::io_context& loop, observe::JobMetrics& metrics,
                   TimelineOptions options, TimelineHost& host)
    : metrics_(metrics),
      options_(std::move(options)),
      host_(host),
      timer_(loop),
      end_timer_(loop) {}

void Timeline::send(NodeIndex to, decltype(TimelineMessage::body) body) {
  host_.send_timeline(to, {options_.job, std::move(body)});
}

// --- On and off ----------------------------------------------------------------------------------

Status Timeline::request_of(const TimelineRequest& wanted, bool is_from_elsewhere) {
  if (const auto parent = host_.timeline_parent()) {
    send(*parent, wanted);
    return Status::ok();
  }
  if (!wanted.begins) {
    if (path_.empty()) {
      return {Code::kInvalidArgument, "job " + options_.job + " writes no timeline"};
    }
    if (std::exchange(is_ending_, true)) return Status::ok();
    for (const NodeIndex child : host_.timeline_children()) send(child, TimelineEnd{});
    end_when_idle();
    if (path_.empty()) return Status::ok();
    end_timer_.expires_after(kEndPatience);
    end_timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
      if (error) return;
      end();
      if (!path_.empty()) tell_closed();
    }));
    return Status::ok();
  }
  if (!path_.empty()) {
    return {Code::kInvalidArgument,
            "job " + options_.job + " writes a timeline already, to " + path_ + "; stop it first"};
  }
  if (!host_.tell_launcher(TimelineOpened{wanted.path, is_from_elsewhere})) {
    return {Code::kUnavailable, "the launcher of job " + options_.job +
                                    ", which is to write the timeline, takes nothing"};
  }
  path_ = wanted.path;
  is_ending_ = false;
  recording_.clear();
  spdlog::info("job {}: a timeline begins, for {}", options_.job, path_);
  begin(wanted.wants_chunks);
  on_epoch_started();
  return Status::ok();
}

void Timeline::begin(bool wants_chunks) {
  if (trace_) return;
  JobTraceOptions trace;
  trace.ranks = options_.ranks;
  trace.wants_chunks = wants_chunks_ = wants_chunks;
  trace.clock_skew_ns = options_.clock_skew_ns;
  trace_ = std::make_unique<JobTrace>(std::move(trace));
  counted_dropped_ = 0;
  lost_here_.clear();
  in_flight_ = 0;
  clock_ = {};
  map_ = {};
  if (is_root()) {
    map_.set(now_ns(), {});
  } else {
    quick_asks_ = kQuickAsks;
    ask_clock();
  }
  arm();
}

void Timeline::end_when_idle() {
  if (trace_ && trace_->has_under_way()) {
    is_finishing_ = true;  // tick() looks at it.
    return;
  }
  end();
  close_if_complete();
}

void Timeline::end() {
  is_finishing_ = false;
  if (!trace_) return;
  trace_->finish();
  send_up(true);
  observe::TraceBatch last = take_batch();
  last.is_last = true;
  trace_.reset();
  timer_.cancel();
  pass_on(std::move(last));
}

void Timeline::on_epoch_started() {
  if (!trace_ || is_ending_) return;
  for (const NodeIndex child : host_.timeline_children()) send(child, TimelineBegin{wants_chunks_});
}

void Timeline::on_node_lost(NodeIndex node) {
  if (recording_.erase(node) > 0) close_if_complete();
}

void Timeline::flush() {
  if (trace_) send_up(true);
}

void Timeline::close() {
  end();
  if (!path_.empty()) tell_closed();
}

void Timeline::close_if_complete() {
  if (is_ending_ && !trace_ && recording_.empty() && !path_.empty()) tell_closed();
}

void Timeline::tell_closed() {
  end_timer_.cancel();
  TimelineClosed closed;
  for (const NodeIndex node : recording_) {
    closed.missing_nodes.push_back(options_.node_ids[static_cast<size_t>(node.value)]);
  }
  spdlog::info("job {}: the timeline {} has ended", options_.job, path_);
  path_.clear();
  recording_.clear();
  host_.tell_launcher(std::move(closed));
}

// --- Messages ------------------------------------------------------------------------------------

void Timeline::on_message(NodeIndex from, TimelineMessage message) {
  std::visit([&](auto& body) { on(from, body); }, message.body);
}

void Timeline::on(NodeIndex, const TimelineRequest& wanted) {
  if (const Status status = request_of(wanted, true); !status.is_ok()) {
    spdlog::warn("job {}: {}", options_.job, status.message());
  }
}

void Timeline::on(NodeIndex from, const TimelineBegin& begun) {
  if (host_.timeline_parent() != from) return;
  if (is_finishing_) end();
  if (trace_) {  // An epoch has begun, so what was on its way may have been lost with the last one.
    trace_->buffer().name_again();
    in_flight_ = 0;
  }
  begin(begun.wants_chunks);
  on_epoch_started();
}

void Timeline::on(NodeIndex from, const TimelineEnd& ended) {
  if (host_.timeline_parent() != from) return;
  for (const NodeIndex child : host_.timeline_children()) send(child, ended);
  end_when_idle();
}

bool Timeline::is_credible(NodeIndex from, const observe::TraceBatch& batch) const {
  const auto nodes = static_cast<int32_t>(options_.node_ids.size());
  return batch.node >= 0 && batch.node < nodes && host_.is_below_child(NodeIndex{batch.node}, from);
}

void Timeline::on(NodeIndex from, observe::TraceBatch& batch) {
  send(from, TimelineTaken{});
  if (!is_credible(from, batch)) {
    if (std::exchange(warned_of_batch_, true)) return;
    spdlog::warn(
        "job {}: node {} sent events of node index {}, which cannot have any that come "
        "from there; they are dropped, as will be further ones",
        options_.job, options_.node_ids[static_cast<size_t>(from.value)], batch.node);
    return;
  }
  batch.node_id = options_.node_ids[static_cast<size_t>(batch.node)];
  if (is_root()) return write(std::move(batch));
  if (from_below_.size() >= kMaxFromBelow && !batch.is_last) return drop(batch);
  from_below_.push_back(std::move(batch));
  send_up(!trace_);
}

void Timeline::on(NodeIndex from, const TimelineTaken&) {
  if (host_.timeline_parent() != from) return;
  if (in_flight_ > 0) --in_flight_;
  if (trace_) send_up(false);
}

void Timeline::on(NodeIndex from, const ClockAsk& ask) {
  if (is_root() && !path_.empty() && !is_ending_) recording_.insert(from);
  const int64_t now = now_ns();
  send(from, ClockAnswer{ask.asked_ns, now, now});
}

void Timeline::on(NodeIndex from, const ClockAnswer& answer) {
  if (!trace_ || host_.timeline_parent() != from) return;
  const int64_t now = now_ns();
  clock_.add({answer.asked_ns, answer.heard_ns, answer.replied_ns, now});
  if (quick_asks_ > 0 && --quick_asks_ > 0) return ask_clock();
  if (const auto offset = clock_.at(now)) map_.set(now, *offset);
}

// --- The clock -----------------------------------------------------------------------------------

void Timeline::ask_clock() {
  next_ask_ns_ = now_ns() + kAskEveryNs;
  if (const auto parent = host_.timeline_parent()) send(*parent, ClockAsk{now_ns()});
}

void Timeline::arm() {
  timer_.expires_after(kTick);
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (error || !trace_) return;
    tick();
    if (trace_) arm();
  }));
}

void Timeline::tick() {
  if (now_ns() >= next_ask_ns_) ask_clock();
  send_up(false);
  if (is_finishing_) end_when_idle();
}

void Timeline::restate(observe::TraceBatch& batch) const {
  const observe::ClockOffset clock = map_.at(now_ns());
  for (observe::TraceEvent& event : batch.events) {
    const int64_t end_ns = map_.restate(event.begin_ns + event.duration_ns);
    event.begin_ns = map_.restate(event.begin_ns);
    event.duration_ns = end_ns - event.begin_ns;
  }
  for (observe::TraceOperation& operation : batch.operations) {
    for (int64_t* time : {&operation.launched_ns, &operation.begun_ns, &operation.ended_ns}) {
      *time = map_.restate(*time);
    }
    for (observe::TraceReady& item : operation.ready) {
      if (item.at_ns != observe::TraceReady::kNever) item.at_ns = map_.restate(item.at_ns);
    }
  }
  batch.clock_offset_ns += clock.offset_ns;
  batch.clock_error_ns += clock.error_ns;
}

// --- Events --------------------------------------------------------------------------------------

observe::TraceBatch Timeline::take_batch() {
  observe::TraceBatch batch = trace_->buffer().take(kBatch);
  batch.node = options_.self.value;
  batch.node_id = options_.node_ids[static_cast<size_t>(options_.self.value)];
  batch.clock_exchanges = clock_.exchanges();
  metrics_.timeline_dropped_events.Increment(
      static_cast<double>(batch.dropped - std::exchange(counted_dropped_, batch.dropped)));
  return batch;
}

void Timeline::send_up(bool sends_all) {
  const auto has_room = [&] { return sends_all || in_flight_ < kMaxInFlight; };
  if (!map_.is_known() && !sends_all) return;
  while (!from_below_.empty() && has_room()) {
    pass_on(std::move(from_below_.front()));
    from_below_.pop_front();
  }
  while (trace_ && !trace_->buffer().is_empty() && has_room()) pass_on(take_batch());
}

void Timeline::drop(const observe::TraceBatch& batch) {
  Lost& lost = lost_here_[batch.node];
  const uint64_t events = observe::count_events(batch);
  lost.events += events;
  for (const auto& [track, name] : batch.tracks) {
    if (lost.names.size() < observe::kMaxTracks) lost.names.try_emplace(track, name);
  }
  metrics_.timeline_dropped_events.Increment(static_cast<double>(events));
}

void Timeline::add_lost(observe::TraceBatch& batch) {
  const auto lost = lost_here_.find(batch.node);
  if (lost == lost_here_.end()) return;
  batch.dropped += lost->second.events;
  batch.tracks.insert(batch.tracks.end(), lost->second.names.begin(), lost->second.names.end());
  lost->second.names.clear();
}

// Passes a batch on that is this node's, or from a node below.
void Timeline::pass_on(observe::TraceBatch batch) {
  if (is_root()) return write(std::move(batch));
  if (!map_.is_known()) {  // Nobody could say when the events were.
    drop(batch);
    batch.tracks.clear();
    batch.events.clear();
    batch.operations.clear();
  }
  add_lost(batch);
  restate(batch);
  ++in_flight_;
  send(*host_.timeline_parent(), std::move(batch));
}

void Timeline::write(observe::TraceBatch batch) {
  if (path_.empty()) return;
  const NodeIndex node{batch.node};
  const bool is_last = batch.is_last;
  add_lost(batch);
  if (!host_.tell_launcher(batch)) drop(batch);
  if (node == options_.self) return;
  if (!is_last) {
    recording_.insert(node);
    return;
  }
  recording_.erase(node);
  close_if_complete();
}

}  // namespace rueda::engine
