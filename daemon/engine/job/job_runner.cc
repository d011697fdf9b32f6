#include "daemon/engine/job/job_runner.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/no_exception.h"
#include "daemon/base/soon.h"
#include "daemon/engine/job/core_options.h"

namespace rueda::engine {
namespace {

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

}  // namespace

JobRunner::JobRunner(const EngineContext& context, JobSpec spec, JobListener listener)
    : context_(context),
      spec_(std::move(spec)),
      listener_(std::move(listener)),
      core_(spec_.layout, spec_.self, core_options(context, spec_)),
      metrics_(context.metrics.job(spec_.job)),
      locals_(spec_.layout.node(spec_.self).ranks.size()),
      links_(context.control_plane, spec_, core_),
      ledger_(locals_.size(), metrics_),
      timeline_(context.control_loop, *metrics_, timeline_options(context, spec_), *this),
      finite_(context.control_loop, *metrics_,
              {spec_.job, spec_.layout, spec_.self, spec_.checks_finite}, *this),
      host_path_(context_, spec_, *this, ledger_, *metrics_),
      device_path_(context_, spec_, *this, ledger_, links_, host_path_, *metrics_),
      timer_(context.control_loop) {
  const core::Coordination mode = spec_.coordination.value_or(context.options.coordination);
  if ((spec_.autotunes || spec_.replays) && mode != core::Coordination::kLocked) {
    spdlog::warn("job {}: mode {} has no plans to tune or to replay: give --coordination locked",
                 spec_.job, core_.mode());
  }
  if ((spec_.cycle_time_us && !core::has_cycle(mode)) ||
      (spec_.sleep_agreed_every && mode != core::Coordination::kGlobalSleep)) {
    spdlog::warn("job {}: mode {} has no {}", spec_.job, core_.mode(),
                 core::has_cycle(mode)
                     ? "sleep to agree on: give --coordination global-sleep, or leave out "
                       "--sleep-agreed-every"
                     : "cycle: give --coordination cached, global-sleep or nonblocking, or leave "
                       "out --cycle-time-ms and --sleep-agreed-every");
  }
  // It is the first request, which cannot be refused.
  if (spec_.timeline) (void)timeline_.request(*spec_.timeline);
}

JobRunner::~JobRunner() { lifetime_.end(); }

// --- The core ------------------------------------------------------------------------------------

void JobRunner::step(core::Event event) {
  begin_turn();
  note_time();
  core_.step_at(now_us_, std::move(event), output_);
  carry_out();
}

void JobRunner::begin_turn() {
  if (std::exchange(turn_pending_, true)) return;
  note_time();
  turn_began_s_ = steady_now_s();
  Soon::run(context_.control_loop, lifetime_.guard([this] { guarded([this] { end_turn(); }); }));
}

void JobRunner::guarded(const std::function<void()>& work) {
  HandlerWatch::note(cause_);
  without_exception(work, [this](const char* what) {
    spdlog::error("job {}: cannot be served: {}", spec_.job, what);
    end_unserved(what);
  });
}

void JobRunner::end_unserved(const std::string& why) {
  if (std::exchange(is_unserved_, true)) return;
  boost::asio::post(context_.control_loop, lifetime_.guard([this, why] {
    end_by(Status(Code::kResourceExhausted, "the daemon on node " + describe_node() +
                                                " cannot serve job " + spec_.job + ": " + why));
  }));
}

// The watches of data loops end it, too, so it is ended on the control loop.
std::shared_ptr<const Cause> JobRunner::make_cause() {
  return std::make_shared<const Cause>(
      Cause{"job " + spec_.job + " of " + spec_.user,
            [&loop = context_.control_loop, end = lifetime_.guard([this](const std::string& why) {
              end_unserved("it " + why);
            })](const std::string& why) {
              boost::asio::post(loop, [end, why]() mutable { end(why); });
            }});
}

void JobRunner::end_by(const Status& why) {
  step(
      core::RankLost{LocalRank{0}, Status(why.code(), why.message(), Origin{describe_node(), {}})});
}

void JobRunner::end_turn() {
  turn_pending_ = false;
  if (ledger_.take_small()) context_.on_small();
  note_time();
  core_.step_at(now_us_, core::TurnEnded{}, output_);
  carry_out();
  metrics_->queue_depth.Set(static_cast<double>(core_.submissions_in_flight()));
  count_sets();
  arm_timer();
  if (closing_ && detaching_ == 0 && close_waits_) finish_close();
}

void JobRunner::count_sets() {
  size_t stalls = core_.transfers().stall_count();
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
  const std::optional<TicksUs> wanted = core_.wakes_at_us();
  if (!wanted || (armed_for_ && *armed_for_ <= *wanted)) return;
  armed_for_ = wanted;
  timer_.expires_after(std::chrono::microseconds(std::max<TicksUs>(*wanted - running_us(), 0)));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (error) return;
    const TicksUs now = running_us();
    const TicksMs late_ms = to_ms(now - std::exchange(armed_for_, std::nullopt).value_or(now));
    // This daemon itself was stopped, so what came meanwhile is read before anybody is judged.
    if (late_ms > std::max<TicksMs>(context_.options.timeout_ms / 4, 1'000)) {
      stopped_us_ = steady_now_us() - now_us_;
      return arm_timer();
    }
    guarded([this] { step(core::TimePassed{}); });
  }));
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
  if (output.rounds > 0) metrics_->order_rounds.Increment(output.rounds);
  if (output.recorded_plan) listener_.on_plan(*output.recorded_plan);
  if (output.started) start_epoch(*output.started);
  for (const NodeIndex peer : output.transfer_peers) host_path_.open_transfers(peer);
  for (const core::TransferLaunch& item : output.transfers) host_path_.launch(item);
  for (const core::TransferSend& item : output.transfer_sends) host_path_.send(item);
  for (auto& [to, message] : output.sends) links_.send(to, std::move(message));
  links_.release_old_parents();
  for (const core::ProcessSetAdded& added : output.sets_added) {
    host_path_.open_set(added.id, core_.layout().subset(added.ranks));
  }
  for (const core::Cancel& item : output.cancels) cancel(item);
  for (const core::Launch& item : output.launches) launch(item);
  if (output.failed) {
    fail(*output.failed, std::move(output.deliveries));
  } else {
    if (!output.deliveries.empty()) deliver_all(output.deliveries);
    if (output_.deliveries.empty()) {  // This keeps a step's worth of memory for the next one.
      output.deliveries.clear();
      output_.deliveries.swap(output.deliveries);
    }
  }
  for (const uint32_t removed : output.sets_removed) {
    host_path_.close_set(removed);
    device_path_.close_set(removed);
  }
  if (output.finished) {
    timeline_.flush();
    finite_.flush();
    host_path_.end_epoch({});
    listener_.on_finished();
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
  if (core_.layout().ring() != core_.layout().members()) {
    spdlog::info("job {}: the ring is {}", spec_.job, fmt::join(ring(), ", "));
  }
  metrics_->epoch.Set(static_cast<double>(started.epoch.value));
  host_path_.begin_epoch(started.epoch, started.data_addresses, core_.layout());
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
  for (size_t i = 0; i < locals_.size(); ++i) {
    place.local_rank = LocalRank{static_cast<int32_t>(i)};
    place.rank = core_.global_rank(place.local_rank);
    if (locals_[i].session) locals_[i].session->started(place);
  }
  if (listener_.on_started) listener_.on_started(started.epoch);
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
  ledger_.set_capacity(rank, session.ring_capacity());
  ++attached_sessions_;
  if (item.detaching) {
    item.attach_deferred = true;
    return;
  }
  // The rank attaches from a fresh turn, because the session must have answered the client before
  // the job may start.
  boost::asio::post(context_.control_loop, lifetime_.guard([this, rank, expected = &session] {
    if (local(rank).session != expected) return;
    if (closing_) return expected->job_failed(*closing_);
    guarded([&] { step(core::RankAttached{rank}); });
  }));
}

