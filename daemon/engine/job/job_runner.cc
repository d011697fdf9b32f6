#include "daemon/engine/job/job_runner.h"

#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/no_exception.h"
#include "daemon/engine/job/tuning_space.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

core::JobOptions core_options(const EngineContext& context, const JobSpec& spec) {
  core::JobOptions options;
  options.job = spec.job;
  options.data_address = context.data_address;
  core::AgreementOptions& agreement = options.agreement;
  agreement.mode = spec.coordination.value_or(context.options.coordination);
  agreement.fusion.threshold_bytes =
      spec.fusion_threshold_bytes.value_or(context.options.fusion_threshold_bytes);
  agreement.max_open_operations = context.options.lanes;
  agreement.lock_after_steps = spec.lock_after_steps.value_or(agreement.lock_after_steps);
  agreement.cache_capacity = spec.cache_capacity.value_or(agreement.cache_capacity);
  agreement.replayed = spec.replayed;
  agreement.records_plans = spec.records_plan;
  options.is_tuned = spec.autotunes || spec.replays;
  options.reducer = spec.reducer.value_or(context.options.reducer);
  options.inter_node = spec.inter_node.value_or(context.options.inter_node);
  agreement.tuning = tuning_options(context.options, spec, agreement.fusion.threshold_bytes,
                                    context.data_loops.size());
  options.max_launched_operations = context.options.lanes;
  options.algorithm = spec.algorithm;
  options.start_timeout_ms =
      spec.start_timeout_ms > 0 ? spec.start_timeout_ms : context.options.start_timeout_ms;
  options.suspicion_grace_ms = context.options.timeout_ms / 10;
  options.handover_grace_ms = context.options.timeout_ms / 10;
  options.handover_timeout_ms = context.options.timeout_ms;
  options.tree = context.options.tree;
  options.rack = context.options.rack;
  options.bandwidths = spec.bandwidths;
  options.stall.check_ms = spec.stall_check_ms.value_or(context.options.stall.check_ms);
  options.stall.shutdown_ms = spec.stall_shutdown_ms.value_or(context.options.stall.shutdown_ms);
  return options;
}

TimelineOptions timeline_options(const EngineContext& context, const JobSpec& spec) {
  TimelineOptions options;
  options.job = spec.job;
  options.self = spec.self;
  for (int node = 0; node < spec.layout.node_count(); ++node) {
    options.node_ids.push_back(spec.layout.node(NodeIndex{node}).node_id);
  }
  options.ranks = spec.layout.node(spec.self).ranks;
  options.clock_skew_ns = context.options.clock_skew_ns;
  return options;
}

// Says who it is, on a link where nobody is known yet.
bool introduces_sender(const core::Message& message) {
  const auto* handover = std::get_if<core::Handover>(&message.body);
  return std::holds_alternative<core::Join>(message.body) ||
         (handover && handover->step == core::Handover::Step::kAttach);
}

}  // namespace

JobRunner::JobRunner(const EngineContext& context, JobSpec spec, JobListener listener)
    : context_(context),
      spec_(std::move(spec)),
      listener_(std::move(listener)),
      core_(spec_.layout, spec_.self, core_options(context, spec_)),
      metrics_(context.metrics.job(spec_.job)),
      locals_(spec_.layout.node(spec_.self).ranks.size()),
      timeline_(context.control_loop, *metrics_, timeline_options(context, spec_), *this),
      finite_(context.control_loop, *metrics_,
              {spec_.job, spec_.layout, spec_.self, spec_.checks_finite}, *this),
      across_timer_(context.control_loop),
      kernels_(context.options.corrupt_reduction),
      timer_(context.control_loop) {
  const core::Coordination mode = spec_.coordination.value_or(context.options.coordination);
  if ((spec_.autotunes || spec_.replays) && mode != core::Coordination::kLocked) {
    spdlog::warn("job {}: mode {} has no plans to tune or to replay: give --coordination locked",
                 spec_.job, core_.mode());
  }
  if (!core_.is_coordinator()) link_to(core_.links().parent());
  if (spec_.timeline) (void)timeline_.request(*spec_.timeline);  // the first: it cannot be refused
}

