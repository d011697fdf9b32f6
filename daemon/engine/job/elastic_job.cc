#include "daemon/engine/job/elastic_job.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

namespace rueda::engine {
namespace {

using State = core::Generations::State;

uint64_t draw_incarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

core::GenerationOptions options_of(const EngineContext& context, const JobSpec& spec) {
  core::GenerationOptions options;
  options.job = spec.job;
  options.min_ranks = spec.elastic->min_ranks;
  options.max_ranks = spec.layout.world_size();
  options.silence_ms = context.options.timeout_ms;
  options.interval_ms = std::max<TicksMs>(context.options.timeout_ms / 16, 10);
  options.attach_ms =
      spec.start_timeout_ms > 0 ? spec.start_timeout_ms : context.options.start_timeout_ms;
  options.elastic_timeout_ms = spec.elastic->timeout_ms;
  return options;
}

}  // namespace

Status ElasticJob::check(const JobSpec& spec) {
  if (spec.layout.node_count() > 1) {
    return {Code::kInvalidArgument, "job " + spec.job + " is elastic (--min-np) and has " +
                                        std::to_string(spec.layout.node_count()) +
                                        " nodes: so far elastic jobs are on one node"};
  }
  if (spec.is_shared) {
    return {Code::kInvalidArgument, "job " + spec.job +
                                        " is elastic (--min-np), and its ranks are started by "
                                        "another launcher: start them with ruedarun"};
  }
  const int least = spec.elastic->min_ranks;
  if (least >= 1 && least <= spec.layout.world_size()) return Status::ok();
  return {Code::kInvalidArgument,
          "job " + spec.job + " has " + std::to_string(spec.layout.world_size()) +
              " ranks, of which at least " + std::to_string(least) +
              " must be there: give --min-np from 1 to the number of ranks"};
}

ElasticJob::ElasticJob(const EngineContext& context, JobSpec spec, JobListener listener, Host host)
    : context_(context),
      spec_(std::move(spec)),
      listener_(std::move(listener)),
      host_(std::move(host)),
      metrics_(context.metrics.job(spec_.job)),
      generations_({context.options.node_id, draw_incarnation()},
                   spec_.layout.node(spec_.self).control_address, {}, options_of(context, spec_)),
      timer_(context.control_loop),
      silence_timer_(context.control_loop) {}

void ElasticJob::start() {
  core::Generation first;
  first.epoch = Epoch{1};
  core::GenerationNode& node = first.nodes.emplace_back();
  node.id = generations_.self();
  node.control_address = spec_.layout.node(spec_.self).control_address;
  for (const Rank rank : spec_.layout.node(spec_.self).ranks) {
    node.slots.push_back({core::Slot{rank.value}, rank});
  }
  const auto generation = std::make_shared<const core::Generation>(std::move(first));
  generations_.begin_first(generation);
  begin(generation);
}

// --- Sessions ------------------------------------------------------------------------------------

session::Session* ElasticJob::session_of(core::Slot slot) const {
  const auto it = std::find_if(slots_.begin(), slots_.end(),
                               [&](const auto& entry) { return entry.second == slot; });
  return it == slots_.end() ? nullptr : it->first;
}

Status ElasticJob::may_attach(const session::Attach& attach) const {
  const core::Slot slot{attach.local_rank.value};
  const int count = spec_.layout.world_size();
  if (slot.value < 0 || slot.value >= count) {
    return {Code::kInvalidArgument, "job " + spec_.job + " has slots 0 to " +
                                        std::to_string(count - 1) + " on this node, not " +
                                        std::to_string(slot.value) + "; check LOCAL_RANK"};
  }
  if (closing_) return {closing_->code(), "job " + spec_.job + " is over: " + closing_->message()};
  // Whoever had the slot may have gone without having been heard yet.
  if (session::Session* const before = session_of(slot)) before->look();
  if (session_of(slot) == nullptr) return Status::ok();
  return {Code::kInvalidArgument, "slot " + std::to_string(slot.value) + " of job " + spec_.job +
                                      " has a process already; start each once"};
}

std::optional<core::GenerationSlot> ElasticJob::place_of(core::Slot slot,
                                                         LocalRank* local_rank) const {
  if (!running_) return std::nullopt;
  const std::vector<core::GenerationSlot>& slots = running_->nodes.front().slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].slot != slot) continue;
    *local_rank = LocalRank{static_cast<int32_t>(i)};
    return slots[i];
  }
  return std::nullopt;
}

void ElasticJob::on_attached(session::Session& session) {
  const core::Slot slot{session.attach().local_rank.value};
  slots_.emplace(&session, slot);
  LocalRank local_rank;
  const auto place = place_of(slot, &local_rank);
  if (place && !is_ending_ && !attached_.contains(slot)) {
    attached_.insert(slot);
    session.deal(place->rank, local_rank);
    return host_.hand_over(session, *runner_);
  }
  waiting_.insert(&session);
  core::GenerationsOutput output;
  generations_.attach(now(), slot, output);
  carry_out(std::move(output));
}

void ElasticJob::on_session_gone(session::Session& session, bool has_died) {
  const auto it = slots_.find(&session);
  if (it == slots_.end()) return;
  const core::Slot slot = it->second;
  slots_.erase(it);
  // Who waits and goes does not take part, whatever it says. Who was in a generation that is over
  // may come back; if not, the launcher says that the process has ended.
  const bool is_missed = has_died && running_ && !is_ending_;
  if (waiting_.erase(&session) == 0 && !is_missed) return;
  core::GenerationsOutput output;
  generations_.lose(now(), slot, output);
  carry_out(std::move(output));
}