void JobRunner::on_waiting(session::Session& session, std::optional<Ticket> ticket) {
  const core::RankWaits event{session.attach().local_rank, ticket};
  if (core_.any_set_locked() && ticket) return step(event);
  note_time();
  core_.step_at(now_us_, event, output_);  // The core only remembers it, so it costs no turn.
}

void JobRunner::on_detached(session::Session& session) {
  const LocalRank rank = session.attach().local_rank;
  Local& item = local(rank);
  const HeldSubmission* const left =
      // Nothing of a newcomer is in flight.
      item.attach_deferred ? nullptr : ledger_.left_on_device(rank);
  if (left) {
    return on_lost(
        session,
        Status(Code::kRankLost, "rank " + std::to_string(core_.global_rank(rank).value) +
                                    " said goodbye while tensor \"" + left->descriptor->name +
                                    "\" in its device memory was under way: wait for every handle "
                                    "before rueda_shutdown"));
  }
  item.session = nullptr;
  --attached_sessions_;
  if (std::exchange(item.attach_deferred, false)) return;  // The core never heard of it.
  item.arenas = session.arenas();
  item.detaching = true;
  ++detaching_;
  auto finish = lifetime_.guard([this, rank] { finish_detach(rank); });
  // A rank is gone for the others only when the neighbour has all that this node had to pass on:
  // then this daemon may stop without taking anybody's result with it.
  host_path_.when_quiet([&loop = context_.control_loop, finish = std::move(finish)]() mutable {
    boost::asio::post(loop, finish);
  });
}