JobRunner::~JobRunner() {
  *alive_ = false;
  for (const auto& [node, link] : parents_) context_.control_plane.release(link);
  for (const auto& [node, link] : children_) context_.control_plane.unbind(link, spec_.job);
}

// --- The core ------------------------------------------------------------------------------------

void JobRunner::step(core::Event event) {
  begin_turn();
  now_ms_ = running_ms();
  core_.step(now_ms_, std::move(event), output_);
  carry_out();
}

void JobRunner::begin_turn() {
  if (std::exchange(turn_pending_, true)) return;
  now_ms_ = running_ms();
  turn_began_s_ = steady_now_s();
  boost::asio::post(context_.control_loop, [this, alive = alive_] {
    if (*alive) guarded([this] { end_turn(); });
  });
}

void JobRunner::guarded(const std::function<void()>& work) {
  without_exception(work, [this](const char* what) {
    spdlog::error("job {}: cannot be served: {}", spec_.job, what);
    if (std::exchange(has_thrown_, true)) return;  // once: what ends it may throw, too
    boost::asio::post(context_.control_loop, [this, alive = alive_, why = std::string(what)] {
      if (*alive)
        end_by(Status(Code::kResourceExhausted, "the daemon on node " + describe_node() +
                                                    " cannot serve job " + spec_.job + ": " + why));
    });
  });
}

void JobRunner::end_by(const Status& why) {
  step(
      core::RankLost{LocalRank{0}, Status(why.code(), why.message(), Origin{describe_node(), {}})});
}

void JobRunner::end_turn() {
  turn_pending_ = false;
  if (std::exchange(has_small_, false)) context_.on_small();
  now_ms_ = running_ms();
  core_.step(now_ms_, core::TurnEnded{}, output_);
  carry_out();
  metrics_->queue_depth.Set(static_cast<double>(core_.submissions_in_flight()));
  count_sets();
  arm_timer();
  if (closing_ && detaching_ == 0 && close_waits_) finish_close();
}

void JobRunner::count_sets() {
  size_t stalls = 0;
  size_t locked = 0;
  const std::vector<const core::Collectives*> sets = core_.process_sets();
  for (const core::Collectives* set : sets) {
    stalls += set->stalls().count();
    locked += set->id() != 0 && set->is_locked() ? 1 : 0;
  }
  metrics_->stalled_tensors.Set(static_cast<double>(stalls));
  metrics_->process_sets.Set(static_cast<double>(sets.size() - 1));
  metrics_->locked_process_sets.Set(static_cast<double>(locked));
  metrics_->locked.Set(core_.is_locked() ? 1 : 0);
}

// Only a core that waits for time to pass is told of it: an idle job costs nothing (I6).
void JobRunner::arm_timer() {
  const std::optional<TicksMs> wanted = core_.wakes_at();
  if (!wanted || (armed_for_ && *armed_for_ <= *wanted)) return;
  armed_for_ = wanted;
  timer_.expires_after(std::chrono::milliseconds(std::max<TicksMs>(*wanted - running_ms(), 0)));
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    const TicksMs now = running_ms();
    const TicksMs late_ms = now - std::exchange(armed_for_, std::nullopt).value_or(now);
    // This daemon itself was stopped: what came meanwhile is read before anybody is judged.
    if (late_ms > std::max<TicksMs>(context_.options.timeout_ms / 4, 1'000)) {
      stopped_ms_ = steady_now_ms() - now_ms_;
      return arm_timer();
    }
    guarded([this] { step(core::TimePassed{}); });
  });
}

