#include "daemon/engine/job/elastic_job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"
#include "daemon/core/job/shared_settings.h"
#include "daemon/engine/job/core_options.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

using State = core::Generations::State;

// What nodes say to each other while a generation forms is repeated so often.
constexpr TicksMs kRepeatsInATimeout = 50;
constexpr size_t kGenerationsKept = 16;
constexpr size_t kMostHeld = 256;
// The part of --rank-timeout that a rank has after its generation has ended because of it.
constexpr TicksMs kMomentPart = 10;

core::MemberId self_of(const EngineContext& context, const JobSpec& spec) {
  const std::vector<uint64_t>& incarnations = spec.elastic->incarnations;
  const auto self = static_cast<size_t>(spec.self.value);
  return {context.options.node_id, self < incarnations.size() ? incarnations[self] : 1};
}

core::GenerationOptions options_of(const EngineContext& context, const JobSpec& spec) {
  core::GenerationOptions options;
  options.job = spec.job;
  options.min_ranks = spec.elastic->min_ranks;
  options.max_ranks = most_ranks(spec);
  options.silence_ms = context.options.timeout_ms;
  options.interval_ms = std::max<TicksMs>(context.options.timeout_ms / kRepeatsInATimeout, 10);
  options.attach_ms =
      spec.start_timeout_ms > 0 ? spec.start_timeout_ms : context.options.start_timeout_ms;
  options.elastic_timeout_ms = spec.elastic->timeout_ms;
  options.settings = core::shared_settings(core_options(context, spec));
  return options;
}

std::vector<std::string> contacts_of(const JobSpec& spec) {
  std::vector<std::string> contacts = spec.elastic->contacts;
  for (int i = 0; i < spec.layout.node_count(); ++i) {
    const NodeIndex node{i};
    if (node != spec.self) contacts.push_back(spec.layout.node(node).control_address);
  }
  return contacts;
}

Status check_sizes(const JobSpec& spec) {
  const ElasticSpec& elastic = *spec.elastic;
  const int size = spec.layout.world_size();
  const int most = most_ranks(spec);
  const auto refused = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "job " + spec.job + " " + what);
  };
  if (elastic.min_ranks < 1 || elastic.min_ranks > most) {
    return refused("has at most " + std::to_string(most) + " ranks, of which at least " +
                   std::to_string(elastic.min_ranks) +
                   " must be there: give --min-np from 1 to the number of ranks");
  }
  if (!elastic.contacts.empty()) return Status::ok();
  if (size > most) {
    return refused("begins with " + std::to_string(size) + " ranks, and may have at most " +
                   std::to_string(most) + ": raise --max-np or lower -np");
  }
  if (size < elastic.min_ranks) {
    return refused("begins with " + std::to_string(size) + " ranks, of which at least " +
                   std::to_string(elastic.min_ranks) +
                   " must be there: give --min-np from 1 to the number of ranks");
  }
  return Status::ok();
}

}  // namespace

Status ElasticJob::check(const JobSpec& spec) {
  if (spec.is_shared) {
    return {Code::kInvalidArgument, "job " + spec.job +
                                        " is elastic (--min-np), and its ranks are started by "
                                        "another launcher: start them with ruedarun"};
  }
  const auto nodes = static_cast<size_t>(spec.layout.node_count());
  if (nodes > 1 && spec.elastic->incarnations.size() != nodes) {
    return {Code::kInvalidArgument, "job " + spec.job + " is elastic, has " +
                                        std::to_string(nodes) +
                                        " nodes, and its launcher says incarnations of " +
                                        std::to_string(spec.elastic->incarnations.size()) +
                                        ": install the same version on all nodes"};
  }
  return check_sizes(spec);
}