void JobRunner::finish_detach(LocalRank rank) {
  Local& item = local(rank);
  item.detaching = false;
  --detaching_;
  step(core::RankDetached{rank});
  item.arenas.clear();
  device_path_.drop(rank);
  // In a failed job the newcomer stays deferred, because what is still to be told is its
  // predecessor's.
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
    // The session says more exactly how the rank ended, unless a process that it forked holds the
    // socket.
    if (locals_[i].session) locals_[i].session->look();
    step(core::RankLost{local_rank, Status(Code::kRankLost, text, Origin{describe_node(), rank})});
    return;
  }
}

// --- Submissions ---------------------------------------------------------------------------------

void JobRunner::on_submit(session::Session& session, const session::Submission& submission) {
  const LocalRank rank = session.attach().local_rank;
  if (local(rank).attach_deferred) {  // The core has not heard of this process.
    session.complete(submission.ticket,
                     Status(Code::kUnavailable, "job " + spec_.job +
                                                    " has not started: wait for rueda_init to "
                                                    "return"),
                     core_.epoch(), 0, Seq{0}, 0);
    session.flush();
    return;
  }
  if (submission.cancels) {
    session.complete(submission.ticket, Status::ok(), core_.epoch(), 0, Seq{0}, 0);
    session.flush();
    return step(core::TransferCancelled{rank, *submission.cancels});
  }
  if (Status wrong = check_place(rank, submission); !wrong.is_ok()) {
    session.complete(submission.ticket, wrong, core_.epoch(), 0, Seq{0}, 0);
    session.flush();
    return;
  }
  begin_turn();
  const core::DescriptorPtr& descriptor = hold(rank, submission);
  if (!is_transfer(descriptor->kind) &&
      core_.submit_again(now_ms_, rank, submission.ticket, descriptor)) {
    return;
  }
  core_.step_at(now_us_, core::Submitted{{rank, submission.ticket, descriptor, now_ms_, {}}},
                output_);
}