void JobRunner::carry_out() {
  core::Output output = std::exchange(output_, {});
  for (const std::string& note : output.notes) spdlog::info("job {}: {}", spec_.job, note);
  for (const std::string& why : output.abandoned_plans) {
    spdlog::warn("job {}: {}", spec_.job, why);
    metrics_->plans_abandoned.Increment();
  }
  for (const core::StallLine& line : output.stall_lines) {
    spdlog::log(line.is_warning ? spdlog::level::warn : spdlog::level::info, "job {}: {}",
                spec_.job, line.text);
  }
  for (const core::TuningLine& line : output.tuning) note_tuning(line);
  if (output.recorded_plan) listener_.on_plan(*output.recorded_plan);
  if (output.started) start_epoch(*output.started);
  for (auto& [to, message] : output.sends) send(to, std::move(message));
  release_old_parents();
  for (const core::ProcessSetAdded& added : output.sets_added) open_set(added);
  for (const core::Cancel& item : output.cancels) cancel(item);
  for (const core::Launch& item : output.launches) launch(item);
  if (output.failed) {
    fail(*output.failed, std::move(output.deliveries));
  } else {
    if (!output.deliveries.empty()) deliver_all(output.deliveries);
    if (output_.deliveries.empty()) {  // a step's worth of memory, for the next one
      output.deliveries.clear();
      output_.deliveries.swap(output.deliveries);
    }
  }
  for (const uint32_t removed : output.sets_removed) close_set(removed);
  if (output.finished) {
    timeline_.flush();
    finite_.flush();
  }
  if (output.finished && std::exchange(data_epoch_open_, false)) {
    context_.data_loops.end_epoch(spec_.job, *output.finished, {});
  }
}

void JobRunner::note_tuning(const core::TuningLine& line) {
  const bool is_settled = line.phase == "settled";
  const core::DataTuning& data = line.setting.data;
  spdlog::log(
      is_settled ? spdlog::level::info : spdlog::level::debug,
      "job {}: autotuning, {}: fusion {} bytes, chunks {}, streams {}, cut-overs 2^{}: {:.3f} "
      "ms a step{}{}",
      spec_.job, line.phase, line.setting.fusion_bytes, data.chunk_bytes, data.streams,
      data.cutover_log2, line.round_ms, line.verdict.empty() ? "" : ", ", line.verdict);
  metrics_->autotuning.Set(is_settled ? 0 : 1);
  if (line.verdict.empty()) metrics_->tuning_windows.Increment();
  listener_.on_tuning(line);
}

void JobRunner::start_epoch(const core::EpochStarted& started) {
  spdlog::info("job {}: epoch {} begins with {} ranks on {} nodes", spec_.job, started.epoch.value,
               spec_.layout.world_size(), spec_.layout.node_count());
  data_epoch_open_ = true;
  data_epoch_ = started.epoch;
  data_addresses_ = started.data_addresses;
  loops_ = common_loops();
  if (core_.layout().ring() != core_.layout().members()) {
    spdlog::info("job {}: the ring is {}", spec_.job, fmt::join(ring(), ", "));
  }
  staging_.clear();  // of the epoch before
  open_data(0, core_.layout());
  timeline_.on_epoch_started();
  finite_.on_epoch_started();

  session::Started place;
  place.epoch = started.epoch;
  place.world_size = spec_.layout.world_size();
  place.local_size = static_cast<int32_t>(locals_.size());
  place.node = spec_.self;
  place.node_count = spec_.layout.node_count();
  place.node_id = describe_node();
  place.checks_finite = spec_.checks_finite;
  for (Local& item : locals_) {
    if (item.session) item.session->started(place);
  }
  if (listener_.on_started) listener_.on_started(started.epoch);
}

// The clients are told only when nothing reads or writes their memory any more.
Status JobRunner::with_trouble(const Status& status) const {
  std::string text = status.message();
  for (const auto& [node, link] : parents_) {
    const std::string trouble = context_.control_plane.trouble(link);
    if (!trouble.empty()) text += "; node " + spec_.layout.node(node).node_id + ": " + trouble;
  }
  return {status.code(), text, status.origin()};
}