ElasticJob::ElasticJob(const EngineContext& context, JobSpec spec, JobListener listener, Host host)
    : context_(context),
      spec_(std::move(spec)),
      listener_(std::move(listener)),
      host_(std::move(host)),
      metrics_(context.metrics.job(spec_.job)),
      generations_(self_of(context, spec_), spec_.layout.node(spec_.self).control_address,
                   contacts_of(spec_), options_of(context, spec_)),
      links_(context.control_plane, spec_.job, spec_.token),
      slots_wanted_(spec_.elastic->slots > 0
                        ? spec_.elastic->slots
                        : static_cast<int>(spec_.layout.node(spec_.self).ranks.size())),
      slots_known_(
          std::max(slots_wanted_, static_cast<int>(spec_.layout.node(spec_.self).ranks.size()))),
      timer_(context.control_loop),
      silence_timer_(context.control_loop),
      stalled_timer_(context.control_loop) {}

Status ElasticJob::start() {
  core::GenerationsOutput output;
  if (!spec_.elastic->votes.empty()) {
    Result<core::GenerationVotes> votes = context_.control_plane.decode_votes(spec_.elastic->votes);
    if (!votes.is_ok()) return votes.status();
    spdlog::info("job {}: goes on where the daemon before has stopped", spec_.job);
    generations_.resume(now(), votes.value(), output);
    for (const core::Slot slot : spec_.elastic->ended_slots) generations_.lose(now(), slot, output);
    for (const core::Slot slot : spec_.elastic->finished_slots) {
      generations_.finish(now(), slot, output);
    }
    carry_out(std::move(output));
    watch_silence();
    return Status::ok();
  }
  if (!spec_.elastic->contacts.empty()) return Status::ok();
  core::Generation first;
  first.epoch = Epoch{1};
  for (int i = 0; i < spec_.layout.node_count(); ++i) {
    const core::LayoutNode& from = spec_.layout.node(NodeIndex{i});
    core::GenerationNode& node = first.nodes.emplace_back();
    node.id =
        NodeIndex{i} == spec_.self
            ? generations_.self()
            : core::MemberId{from.node_id, spec_.elastic->incarnations[static_cast<size_t>(i)]};
    node.control_address = from.control_address;
    for (size_t slot = 0; slot < from.ranks.size(); ++slot) {
      node.slots.push_back({core::Slot{static_cast<int32_t>(slot)}, from.ranks[slot]});
    }
  }
  const auto generation = std::make_shared<const core::Generation>(std::move(first));
  generations_.begin_first(generation);
  keep_votes();
  begin(generation);
  return Status::ok();
}

// --- Sessions ------------------------------------------------------------------------------------

session::Session* ElasticJob::session_of(core::Slot slot) const {
  const auto it = std::find_if(slots_.begin(), slots_.end(),
                               [&](const auto& entry) { return entry.second == slot; });
  return it == slots_.end() ? nullptr : it->first;
}

Status ElasticJob::may_attach(const session::Attach& attach) const {
  const core::Slot slot{attach.local_rank.value};
  if (slot.value < 0 || slot.value >= slots_known_) {
    return {Code::kInvalidArgument, "job " + spec_.job + " has slots 0 to " +
                                        std::to_string(slots_known_ - 1) + " on this node, not " +
                                        std::to_string(slot.value) + "; check LOCAL_RANK"};
  }
  if (generations_.state() == State::kOver) {
    return {Code::kShutDown, "job " + spec_.job + " is over: " + why_over().message(),
            why_over().origin()};
  }
  if (closing_) return {closing_->code(), "job " + spec_.job + " is over: " + closing_->message()};
  // Whoever had the slot may have gone without having been heard yet.
  if (session::Session* const silent = session_of(slot)) silent->look();
  const session::Session* const before = session_of(slot);
  if (before == nullptr) return Status::ok();
  if (before->attach().peer.pid == attach.peer.pid) {
    return {Code::kUnavailable, "the goodbye of this process has not been read yet: attach again"};
  }
  return {Code::kInvalidArgument, "slot " + std::to_string(slot.value) + " of job " + spec_.job +
                                      " has a process already; start each once"};
}