// Returns an error unless the session has made its buffers as long as the client's place among the
// ranks asks for.
Status JobRunner::check_place(LocalRank rank, const session::Submission& submission) const {
  if (submission.places == 0) return Status::ok();
  const core::TensorDescriptor& tensor = *submission.descriptor;
  const core::Collectives* set = find_set(tensor.process_set);
  if (!set) return Status::ok();  // The core returns the error.
  const std::vector<Rank> ranks = set->layout().ranks();
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), core_.global_rank(rank));
  if (at != ranks.end() && *at == core_.global_rank(rank) &&
      at - ranks.begin() == submission.place &&
      static_cast<size_t>(submission.places) == ranks.size()) {
    return Status::ok();
  }
  return Status(
      Code::kInvalidArgument,
      "the " + std::string(to_string(tensor.kind)) + " of tensor \"" + tensor.name +
          "\" is for place " + std::to_string(submission.place) + " of " +
          std::to_string(submission.places) + " ranks, and process set " +
          std::to_string(tensor.process_set) + " has " + std::to_string(ranks.size()) +
          " ranks, among them another in that place, or none; ask for the place of rank " +
          std::to_string(core_.global_rank(rank).value));
}

const core::DescriptorPtr& JobRunner::hold(LocalRank rank, const session::Submission& submission) {
  const auto [item, is_new] = ledger_.hold(rank, submission, turn_began_s_);
  if (is_new) item.descriptor = device_path_.nccl().carried(submission.descriptor);
  if (spec_.checks_finite && submission.descriptor->memory == MemorySpace::kHost) {
    count_step(rank, item);
  }
  return item.descriptor;
}

void JobRunner::deliver_all(const std::vector<core::Delivery>& deliveries) {
  JobTrace* const trace = timeline_.trace();
  for (const core::Delivery& delivery : deliveries) {
    if (trace && delivery.status.is_ok()) note_transfer(*trace, delivery);
    ledger_.end(delivery);
    Local& owner = local(delivery.rank);
    // A process that said goodbye with this in flight is not the process that is there now.
    if (!owner.session || owner.attach_deferred) continue;
    owner.session->complete(delivery.ticket, delivery.status, delivery.epoch, delivery.contributors,
                            delivery.seq, delivery.value);
    owner.dirty = true;
  }
  if (ledger_.count()) context_.on_small();
  for (Local& item : locals_) {
    if (std::exchange(item.dirty, false) && item.session) item.session->flush();
  }
}

void JobRunner::note_transfer(JobTrace& trace, const core::Delivery& delivery) {
  const HeldSubmission& held = ledger_.held(delivery.rank, delivery.ticket);
  if (!held.is_transfer) return;
  trace.on_transferred(*held.descriptor, delivery.rank, Rank{static_cast<int32_t>(delivery.value)},
                       static_cast<int64_t>(held.submitted_s * 1e9));
}

// Counts the step. A tensor that comes again is counted where it was counted before.
void JobRunner::count_step(LocalRank rank, HeldSubmission& item) {
  const core::TensorDescriptor& tensor = *item.descriptor;
  item.step = 1;
  if (!InputCheck::looks_at(tensor.kind, tensor.dtype)) return;
  if (!item.steps) item.steps = finite_.steps_of(rank, tensor);
  if (item.steps) item.step = ++*item.steps;
}

std::shared_ptr<InputCheck> JobRunner::check_of(const core::Launch& launch) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (!InputCheck::looks_at(first.kind, first.dtype)) return nullptr;
  const core::Collectives& set = *find_set(launch.process_set);
  const size_t ranks = launch.tickets.size() / launch.tensors->size();
  std::vector<InputCheck::Contribution> contributions;
  contributions.reserve(launch.tickets.size());
  auto ticket = launch.tickets.begin();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    for (size_t i = 0; i < ranks; ++i, ++ticket) {
      if (!*ticket) continue;  // The rank has joined.
      const LocalRank rank = set.locals()[i];
      const HeldSubmission& item = ledger_.held(rank, **ticket);
      const size_t bytes = static_cast<size_t>(tensor.elements) * element_bytes(first.dtype);
      if (!item.buffers.input || bytes == 0) continue;
      contributions.push_back({item.buffers.input, bytes, core_.global_rank(rank), item.step,
                               item.buffers.urgency.submitted, item.descriptor});
    }
  }
  return std::make_shared<InputCheck>(first.dtype, std::move(contributions));
}