void JobRunner::fail(const Status& cause, std::vector<core::Delivery> deliveries) {
  // What does not start may be a matter of addresses, which core knows nothing of.
  const Status status =
      cause.code() == Code::kTimeout && !data_epoch_open_ ? with_trouble(cause) : cause;
  spdlog::error("job {} is over: {}", spec_.job, status.message());
  finite_.flush();
  context_.metrics.daemon().job_failures.Increment();
  failing_ = true;
  auto tell = [this, alive = alive_, status, deliveries = std::move(deliveries)] {
    if (!*alive) return;
    failing_ = false;
    operations_.clear();
    staged_.clear();
    in_order_.clear();
    deliver_all(deliveries);
    for (Local& item : locals_) {
      if (item.session) item.session->job_failed(status);
    }
    if (listener_.on_failed) listener_.on_failed(status);
    if (on_closed_) std::exchange(on_closed_, nullptr)();
  };
  auto then = [this, alive = alive_, tell = std::move(tell)]() mutable {
    if (*alive) stop_device(std::move(tell));
  };
  if (!std::exchange(data_epoch_open_, false)) {
    boost::asio::post(context_.control_loop, std::move(then));
    return;
  }
  context_.data_loops.end_epoch(spec_.job, data_epoch_,
                                [&loop = context_.control_loop, then = std::move(then)]() mutable {
                                  boost::asio::post(loop, std::move(then));
                                });
}

// --- Sessions ------------------------------------------------------------------------------------

Status JobRunner::may_attach(const session::Attach& attach) const {
  const LocalRank rank = attach.local_rank;
  const bool in_range = rank.value >= 0 && static_cast<size_t>(rank.value) < locals_.size();
  if (in_range && core_.global_rank(rank) != attach.rank) {
    return Status(Code::kInvalidArgument,
                  "local rank " + std::to_string(rank.value) + " of job " + spec_.job +
                      " on node " + describe_node() + " is rank " +
                      std::to_string(core_.global_rank(rank).value) + ", not " +
                      std::to_string(attach.rank.value) + "; check RANK and LOCAL_RANK");
  }
  if (closing_) return Status(closing_->code(), "job " + spec_.job + " has been closed");
  // The core hears of an attach, and of a goodbye, a turn later.
  if (in_range && core_.state() != core::JobState::kFailed) {
    const Local& item = locals_[static_cast<size_t>(rank.value)];
    if (item.session) {
      return Status(Code::kInvalidArgument, "rank " + std::to_string(attach.rank.value) +
                                                " of job " + spec_.job +
                                                " is attached already; start each rank once");
    }
    if (item.detaching) return Status::ok();
  }
  return core_.may_attach(rank);
}

void JobRunner::on_attached(session::Session& session) {
  const LocalRank rank = session.attach().local_rank;
  Local& item = local(rank);
  item.session = &session;
  item.capacity = session.ring_capacity();
  ++attached_sessions_;
  if (item.detaching) {
    item.attach_deferred = true;
    return;
  }
  // From a fresh turn: the session must have answered the client before the job may start.
  boost::asio::post(context_.control_loop, [this, alive = alive_, rank, expected = &session] {
    if (!*alive || local(rank).session != expected) return;
    if (closing_) return expected->job_failed(*closing_);
    guarded([&] { step(core::RankAttached{rank}); });
  });
}

void JobRunner::on_waiting(session::Session& session, std::optional<Ticket> ticket) {
  const core::RankWaits event{session.attach().local_rank, ticket};
  if (core_.any_set_locked() && ticket) return step(event);
  now_ms_ = running_ms();
  core_.step(now_ms_, event, output_);  // only remembered: it costs no turn
}

void JobRunner::on_detached(session::Session& session) {
  const LocalRank rank = session.attach().local_rank;
  Local& item = local(rank);
  if (const Held* const left = left_on_device(rank)) {
    return on_lost(
        session,
        Status(Code::kRankLost, "rank " + std::to_string(core_.global_rank(rank).value) +
                                    " said goodbye while tensor \"" + left->descriptor->name +
                                    "\" in its device memory was under way: wait for every handle "
                                    "before rueda_shutdown"));
  }
  item.session = nullptr;
  --attached_sessions_;
  if (std::exchange(item.attach_deferred, false)) return;  // the core never heard of it
  item.arenas = session.arenas();
  item.detaching = true;
  ++detaching_;
  const auto then = [this, alive = alive_, &loop = context_.control_loop, rank] {
    boost::asio::post(loop, [this, alive, rank] {
      if (*alive) finish_detach(rank);
    });
  };
  // A rank is gone for the others only when the neighbour has all that this node had to pass on:
  // then this daemon may stop without taking anybody's result with it.
  if (data_epoch_open_) {
    context_.data_loops.when_quiet(spec_.job, data_epoch_, then);
  } else {
    then();
  }
}