std::optional<core::GenerationSlot> ElasticJob::place_of(core::Slot slot,
                                                         LocalRank* local_rank) const {
  if (!running_) return std::nullopt;
  const NodeIndex self = running_->find(generations_.self());
  const std::vector<core::GenerationSlot>& slots = running_->node(self).slots;
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
  left_well_.erase(slot);
  LocalRank local_rank;
  const auto place = place_of(slot, &local_rank);
  if (place && !is_ending_ && !attached_.contains(slot)) {
    attached_.insert(slot);
    session.deal(place->rank, local_rank);
    return host_.hand_over(session, *runner_);
  }
  waiting_.insert(&session);
  if (!is_wanted(slot)) return listener_.on_unneeded(Rank{slot.value});
  core::GenerationsOutput output;
  generations_.attach(now(), slot, output);
  carry_out(std::move(output));
}

void ElasticJob::on_session_gone(session::Session& session, bool has_died) {
  const auto it = slots_.find(&session);
  if (it == slots_.end()) return;
  const core::Slot slot = it->second;
  slots_.erase(it);
  if (!has_died && running_ && !is_ending_) left_well_.insert(slot);
  // Who waits and goes does not take part, whatever it says. Who was in a generation that is over
  // may come back; if not, the launcher says that the process has ended.
  const bool is_missed = has_died && running_ && !is_ending_;
  if (waiting_.erase(&session) == 0 && !is_missed) return;
  core::GenerationsOutput output;
  generations_.lose(now(), slot, output);
  carry_out(std::move(output));
}

void ElasticJob::on_process_gone(core::Slot slot, const std::string& failure) {
  left_well_.erase(slot);
  LocalRank local_rank;
  const auto place = place_of(slot, &local_rank);
  if (place && !is_ending_ && !failure.empty()) runner_->on_rank_failed(place->rank, failure);
  core::GenerationsOutput output;
  if (failure.empty()) {
    generations_.finish(now(), slot, output);
  } else {
    generations_.lose(now(), slot, output);
  }
  carry_out(std::move(output));
}

void ElasticJob::want_slots(int slots) {
  slots_wanted_ = std::clamp(slots, 0, limits::kMaxLocalRanks);
  slots_known_ = std::max(slots_known_, slots_wanted_);
  core::GenerationsOutput output;
  bool is_left = false;  // Somebody who is not wanted is in the generation that runs.
  for (const auto& [session, slot] : slots_) {
    const bool waits = waiting_.contains(session);
    if (!is_wanted(slot)) {
      is_left |= !waits;
      generations_.lose(now(), slot, output);  // Nobody waits for it.
      if (waits) listener_.on_unneeded(Rank{slot.value});
    } else if (waits && !generations_.waiting().contains(slot)) {
      generations_.attach(now(), slot, output);  // It is wanted again.
    }
  }
  output.hosts_changed |= is_left;
  carry_out(std::move(output));
}

// --- Generations ---------------------------------------------------------------------------------

JobListener ElasticJob::listener_of_generation() {
  JobListener out;
  out.on_started = [this](Epoch epoch) {
    note_begun();
    if (listener_.on_started) listener_.on_started(epoch);
  };
  // From a turn of its own: the runner is at work when it says so.
  const auto ends = [this](const Status& why) {
    boost::asio::post(context_.control_loop, lifetime_.guard([this, why, over = running_] {
      if (over == running_) end_generation(why);
    }));
  };
  // Of several nodes that are lost together, one is the reason why the generation ends. Once it has
  // ended, nodes that live hang up, too (on_link_lost()).
  out.on_node_lost = [this](NodeIndex node) {
    if (is_ending_) return;
    boost::asio::post(context_.control_loop, lifetime_.guard([this, node, over = running_] {
      if (over != running_ || closing_) return;
      lost_.insert(running_->node(node).id);
      core::GenerationsOutput output;
      generations_.lose_node(now(), running_->node(node).id, output);
      carry_out(std::move(output));
    }));
  };
  out.on_failed = ends;
  out.on_finished = [this, ends] {
    all_left_ = true;
    ends({Code::kShutDown, "all ranks have left"});
  };
  out.on_timeline = listener_.on_timeline;
  out.on_tuning = listener_.on_tuning;
  out.on_plan = listener_.on_plan;
  return out;
}