void JobRunner::tell_rank(LocalRank rank, const session::NonfiniteNews* news) {
  const Local& to = local(rank);
  if (to.session && !to.attach_deferred) to.session->nonfinite(news);
}

void JobRunner::on_nonfinite_asked(session::Session& session) {
  finite_.on_asked(session.attach().local_rank);
}

// --- Operations ----------------------------------------------------------------------------------

const core::Collectives* JobRunner::find_set(uint32_t id) const {
  for (const core::Collectives* set : core_.process_sets()) {
    if (set->id() == id) return set;
  }
  return nullptr;
}

void JobRunner::launch(const core::Launch& launch) {
  JobTrace* const trace = timeline_.trace_of_launches();
  if (trace) {
    trace->on_launch(launch, find_set(launch.process_set)->locals(),
                     [&](LocalRank rank, Ticket ticket) {
                       return static_cast<int64_t>(ledger_.held(rank, ticket).submitted_s * 1e9);
                     });
  }
  if (launch.tensors->front().descriptor->memory != MemorySpace::kHost) {
    return device_path_.launch(launch);
  }
  host_path_.launch(launch, trace, spec_.checks_finite ? check_of(launch) : nullptr);
}

void JobRunner::end_operation(OperationKey key) {
  if (JobTrace* trace = timeline_.trace()) {
    trace->on_ended(key.first, key.second);
    // Submissions that come in this turn from now on may be the next ones of a tensor that has
    // ended.
    turn_began_s_ = steady_now_s();
  }
  if (const InputCheck* check = ledger_.check_of(key)) finite_.on_ended(*check);
  step(core::OperationDone{key.second, key.first});
  // If all ranks have joined, no submission has ended, which erases the operation otherwise.
  ledger_.erase(key);
}

void JobRunner::cancel(const core::Cancel& cancelled) {
  if (JobTrace* trace = timeline_.trace()) trace->on_cancelled(cancelled);
  ledger_.cancel(cancelled);
  host_path_.cancel(cancelled, device_path_.staged().cancel(cancelled));
}

// The data loop's news arrives here as events of the core, unless the job has gone meanwhile. So
// nothing of this object may be touched on the data loop.
DataEvents JobRunner::data_events(uint32_t process_set, const std::vector<NodeIndex>& ring) {
  const auto tell = [this, epoch = host_path_.epoch()](auto handle) {
    return [&loop = context_.control_loop,
            news = lifetime_.guard([this, epoch, handle](auto&&... arguments) {
              HandlerWatch::note(cause_);
              if (epoch == core_.epoch()) handle(arguments...);
            })](auto&&... arguments) {
      Soon::run(loop, [news, arguments...]() mutable { news(arguments...); });
    };
  };
  DataEvents events;
  events.on_done = tell([this, process_set](Seq seq, double seconds) {
    const OperationKey key{process_set, seq};
    if (!ledger_.end_part(key)) return;
    metrics_->ring_seconds.Observe(seconds);
    if (!device_path_.staged().on_done(key)) end_operation(key);
  });
  events.on_failed = tell([this](Seq seq, const Status& status) {
    step(core::OperationFailed{seq, status});
  });
  events.on_diverged =
      tell([this, ring, process_set](Seq seq, uint32_t generation, NodeIndex place) {
        const NodeIndex peer = ring[static_cast<size_t>(place.value)];
        step(core::OperationDiverged{seq, generation, peer, process_set});
      });
  events.on_rounds_done =
      tell([this, process_set](Seq seq, uint32_t generation, uint32_t part, int share, int rounds) {
        device_path_.staged().on_rounds_done({process_set, seq}, generation, {part, share}, rounds);
      });
  events.on_channel_lost =
      tell([this, ring, process_set](NodeIndex place, const Status& status, bool is_missed) {
        const NodeIndex peer = ring[static_cast<size_t>(place.value)];
        if (peer != spec_.self) {
          step(core::DataChannelLost{peer, status, process_set, is_missed});
        } else if (is_missed) {
          step(core::OperationFailed{Seq{}, status});
        }
      });
  events.on_transfer_done = tell([this](const core::TransferKey& key) { end_transfer(key); });
  events.on_transfer_message =
      tell([this](NodeIndex from, uint32_t set, const core::TransferMessage& message,
                  const std::shared_ptr<const std::vector<std::byte>>& data) {
        if (data) {
          const uint64_t number = std::get<core::TransferOffer>(message).number;
          host_path_.keep({from, spec_.self, number}, data);
        }
        step(core::TransferMessageArrived{from, core_.epoch(), set, message});
      });
  // Nobody waits whether another cause is told: the other end hears no more than that its channel
  // is closed.
  events.on_unusable = tell([this](NodeIndex /*place*/, const Status& status) {
    step(core::OperationFailed{Seq{}, status});
  });
  return events;
}