void JobRunner::finish_detach(LocalRank rank) {
  Local& item = local(rank);
  item.detaching = false;
  --detaching_;
  step(core::RankDetached{rank});
  item.arenas.clear();
  if (device_) device_->drop(rank);
  // In a failed job the newcomer stays deferred: what is still to be told is its predecessor's.
  if (core_.state() != core::JobState::kFailed && std::exchange(item.attach_deferred, false)) {
    step(core::RankAttached{rank});
  }
  if (detaching_ == 0 && closing_) finish_close();
}

void JobRunner::on_lost(session::Session& session, const Status& status) {
  const LocalRank rank = session.attach().local_rank;
  Local& item = local(rank);
  item.session = nullptr;
  --attached_sessions_;
  if (std::exchange(item.attach_deferred, false)) return;
  step(core::RankLost{rank, Status(status.code(), status.message(),
                                   Origin{describe_node(), core_.global_rank(rank)})});
}

void JobRunner::look_at_sessions() {
  for (const Local& item : locals_) {
    if (item.session) item.session->look();
  }
}

void JobRunner::on_rank_failed(Rank rank, const std::string& text) {
  for (size_t i = 0; i < locals_.size(); ++i) {
    const LocalRank local_rank{static_cast<int32_t>(i)};
    if (core_.global_rank(local_rank) != rank) continue;
    // Its session says more exactly how it ended; unless what it forked holds the socket.
    if (locals_[i].session) locals_[i].session->look();
    step(core::RankLost{local_rank, Status(Code::kRankLost, text, Origin{describe_node(), rank})});
    return;
  }
}

// --- Links ---------------------------------------------------------------------------------------

bool JobRunner::is_parent(NodeIndex node) const {
  return (!core_.is_coordinator() && node == core_.links().parent()) || node == core_.next_parent();
}

std::optional<LinkId> JobRunner::link_to(NodeIndex node) {
  if (!is_parent(node)) {
    const auto it = children_.find(node);
    return it == children_.end() ? std::nullopt : std::optional(it->second);
  }
  LinkId& link = parents_[node];
  if (link == 0) link = context_.control_plane.acquire(spec_.layout.node(node).control_address);
  return link;
}

void JobRunner::release_old_parents() {
  std::erase_if(parents_, [&](const auto& entry) {
    if (is_parent(entry.first)) return false;
    context_.control_plane.release(entry.second);
    return true;
  });
}

void JobRunner::send(NodeIndex to, core::Message message) {
  const std::optional<LinkId> link = link_to(to);
  if (!link) return;  // it has not joined; it will ask again
  Envelope envelope{spec_.job, std::move(message), {}};
  const Epoch epoch = envelope.message.epoch;
  if (introduces_sender(envelope.message)) {
    envelope.proof = make_proof(spec_.token, "join", spec_.job, epoch, spec_.self);
  } else if (std::holds_alternative<core::Start>(envelope.message.body)) {
    envelope.proof = make_proof(spec_.token, "start", spec_.job, epoch, spec_.self);
  } else if (std::holds_alternative<core::Fail>(envelope.message.body)) {
    envelope.proof = make_proof(spec_.token, "fail", spec_.job, epoch, spec_.self);
  }
  context_.control_plane.send(*link, envelope);
}