JobSpec ElasticJob::spec_of(const core::Generation& generation) const {
  JobSpec spec = spec_;
  spec.layout = generation.layout().value();
  spec.self = generation.find(generations_.self());
  spec.first_epoch = generation.epoch;
  spec.servers = std::min(spec.servers, spec.layout.node_count());
  if (generation.epoch.value == 1) return spec;
  spec.timeline.reset();  // Its file has ended with the generation before.
  // All processes have attached already, and are waited for no longer than a node that is silent.
  spec.start_timeout_ms = context_.options.timeout_ms;
  return spec;
}

void ElasticJob::begin(const core::GenerationPtr& generation) {
  if (generation->epoch.value > 1) {
    spdlog::info("job {}: generation {} has {} ranks on {} nodes: {}", spec_.job,
                 generation->epoch.value, generation->world_size(), generation->nodes.size(),
                 generation->reason);
  }
  running_ = generation;
  has_started_ = false;
  attached_.clear();
  lost_.clear();
  links_before_.clear();
  runner_ = &host_.start(spec_of(*generation), listener_of_generation());
  at_step("begun");
  for (const auto& [session, slot] : std::map<session::Session*, core::Slot>(slots_)) {
    LocalRank local_rank;
    const auto place = place_of(slot, &local_rank);
    if (!place || waiting_.erase(session) == 0) continue;
    attached_.insert(slot);
    session->deal(place->rank, local_rank);
    host_.hand_over(*session, *runner_);
  }
  for (auto& [from, early] : std::exchange(early_, {})) {
    if (early.second.message.epoch != generation->epoch) continue;
    runner_->guarded(
        [this, &join = early] { runner_->on_envelope(join.first, std::move(join.second)); });
  }
}

void ElasticJob::end_generation(const Status& why) {
  if (closing_) return;
  // The nodes that begin a job have been told different things, and forming it anew changes
  // nothing.
  if (why.code() == Code::kMismatch && history_.empty()) return give_up(why);
  if (why.origin().is_by_request) return end(why);
  if (!is_ending_) {
    at_step("ended");
    end_runner(why);
    core::GenerationsOutput output;
    // While its votes are being kept, what follows from them waits (held_): this generation may be
    // over already, and the next one decided.
    if (generations_.known()->epoch == running_->epoch) {
      generations_.end_running(now(), why.message(), output);
    }
    carry_out(std::move(output));
    tell_lost();
    watch_silence();
  }
  note_lost(why);
}

void ElasticJob::end_runner(const Status& why) {
  if (std::exchange(is_ending_, true)) return;
  for (const auto& [node, link] : runner_->child_links()) {
    links_before_.emplace(link, running_->node(node).id);
  }
  count_end(why);
  if (why.code() == Code::kShutDown && why.origin().rank) watch_stalled(*why.origin().rank);
  host_.end(why);
}

// Others may tell of the end before this node's runner has come to tell of it, though it knows why.
Status ElasticJob::cause_of_end(const std::string& told) const {
  const Status& known = runner_->failure();
  // A process takes what it is told of other nodes for a node that was lost.
  return known.is_ok() ? Status(Code::kNodeLost, "the generation is over: " + told) : known;
}

void ElasticJob::count_end(const Status& why) {
  ended_s_ = steady_now_s();
  const observe::JobMetrics::GenerationEnds& ends = metrics_->generations;
  if (std::exchange(all_left_, false)) return ends.left->Increment();
  switch (why.code()) {
    case Code::kRankLost: return ends.rank_lost->Increment();
    case Code::kNodeLost: return ends.node_lost->Increment();
    default: return ends.other->Increment();
  }
}

void ElasticJob::note_begun() {
  at_step("started");
  has_started_ = true;
  // A process hears nothing of it before it has been told that its generation begins.
  if (hosts_changed_) tell_hosts_changed();
  if (ended_s_) metrics_->recovery_seconds.Observe(steady_now_s() - *ended_s_);
  ended_s_.reset();
  if (history_.size() >= kGenerationsKept) history_.pop_front();
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  history_.push_back({running_->epoch.value,
                      std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count(),
                      running_->world_size(), static_cast<int>(running_->nodes.size()),
                      running_->reason});
}

// Nodes whose links have broken while the generation ran are not waited for in the next one.
void ElasticJob::tell_lost() {
  core::GenerationsOutput output;
  for (const core::MemberId& node : lost_) generations_.lose_node(now(), node, output);
  carry_out(std::move(output));
}