// --- Device memory -------------------------------------------------------------------------------

void JobRunner::on_device_memory(session::Session& session, session::DeviceMemory memory) {
  const LocalRank rank = session.attach().local_rank;
  Status refused = closing_ || core_.state() == core::JobState::kFailed
                       ? Status(Code::kShutDown, "job " + spec_.job + " is over")
                       : device_path_.check();
  if (!refused.is_ok()) {
    if (!std::exchange(warned_of_device_, true)) spdlog::warn("{}", refused.message());
  } else if (local(rank).attach_deferred || core_.state() != core::JobState::kRunning) {
    refused = Status(Code::kUnavailable,
                     "job " + spec_.job + " has not started: wait for rueda_init to return");
  }
  if (!refused.is_ok()) return session.device_memory_added(memory.id, refused);
  device_path_.add(rank, std::move(memory));
}

void JobRunner::device_memory_added(LocalRank rank, uint32_t id, const Status& status) {
  Local& item = local(rank);
  if (item.session && !item.attach_deferred) item.session->device_memory_added(id, status);
}

void JobRunner::on_device_memory_removed(session::Session& session, uint32_t id) {
  device_path_.remove(session.attach().local_rank, id);
}

// --- Links ---------------------------------------------------------------------------------------

void JobRunner::on_envelope(LinkId link, Envelope envelope) {
  if (links_.accepts(link, envelope)) step(core::MessageArrived{std::move(envelope.message)});
}

void JobRunner::on_timeline(LinkId link, TimelineMessage message) {
  if (const auto from = links_.node_behind(link)) timeline_.on_message(*from, std::move(message));
}

void JobRunner::on_nonfinite(LinkId link, NonfiniteMessage message) {
  if (const auto from = links_.node_behind(link)) finite_.on_message(*from, message);
}

void JobRunner::on_communicator(LinkId link, const CommunicatorMessage& message) {
  device_path_.nccl().on_communicator(link, message);
}

void JobRunner::on_link_lost(LinkId link, const Status& status, TicksMs quiet_ms) {
  if (const auto node = links_.node_behind(link)) timeline_.on_node_lost(*node);
  for (const NodeIndex node : links_.lose(link)) {
    const std::string& id = spec_.layout.node(node).node_id;
    if (listener_.on_node_lost) listener_.on_node_lost(node);
    metrics_->node_loss_seconds.Observe(static_cast<double>(quiet_ms) / 1000);
    step(core::NodeLost{
        node,
        Status(Code::kNodeLost, "node " + id + " is lost: " + status.message(), Origin{id, {}})});
  }
}

// --- For operators -------------------------------------------------------------------------------