void ElasticJob::on_process_gone(core::Slot slot, const std::string& failure) {
  LocalRank local_rank;
  const auto place = place_of(slot, &local_rank);
  if (place && !is_ending_ && !failure.empty()) runner_->on_rank_failed(place->rank, failure);
  core::GenerationsOutput output;
  generations_.lose(now(), slot, output);
  carry_out(std::move(output));
}

// --- Generations ---------------------------------------------------------------------------------

JobListener ElasticJob::listener_of_generation() {
  JobListener out;
  out.on_started = listener_.on_started;
  // From a turn of its own: the runner is at work when it says so.
  const auto ends = [this](const Status& why) {
    boost::asio::post(context_.control_loop, lifetime_.guard([this, why, over = running_] {
      if (over == running_) end_generation(why);
    }));
  };
  out.on_failed = ends;
  out.on_finished = [ends] { ends({Code::kShutDown, "all ranks have left"}); };
  out.on_timeline = listener_.on_timeline;
  out.on_tuning = listener_.on_tuning;
  out.on_plan = listener_.on_plan;
  return out;
}

void ElasticJob::begin(const core::GenerationPtr& generation) {
  JobSpec spec = spec_;
  spec.layout = generation->layout().value();
  spec.self = NodeIndex{0};
  spec.first_epoch = generation->epoch;
  if (generation->epoch.value > 1) {
    spdlog::info("job {}: generation {} has {} ranks: {}", spec_.job, generation->epoch.value,
                 generation->world_size(), generation->reason);
    spec.timeline.reset();  // Its file has ended with the generation before.
  }
  running_ = generation;
  attached_.clear();
  runner_ = &host_.start(std::move(spec), listener_of_generation());
  for (const auto& [session, slot] : std::map<session::Session*, core::Slot>(slots_)) {
    LocalRank local_rank;
    const auto place = place_of(slot, &local_rank);
    if (!place || waiting_.erase(session) == 0) continue;
    attached_.insert(slot);
    session->deal(place->rank, local_rank);
    host_.hand_over(*session, *runner_);
  }
}

void ElasticJob::end_generation(const Status& why) {
  if (std::exchange(is_ending_, true) || closing_) return;
  host_.end(why);
  core::GenerationsOutput output;
  generations_.end_running(now(), why.message(), output);
  carry_out(std::move(output));
  watch_silence();
}

void ElasticJob::watch_silence() {
  const TicksMs timeout_ms = spec_.elastic->rank_timeout_ms;
  if (timeout_ms == 0) return;
  silence_timer_.expires_after(std::chrono::milliseconds(timeout_ms));
  silence_timer_.async_wait(
      lifetime_.guard([this, timeout_ms](const boost::system::error_code& error) {
        if (error || closing_ || generations_.state() != State::kForming) return;
        for (const core::Slot slot : generations_.awaited_slots()) {
          listener_.on_silent(Rank{slot.value},
                              "slot " + std::to_string(slot.value) + " has not come back for " +
                                  std::to_string(timeout_ms) + " ms since its generation ended");
        }
      }));
}

void ElasticJob::on_runner_gone() {
  runner_ = nullptr;
  running_.reset();
  is_ending_ = false;
  if (closing_) {
    if (on_closed_) std::exchange(on_closed_, nullptr)();
    return;
  }
  if (begun_) begin(std::exchange(begun_, nullptr));
}

void ElasticJob::carry_out(core::GenerationsOutput output) {
  if (closing_) return;
  if (output.begun) {
    begun_ = output.begun;
    if (!runner_) begin(std::exchange(begun_, nullptr));
  }
  if (output.hosts_changed) {
    spdlog::info("job {}: a process waits to take part", spec_.job);
    for (const auto& [session, slot] : slots_) {
      if (!waiting_.contains(session)) session->hosts_changed();
    }
  }
  if (output.over) return give_up(*output.over);
  arm_timer();
}

void ElasticJob::give_up(const Status& why) {
  spdlog::error("job {}: {}", spec_.job, why.message());
  for (session::Session* const session : waiting_) session->job_failed(why);
  if (listener_.on_failed) listener_.on_failed(why);
}

void ElasticJob::arm_timer() {
  const std::optional<TicksMs> wanted = generations_.wakes_at();
  if (!wanted) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(std::chrono::milliseconds(std::max<TicksMs>(*wanted - now(), 1)));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (error) return;
    core::GenerationsOutput output;
    generations_.on_time(now(), output);
    carry_out(std::move(output));
  }));
}

void ElasticJob::close(const Status& why, std::function<void()> done) {
  closing_ = why;
  on_closed_ = std::move(done);
  timer_.cancel();
  silence_timer_.cancel();
  begun_.reset();
  for (session::Session* const session : waiting_) session->job_failed(why);
  if (!runner_) return std::exchange(on_closed_, nullptr)();
  if (!std::exchange(is_ending_, true)) host_.end(why);
}

JobSnapshot ElasticJob::snapshot() const {
  JobSnapshot snapshot;
  snapshot.job = spec_.job;
  snapshot.user = spec_.user;
  snapshot.state = "forming";
  snapshot.epoch = generations_.known()->epoch.value + 1;
  snapshot.local_size = static_cast<int>(generations_.waiting().size());
  snapshot.attached = snapshot.local_size;
  snapshot.nodes = 1;
  snapshot.coordinator = context_.options.node_id;
  snapshot.error = generations_.describe_wait();
  return snapshot;
}

}  // namespace rueda::engine