// A node that is the reason why a generation has ended is not waited for.
void ElasticJob::note_lost(const Status& why) {
  if (why.code() != Code::kNodeLost || !running_) return;
  core::GenerationsOutput output;
  for (const core::GenerationNode& node : running_->nodes) {
    if (node.id.node_id == why.origin().node_id) generations_.lose_node(now(), node.id, output);
  }
  carry_out(std::move(output));
}

// Who has left in good order does not stand still: it may have ended its training, and save its
// model, or may be ending.
void ElasticJob::watch_silence() {
  const TicksMs timeout_ms = spec_.elastic->rank_timeout_ms;
  if (timeout_ms == 0) return;
  silence_timer_.expires_after(std::chrono::milliseconds(timeout_ms));
  silence_timer_.async_wait(
      lifetime_.guard([this, timeout_ms](const boost::system::error_code& error) {
        if (error || closing_ || generations_.state() != State::kForming) return;
        for (const core::Slot slot : generations_.awaited_slots()) {
          if (left_well_.contains(slot)) continue;
          listener_.on_silent(Rank{slot.value},
                              "slot " + std::to_string(slot.value) + " has not come back for " +
                                  std::to_string(timeout_ms) + " ms since its generation ended");
        }
      }));
}

// Others have waited for it long enough: it has a moment to show that it moves again.
void ElasticJob::watch_stalled(Rank rank) {
  const TicksMs patience_ms = spec_.elastic->rank_timeout_ms / kMomentPart;
  if (patience_ms == 0 || !running_) return;
  const NodeIndex self = running_->find(generations_.self());
  for (const core::GenerationSlot& place : running_->node(self).slots) {
    if (place.rank != rank) continue;
    stalled_timer_.expires_after(std::chrono::milliseconds(patience_ms));
    stalled_timer_.async_wait(lifetime_.guard([this, slot = place.slot, patience_ms,
                                               epoch = running_->epoch](
                                                  const boost::system::error_code& error) {
      // In a generation that runs nobody is awaited, whatever awaited_slots() says of it.
      if (error || closing_ || generations_.state() != State::kForming ||
          generations_.known()->epoch != epoch) {
        return;
      }
      const std::vector<core::Slot> awaited = generations_.awaited_slots();
      const bool is_awaited = std::find(awaited.begin(), awaited.end(), slot) != awaited.end();
      if (!is_awaited) return;
      listener_.on_silent(Rank{slot.value}, "slot " + std::to_string(slot.value) +
                                                " stands still: others have waited for it, and " +
                                                std::to_string(patience_ms) +
                                                " ms after they gave it up it has not moved");
    }));
  }
}

void ElasticJob::on_runner_gone() {
  runner_ = nullptr;
  running_.reset();
  is_ending_ = false;
  if (closing_) return finish_close();
  if (begun_) begin(std::exchange(begun_, nullptr));
}

void ElasticJob::carry_out(core::GenerationsOutput output) {
  // The end follows from no vote, and nothing that was held follows after it.
  if (was_ended()) {
    held_.clear();
    return perform(std::move(output));
  }
  if (closing_) return;
  keep_votes();
  // Messages may be lost, so those that would wait for long are.
  if (held_.size() >= kMostHeld) output.sends.clear();
  const bool says_nothing = output.sends.empty() && !output.ended && !output.begun &&
                            !output.hosts_changed && !output.finished && !output.over;
  if (!says_nothing || held_.size() < kMostHeld) held_.push_back({to_keep_, std::move(output)});
  perform_held();
}

void ElasticJob::keep_votes() {
  core::GenerationVotes votes = generations_.votes();
  if (votes == newest_votes_) return;
  newest_votes_ = std::move(votes);
  ++to_keep_;
  if (!is_asking_) ask_to_keep();
}

// Returns what the message is called where tests make daemons die.
const char* ElasticJob::name_of(const core::GenerationMessage& message) {
  static constexpr std::array kNames{"present-sent", "heard-sent",  "prepare-sent",
                                     "promise-sent", "accept-sent", "accepted-sent",
                                     "refuse-sent",  "learn-sent",  "end-sent"};
  static_assert(kNames.size() == std::variant_size_v<decltype(message.body)>);
  return kNames[message.body.index()];
}