JobSnapshot JobRunner::snapshot() const {
  JobSnapshot snapshot;
  snapshot.job = spec_.job;
  snapshot.user = spec_.user;
  snapshot.state = core::to_string(core_.state());
  if (core_.state() == core::JobState::kForming && core_.attached() == 0) snapshot.state = "idle";
  snapshot.epoch = core_.epoch().value;
  snapshot.world_size = spec_.layout.world_size();
  snapshot.local_size = static_cast<int>(locals_.size());
  snapshot.attached = static_cast<int>(core_.attached());
  snapshot.nodes = spec_.layout.node_count();
  snapshot.coordinator = spec_.layout.node(spec_.layout.coordinator()).node_id;
  snapshot.mode = core_.mode();
  snapshot.locked = core_.is_locked();
  snapshot.operations = ledger_.operations_done();
  snapshot.bytes_reduced = ledger_.bytes_reduced();
  snapshot.in_flight = core_.submissions_in_flight();
  snapshot.error = core_.failure().message();
  snapshot.missing_ranks = core_.missing_ranks();
  if (host_path_.is_open()) snapshot.ring = ring();
  for (const core::Collectives* set : core_.process_sets()) {
    if (set->id() == 0) continue;
    snapshot.process_sets.push_back({set->id(), set->layout().ranks(), set->is_locked()});
  }
  return snapshot;
}

std::vector<std::string> JobRunner::ring() const {
  std::vector<std::string> ids;
  for (const NodeIndex node : core_.layout().ring())
    ids.push_back(core_.layout().node(node).node_id);
  return ids;
}

std::vector<PlanSnapshot> JobRunner::plans() const {
  std::vector<PlanSnapshot> all;
  for (const core::Collectives* set : core_.process_sets()) {
    if (!set->plan()) continue;
    all.push_back({spec_.job, spec_.owner, set->id(), set->layout().ranks(), *set->plan()});
  }
  return all;
}

std::vector<StallSnapshot> JobRunner::stalls() const {
  std::vector<StallSnapshot> all;
  for (const core::Collectives* set : core_.process_sets()) {
    const TicksMs now = to_ms(running_us());
    core::StallNotice notice = set->stalls().stalls(now);
    const core::StallNotice transfers = core_.transfers().stalls(set->id(), now);
    notice.stalls.insert(notice.stalls.end(), transfers.stalls.begin(), transfers.stalls.end());
    std::vector<StallSnapshot> some = snapshot_stalls(spec_.job, set->id(), set->layout(), notice);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

// --- The end -------------------------------------------------------------------------------------

void JobRunner::fail(const Status& cause, std::vector<core::Delivery> deliveries) {
  // A job that does not start may have wrong addresses, which core knows nothing of.
  const Status status =
      cause.code() == Code::kTimeout && !host_path_.is_open() ? links_.with_trouble(cause) : cause;
  spdlog::error("job {} is over: {}", spec_.job, status.message());
  finite_.flush();
  context_.metrics.daemon().job_failures.Increment();
  failing_ = true;
  auto tell = [this, status, deliveries = std::move(deliveries)] {
    failing_ = false;
    ledger_.forget_operations();
    device_path_.staged().forget();
    host_path_.forget_all_expected();
    deliver_all(deliveries);
    for (Local& item : locals_) {
      if (item.session) item.session->job_failed(status);
    }
    if (listener_.on_failed) listener_.on_failed(status);
    if (on_closed_) std::exchange(on_closed_, nullptr)();
  };
  auto then = lifetime_.guard([this, tell = lifetime_.guard(std::move(tell))]() mutable {
    device_path_.stop(std::move(tell));
  });
  auto stop = [&loop = context_.control_loop, then = std::move(then)]() mutable {
    boost::asio::post(loop, std::move(then));
  };
  if (!host_path_.is_open()) return stop();
  host_path_.end_epoch(std::move(stop));
}

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
  // In a tree, the nodes below this one must go on under another node before this one may go.
  close_waits_ = !core_.may_go();
  if (close_waits_) return;
  if (failing_) return;  // fail() calls on_closed_ when the clients have been told
  host_path_.end_epoch({});
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

const Status& JobRunner::why_over() const {
  return core_.state() == core::JobState::kFailed ? core_.failure() : *closing_;
}

}  // namespace rueda::engine