bool JobRunner::authenticate(LinkId link, const Envelope& envelope) {
  const core::Message& message = envelope.message;
  const NodeIndex from = message.sender();
  for (const NodeIndex node : {message.from, from}) {
    if (node.value < 0 || node.value >= spec_.layout.node_count() || node == spec_.self)
      return false;
  }
  const bool is_join = introduces_sender(message);
  if (is_parent(from)) {
    if (link_to(from) != link || is_join) return false;
    return !std::holds_alternative<core::Start>(message.body) ||
           proof_matches(make_proof(spec_.token, "start", spec_.job, message.epoch, from),
                         envelope.proof);
  }
  if (!is_join) {
    const auto it = children_.find(from);
    if (it != children_.end() && it->second == link) return true;
    // It has failed before it joined.
    return std::holds_alternative<core::Fail>(message.body) &&
           proof_matches(make_proof(spec_.token, "fail", spec_.job, message.epoch, from),
                         envelope.proof);
  }
  if (!proof_matches(make_proof(spec_.token, "join", spec_.job, message.epoch, from),
                     envelope.proof)) {
    return false;
  }
  LinkId& joined_over = children_[from];
  if (joined_over != 0 && joined_over != link) {
    context_.control_plane.unbind(joined_over, spec_.job);
  }
  joined_over = link;
  context_.control_plane.bind(link, spec_.job);
  return true;
}

void JobRunner::on_envelope(LinkId link, Envelope envelope) {
  if (!authenticate(link, envelope)) {
    if (!std::exchange(warned_of_stranger_, true)) {
      spdlog::warn(
          "job {}: dropped a message that claims to be from node index {}: it does not prove to "
          "belong to the job; further ones are dropped silently",
          spec_.job, envelope.message.from.value);
    }
    return;
  }
  step(core::MessageArrived{std::move(envelope.message)});
}

std::optional<NodeIndex> JobRunner::node_behind(LinkId link) const {
  for (const auto* links : {&parents_, &children_}) {
    for (const auto& [node, known] : *links) {
      if (known == link) return node;
    }
  }
  return std::nullopt;
}

void JobRunner::on_timeline(LinkId link, TimelineMessage message) {
  if (const auto from = node_behind(link)) timeline_.on_message(*from, std::move(message));
}

std::optional<NodeIndex> JobRunner::timeline_parent() const {
  if (core_.is_coordinator()) return std::nullopt;
  return core_.links().parent();
}

std::vector<NodeIndex> JobRunner::timeline_children() const {
  std::vector<NodeIndex> nodes;
  for (const auto& [node, link] : children_) nodes.push_back(node);
  return nodes;
}

void JobRunner::send_timeline(NodeIndex to, TimelineMessage message) {
  if (const std::optional<LinkId> link = link_to(to)) {
    context_.control_plane.send(*link, message);
  }
}

void JobRunner::on_link_lost(LinkId link, const Status& status) {
  if (const auto node = node_behind(link)) timeline_.on_node_lost(*node);
  const auto lost = [&](NodeIndex node) {
    const std::string& id = spec_.layout.node(node).node_id;
    step(core::NodeLost{
        node,
        Status(Code::kNodeLost, "node " + id + " is lost: " + status.message(), Origin{id, {}})});
  };
  for (const auto& [node, dialled] : parents_) {
    if (dialled == link) return lost(node);
  }
  for (auto it = children_.begin(); it != children_.end();) {
    if (it->second != link) {
      ++it;
      continue;
    }
    const NodeIndex node = it->first;
    it = children_.erase(it);
    lost(node);
  }
}

// --- The end -------------------------------------------------------------------------------------

void JobRunner::close(const Status& why, std::function<void()> done) {
  timeline_.close();
  closing_ = why;
  on_closed_ = std::move(done);
  if (detaching_ == 0) finish_close();
}

void JobRunner::finish_close() {
  if (core_.state() == core::JobState::kFailed) {
    if (!failing_ && on_closed_) std::exchange(on_closed_, nullptr)();
    return;
  }
  // The others learn that our ranks have left once the plan that has them is given up.
  close_waits_ = core_.is_coordinator() && core_.has_pending_leaves();
  if (close_waits_) return;
  if (!std::exchange(told_closed_, true)) step(core::JobClosed{*closing_});
  // In a tree, those below go on under another node.
  close_waits_ = !core_.may_go();
  if (close_waits_) return;
  if (failing_) return;  // fail() calls on_closed_ when the clients have been told
  if (std::exchange(data_epoch_open_, false)) {
    context_.data_loops.end_epoch(spec_.job, data_epoch_, {});
  }
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

const Status& JobRunner::why_over() const {
  return core_.state() == core::JobState::kFailed ? core_.failure() : *closing_;
}

}  // namespace rueda::engine