// One question at a time: a launcher that does not answer is not sent more.
void ElasticJob::ask_to_keep() {
  is_asking_ = true;
  at_step("votes-changed");
  listener_.keep_votes(context_.control_plane.encode(newest_votes_),
                       lifetime_.guard([this, number = to_keep_] {
                         is_asking_ = false;
                         has_kept_ = number;
                         at_step("votes-kept");
                         if (to_keep_ > number) ask_to_keep();
                         perform_held();
                       }));
}

void ElasticJob::perform_held() {
  if (is_performing_) return;  // What is held further back comes later.
  is_performing_ = true;
  while (!closing_ && !held_.empty() && held_.front().after <= has_kept_) {
    core::GenerationsOutput output = std::move(held_.front().output);
    held_.pop_front();
    perform(std::move(output));
  }
  is_performing_ = false;
}

void ElasticJob::perform(core::GenerationsOutput output) {
  for (const auto& [address, message] : output.sends) {
    links_.send(now(), address, message);
    at_step(name_of(message));
  }
  if (output.ended) {
    at_step("ended-by-others");
    if (begun_) wait_again();
    if (runner_) end_runner(cause_of_end(*output.ended));
    tell_lost();
    watch_silence();
  }
  if (output.begun) {
    at_step("decided");
    hosts_changed_ = false;
    begun_ = output.begun;
    if (!runner_) begin(std::exchange(begun_, nullptr));
  }
  if (output.hosts_changed) {
    spdlog::info("job {}: there are others who are to take part, or to leave", spec_.job);
    hosts_changed_ = true;
    if (has_started_) tell_hosts_changed();
  }
  if (output.finished) {
    for (const core::Slot slot : generations_.waiting()) {
      if (!generations_.survives(slot)) listener_.on_unneeded(Rank{slot.value});
    }
  }
  if (output.over) give_up(*output.over);
  arm_timer();
  if (closing_) finish_close();
}

void ElasticJob::tell_hosts_changed() {
  for (const auto& [session, slot] : slots_) {
    if (!waiting_.contains(session)) session->hosts_changed();
  }
}

void ElasticJob::wait_again() {
  begun_.reset();
  core::GenerationsOutput output;
  for (session::Session* const session : waiting_) {
    const core::Slot slot = slots_.at(session);
    if (is_wanted(slot) && !generations_.waiting().contains(slot))
      generations_.attach(now(), slot, output);
  }
  carry_out(std::move(output));
}

void ElasticJob::end(const Status& why) {
  core::GenerationsOutput output;
  generations_.end(now(), why, output);
  carry_out(std::move(output));
}

int ElasticJob::node_count() const {
  const core::GenerationPtr& known = generations_.known();
  return known ? static_cast<int>(known->nodes.size()) : 1;
}

void ElasticJob::give_up(const Status& why) {
  spdlog::error("job {}: {}", spec_.job, why.message());
  answers_until_ = now() + context_.options.timeout_ms;
  begun_.reset();
  if (runner_) end_runner(why);
  for (session::Session* const session : waiting_) session->job_failed(why);
  if (listener_.on_failed) listener_.on_failed(why);
}

void ElasticJob::arm_timer() {
  if (metrics_) {
    metrics_->awaited_ranks.Set(generations_.state() == State::kForming
                                    ? static_cast<double>(generations_.awaited_slots().size())
                                    : 0);
  }
  std::optional<TicksMs> wanted = generations_.wakes_at();
  if (links_.has_any()) {  // They are let go when they are not used any more.
    const TicksMs later = now() + context_.options.timeout_ms;
    wanted = wanted ? std::min(*wanted, later) : later;
  }
  if (closing_ && answers_until_ > now()) {
    wanted = std::min(wanted.value_or(answers_until_), answers_until_);
  }
  if (!wanted) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(std::chrono::milliseconds(std::max<TicksMs>(*wanted - now(), 1)));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (error) return;
    core::GenerationsOutput output;
    if (generations_.state() == State::kForming) {
      // Who is not there is not waited for as long as who is silent.
      for (const std::string& address : links_.unreachable()) lose_address(address, output);
    }
    generations_.on_time(now(), output);
    links_.release_unused(now() - context_.options.timeout_ms);
    carry_out(std::move(output));
  }));
}

