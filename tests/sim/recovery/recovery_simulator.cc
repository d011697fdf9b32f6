#include "tests/sim/recovery/recovery_simulator.h"

#include <algorithm>
#include <tuple>

namespace rueda::sim {
namespace {

constexpr TicksMs kSubmittedBy = 150;   // every rank has submitted everything by then
constexpr TicksMs kGoesOnWithin = 700;  // after the last fault, if a quorum is connected
constexpr TicksMs kEndsWithin = 1'500;  // after the last fault, in any case

core::RecoveryOptions timing() {
  core::RecoveryOptions options;
  options.heartbeat_ms = 20;
  options.lease_ms = 70;
  options.suspicion_ms = 80;
  options.eviction_ms = 90;
  options.stagger_ms = 10;
  options.retry_ms = 60;
  options.resend_ms = 15;
  options.give_up_ms = 1'000;
  return options;
}

}  // namespace

RecoverySimulator::RecoverySimulator(uint64_t seed, const RecoveryLimits& limits)
    : seed_(seed), limits_(limits), random_(seed), plan_(draw_plan(limits)), world_(plan_) {
  frozen_until_.resize(static_cast<size_t>(plan_->voter_count()));
  tick_at_.resize(static_cast<size_t>(plan_->voter_count()), -1);
  draw_faults(limits);
}

std::shared_ptr<const Plan> RecoverySimulator::draw_plan(const RecoveryLimits& limits) {
  auto plan = std::make_shared<Plan>();
  // Most of the protocol shows on few nodes, and many cost time.
  const int count = std::min(limits.max_nodes, chance(85) ? draw(1, 5) : draw(6, 12));
  std::vector<core::LayoutNode> nodes;
  int32_t next_rank = 0;
  for (int i = 0; i < count; ++i) {
    core::LayoutNode node;
    node.node_id = "n" + std::to_string(i);
    for (int rank = draw(1, 3); rank > 0; --rank) node.ranks.push_back(Rank{next_rank++});
    nodes.push_back(std::move(node));
  }
  plan->layout = core::Layout::make(std::move(nodes)).value();
  const int operations = draw(1, limits.max_operations);
  int tensor = 0;
  for (int i = 0; i < operations; ++i) {
    if (i > 0 && chance(70)) ++tensor;  // otherwise it is the next segment
    plan->operations.push_back({draw(1, 100), chance(80) ? 1 : 2, tensor});
  }
  plan->window = static_cast<uint64_t>(draw(1, 4));
  plan->frames_after_seal = chance(50);
  plan->mixed = chance(50) ? MixedEpochs::kRefuse : MixedEpochs::kAverage;
  plan->options = timing();
  plan->options.policy = chance(80) ? core::DeathPolicy::kShrink : core::DeathPolicy::kFail;
  plan->options.has_witness = chance(25);
  plan->options.max_unstable_bytes = chance(30) ? draw(1, 150) : 10'000;
  slowest_ = chance(80) ? draw(1, 5) : draw(5, 12);
  return plan;
}

// --- Faults --------------------------------------------------------------------------------------

void RecoverySimulator::draw_faults(const RecoveryLimits& limits) {
  for (int i = draw(0, limits.max_faults); i > 0; --i) draw_fault();
}

void RecoverySimulator::draw_fault() {
  const TicksMs when = draw(1, 220);
  const TicksMs until = when + draw(5, 130);
  const int node = draw(0, plan_->voter_count() - 1);
  const int other = draw(0, plan_->voter_count() - 1);
  calm_at_ = std::max(calm_at_, until);
  switch (draw(0, 4)) {
    case 0:
    case 1: {
      push({Event::Kind::kCrash, when, 0, node});
      // The node's neighbours see their channels break, or only hear nothing any more.
      for (int peer = 0; peer < plan_->node_count(); ++peer) {
        if (peer != node && chance(40)) {
          push({Event::Kind::kSuspect, when + draw(0, 10), 0, peer, node});
        }
      }
      break;
    }
    case 2: push({Event::Kind::kFreeze, when, 0, node, 0, until}); break;
    case 3: {
      if (node == other) break;
      const bool loses = chance(50);
      link_faults_.push_back({node, other, when, until, loses});
      if (chance(30)) link_faults_.push_back({other, node, when, until, loses});
      break;
    }
    case 4:
      if (node != other) push({Event::Kind::kSuspect, when, 0, node, other});
      break;
  }
}

const RecoverySimulator::LinkFault* RecoverySimulator::fault_on(int from, int to) const {
  for (const LinkFault& fault : link_faults_) {
    if (fault.from == from && fault.to == to && now_ >= fault.begin && now_ < fault.end) {
      return &fault;
    }
  }
  return nullptr;
}

// --- The network ---------------------------------------------------------------------------------

void RecoverySimulator::dispatch_sent() {
  std::vector<Parcel> sent;
  sent.swap(world_.sent());
  for (Parcel& parcel : sent) dispatch(std::move(parcel));
}

void RecoverySimulator::dispatch(Parcel parcel) {
  const LinkFault* fault = fault_on(parcel.from, parcel.to);
  TicksMs at = now_ + draw(1, slowest_);
  if (parcel.is_data()) {
    if (fault && fault->loses_frames) {
      // The sender sees its channel break.
      Event event{Event::Kind::kSuspect, now_ + draw(1, 30), 0, parcel.from, parcel.to};
      event.epoch = world_.node(parcel.from).epoch;
      push(event);
      return;
    }
    if (fault) at = std::max(at, fault->end);
    TicksMs& last = stream_time_[{parcel.from, parcel.to}];
    last = at = std::max(at, last);
    schedule_parcel(std::move(parcel), at);
    return;
  }
  if (fault) return;
  if (chance(3)) at += draw(1, 40);
  if (chance(2)) schedule_parcel(parcel, at + draw(0, 60));
  schedule_parcel(std::move(parcel), at);
}

void RecoverySimulator::schedule_parcel(Parcel parcel, TicksMs at) {
  size_t place = parcels_.size();
  if (free_parcels_.empty()) {
    parcels_.emplace_back();
  } else {
    place = free_parcels_.back();
    free_parcels_.pop_back();
  }
  const int to = parcel.to;
  parcels_[place] = std::move(parcel);
  push({Event::Kind::kParcel, at, 0, to, 0, 0, place});
}

void RecoverySimulator::push(Event event) {
  event.order = order_++;
  queue_.push(event);
}

void RecoverySimulator::push_tick(int node) {
  const NodeModel& model = world_.node(node);
  if (!model.alive) return;
  const auto deadline = model.core->deadline();
  TicksMs& at = tick_at_[static_cast<size_t>(node)];
  if (!deadline || (at > now_ && at <= *deadline)) return;
  at = std::max(*deadline, now_ + 1);
  push({Event::Kind::kTick, at, 0, node});
}

// --- The run -------------------------------------------------------------------------------------

RecoveryResult RecoverySimulator::run() {
  for (int node = 0; node < plan_->node_count(); ++node) {
    const int pace = draw(1, 30);
    TicksMs at = 0;
    for (size_t i = 0; i < plan_->operations.size(); ++i) {
      at = std::min<TicksMs>(at + draw(0, pace), kSubmittedBy);
      push({Event::Kind::kSubmit, at, 0, node});
    }
  }
  world_.start(0);
  dispatch_sent();
  for (int node = 0; node < plan_->voter_count(); ++node) push_tick(node);
  while (!queue_.empty() && world_.checks().violation().empty()) {
    const Event event = queue_.top();
    if (event.at >= calm_at_) {
      note_quorum();
      if (all_finished()) break;
    }
    if (event.at > calm_at_ + kEndsWithin) break;
    queue_.pop();
    now_ = event.at;
    handle(event);
  }
  if (world_.checks().violation().empty()) check_end();
  summarize();
  return std::move(result_);
}

void RecoverySimulator::handle(const Event& event) {
  const auto node = static_cast<size_t>(event.node);
  if (event.kind == Event::Kind::kTick && event.at != tick_at_[node]) return;  // a later tick holds
  if (now_ < frozen_until_[node] && event.kind != Event::Kind::kCrash) {
    Event later = event;
    later.at = frozen_until_[node];
    if (event.kind == Event::Kind::kTick) tick_at_[node] = later.at;
    push(later);
    return;
  }
  ++result_.events;
  trace(event);
  switch (event.kind) {
    case Event::Kind::kParcel: {
      const Parcel parcel = std::move(parcels_[event.parcel]);
      free_parcels_.push_back(event.parcel);
      world_.arrive(now_, parcel);
      break;
    }
    case Event::Kind::kTick:
      tick_at_[node] = -1;
      world_.tick(now_, event.node);
      break;
    case Event::Kind::kSubmit: world_.submit(now_, event.node); break;
    case Event::Kind::kCrash: world_.crash(event.node); break;
    case Event::Kind::kFreeze:
      frozen_until_[node] = std::max(frozen_until_[node], event.until);
      break;
    case Event::Kind::kSuspect:
      if (event.epoch == Epoch{} || event.epoch == world_.node(event.node).epoch) {
        world_.suspect(now_, event.node, event.other);
      }
      break;
  }
  dispatch_sent();
  push_tick(event.node);
}

bool RecoverySimulator::all_finished() const {
  for (int node = 0; node < plan_->node_count(); ++node) {
    if (world_.node(node).alive && !world_.has_finished(node)) return false;
  }
  return true;
}

// Notes, when the last fault is over, whether the job can go on. If all who know that an epoch was
// decided are dead, a quorum of the epoch before is needed to find it out.
void RecoverySimulator::note_quorum() {
  if (noted_) return;
  noted_ = true;
  std::set<int> there;
  for (int node = 0; node < plan_->voter_count(); ++node) {
    if (world_.node(node).alive && !world_.node(node).ended) there.insert(node);
  }
  const RecoveryChecks& checks = world_.checks();
  const std::vector<NodeIndex> members = checks.survivors();
  const Epoch last{checks.epochs()};
  const bool is_known = std::any_of(there.begin(), there.end(),
                                    [&](int node) { return world_.node(node).epoch == last; });
  must_go_on_ = !members.empty() && checks.is_quorum(there, members) &&
                (is_known || checks.is_quorum(there, checks.members_of(Epoch{last.value - 1})));
  if (!must_go_on_) ++result_.quorums_lost;
}

// --- Liveness ------------------------------------------------------------------------------------

void RecoverySimulator::check_end() {
  RecoveryChecks& checks = world_.checks();
  for (int node = 0; node < plan_->node_count(); ++node) {
    if (world_.node(node).alive && !world_.has_finished(node)) {
      checks.violated("liveness: node " + std::to_string(node) + " waits for ever");
      return;
    }
  }
  // A member that reported and died is a member of the next epoch all the same, which may then be
  // without a quorum, though the epoch before had it.
  std::set<int> alive;
  for (int node = 0; node < plan_->voter_count(); ++node) {
    if (world_.node(node).alive) alive.insert(node);
  }
  const std::vector<NodeIndex> survivors = checks.survivors();
  if (!must_go_on_ || survivors.empty() || !checks.is_quorum(alive, survivors)) return;
  for (const NodeIndex survivor : survivors) {
    const NodeModel& model = world_.node(survivor.value);
    if (model.alive && model.ended) {
      checks.violated("liveness: node " + std::to_string(survivor.value) +
                      " gives up, though a quorum is connected");
    }
  }
  if (now_ > calm_at_ + kGoesOnWithin) {
    checks.violated("liveness: it takes too long, though a quorum is connected");
  }
}

void RecoverySimulator::trace(const Event& event) {
  hash_.add(static_cast<uint64_t>(event.kind)).add(static_cast<uint64_t>(now_));
  hash_.add(static_cast<uint64_t>(event.node)).add(static_cast<uint64_t>(event.other));
  if (event.kind == Event::Kind::kParcel) {
    const Parcel& parcel = parcels_[event.parcel];
    hash_.add(static_cast<uint64_t>(parcel.from)).add(parcel.body.index());
  }
  if (!limits_.keep_trace) return;
  static constexpr const char* kNames[] = {"parcel", "tick",   "submit",
                                           "crash",  "freeze", "suspects"};
  static constexpr const char* kMessages[] = {"Heartbeat", "Acknowledge", "Prepare",
                                              "Promise",   "Accept",      "Accepted",
                                              "Refuse",    "Learn",       "Ask"};
  std::string line = std::to_string(now_) + " n" + std::to_string(event.node) + " " +
                     kNames[static_cast<size_t>(event.kind)];
  if (event.kind == Event::Kind::kSuspect) line += " n" + std::to_string(event.other);
  if (event.kind == Event::Kind::kFreeze) line += " until " + std::to_string(event.until);
  if (event.kind == Event::Kind::kParcel) {
    const Parcel& parcel = parcels_[event.parcel];
    line += " from n" + std::to_string(parcel.from) + ": ";
    if (const auto* message = std::get_if<core::RecoveryMessage>(&parcel.body)) {
      line += kMessages[message->body.index()];
      line += " of epoch " + std::to_string(message->epoch.value);
    } else if (const auto* frame = std::get_if<Frame>(&parcel.body)) {
      line += "frame " + std::to_string(frame->epoch.value) + "/" +
              std::to_string(frame->seq.value) + " chunk " + std::to_string(frame->chunk) +
              (frame->phase == core::RingPhase::kReduce ? " reduce" : " gather");
    } else {
      line += std::holds_alternative<FetchRequest>(parcel.body) ? "fetch" : "fetched";
    }
  }
  const NodeModel& model = world_.node(event.node);
  line += "   [epoch " + std::to_string(model.epoch.value) + (model.sealed ? ", sealed" : "") +
          (model.ended ? ", ended" : "") + (model.alive ? "]" : ", dead]");
  result_.trace.push_back(std::move(line));
}

void RecoverySimulator::summarize() {
  const RecoveryChecks& checks = world_.checks();
  result_.violation = checks.violation();
  if (!result_.violation.empty()) result_.violation += " (seed " + std::to_string(seed_) + ")";
  result_.trace_hash = hash_.value();
  result_.epochs = checks.epochs();
  result_.redone = checks.redone();
  result_.completed_by_decision = checks.completed_by_decision();
  result_.diverged = checks.diverged();
  for (int node = 0; node < plan_->node_count(); ++node) {
    const NodeModel& model = world_.node(node);
    if (model.alive && model.ended) ++result_.left_out;
    const auto& endings = model.endings;
    for (size_t i = 0; i < endings.size(); ++i) {
      const bool delivered = endings[i].kind == OperationEnding::Kind::kDelivered;
      result_.delivered += delivered;
      result_.failed += endings[i].kind == OperationEnding::Kind::kFailed;
      result_.mixed += delivered && i > 0 &&
                       endings[i - 1].kind == OperationEnding::Kind::kDelivered &&
                       plan_->operations[i].tensor == plan_->operations[i - 1].tensor &&
                       endings[i].result != endings[i - 1].result;
    }
  }
}

}  // namespace rueda::sim