// --- Links ---------------------------------------------------------------------------------------

bool ElasticJob::takes(LinkId link, const Envelope& envelope) {
  const core::Message& message = envelope.message;
  const Epoch runs = running_ ? running_->epoch : Epoch{0};
  if (running_ && message.epoch == runs) return true;
  const NodeIndex from = message.sender();
  const bool is_join = std::holds_alternative<core::Join>(message.body);
  if (message.epoch < runs || !is_join || early_.size() >= limits::kMaxNodes) return false;
  if (holds(envelope.proof, make_proof_key(spec_.token, spec_.job))) {
    early_.insert_or_assign(from, std::pair(link, envelope));
  }
  return false;
}

void ElasticJob::on_packet(LinkId link, const GenerationPacket& packet) {
  const std::optional<core::GenerationMessage> message = links_.open(link, packet);
  if (!message || (closing_ && !was_ended())) return;
  core::GenerationsOutput output;
  generations_.on_message(now(), *message, output);
  carry_out(std::move(output));
}

void ElasticJob::on_link_lost(LinkId link, TicksMs quiet_ms) {
  std::erase_if(early_, [&](const auto& entry) { return entry.second.first == link; });
  const std::string address = links_.lose(link);
  const auto before = links_before_.extract(link);
  if (closing_) return;
  core::GenerationsOutput output;
  // A node that lives hangs up when its generation is over.
  if (before && quiet_ms >= context_.options.timeout_ms) {
    generations_.lose_node(now(), before.mapped(), output);
  }
  if (!address.empty()) lose_address(address, output);
  carry_out(std::move(output));
}

void ElasticJob::lose_address(const std::string& address, core::GenerationsOutput& output) {
  const core::GenerationPtr& known = generations_.known();
  if (!known) return;
  for (const core::GenerationNode& node : known->nodes) {
    if (node.control_address == address) generations_.lose_node(now(), node.id, output);
  }
}

void ElasticJob::close(const Status& why, std::function<void()> done) {
  core::GenerationsOutput output;
  generations_.leave(output);
  for (const auto& [address, message] : output.sends) links_.send(now(), address, message);
  closing_ = why;
  on_closed_ = std::move(done);
  was_ended() ? arm_timer() : static_cast<void>(timer_.cancel());
  silence_timer_.cancel();
  stalled_timer_.cancel();
  begun_.reset();
  held_.clear();
  for (session::Session* const session : waiting_) session->job_failed(why);
  if (!runner_) return finish_close();
  if (!std::exchange(is_ending_, true)) host_.end(why);
}

void ElasticJob::finish_close() {
  if (runner_ || !on_closed_ || awaits_answers()) return;
  std::exchange(on_closed_, nullptr)();
}

bool ElasticJob::awaits_answers() const {
  if (!was_ended() || now() >= answers_until_) return false;
  const std::vector<std::string> unreachable = links_.unreachable();
  return std::any_of(
      generations_.untold().begin(), generations_.untold().end(), [&](const std::string& address) {
        return std::find(unreachable.begin(), unreachable.end(), address) == unreachable.end();
      });
}

JobSnapshot ElasticJob::snapshot() const {
  JobSnapshot snapshot;
  snapshot.job = spec_.job;
  snapshot.user = spec_.user;
  snapshot.state = why_over().is_ok() ? "forming" : "failed";
  snapshot.epoch = generations_.known() ? generations_.known()->epoch.value + 1 : 0;
  snapshot.local_size = static_cast<int>(generations_.waiting().size());
  snapshot.attached = snapshot.local_size;
  snapshot.nodes = node_count();
  snapshot.coordinator = context_.options.node_id;
  snapshot.error = why_over().is_ok() ? generations_.describe_wait() : why_over().message();
  return snapshot;
}

}  // namespace rueda::engine
