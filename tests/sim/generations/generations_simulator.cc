#include "tests/sim/generations/generations_simulator.h"

#include <algorithm>
#include <utility>

namespace rueda::sim {
namespace {

using core::Generation;
using core::GenerationNode;
using core::Generations;
using core::GenerationSlot;
using core::MemberId;
using core::Slot;
using State = core::Generations::State;

constexpr TicksMs kLookEvery = 10;
constexpr TicksMs kFaultsUntil = 500;
constexpr TicksMs kStartsWithin =
    800;  // A generation in which somebody is missing is given up then.
constexpr TicksMs kEndsAfter = 3'000;  // After the last fault.
constexpr TicksMs kStepsWithin = 300;

constexpr Slot slot_of(int index) { return Slot{static_cast<int32_t>(index)}; }

}  // namespace

GenerationsSimulator::GenerationsSimulator(uint64_t seed, const GenerationsLimits& limits)
    : seed_(seed), limits_(limits), random_(seed * 0x9e3779b97f4a7c15ull + 1) {}

// --- Setup ---------------------------------------------------------------------------------------

void GenerationsSimulator::set_up() {
  const int count = draw(1, limits_.max_nodes);
  const int first_nodes = draw(1, count);
  nodes_.resize(static_cast<size_t>(count));
  Generation first;
  first.epoch = Epoch{1};
  int total = 0;
  int first_total = 0;
  for (int i = 0; i < count; ++i) {
    const int slots = draw(1, 3);
    node(i).slots.resize(static_cast<size_t>(slots));
    total += slots;
    if (i >= first_nodes) continue;
    GenerationNode& member = first.nodes.emplace_back(GenerationNode{{name(i), 1}, name(i), {}});
    for (int slot = 0; slot < slots; ++slot) {
      member.slots.push_back({slot_of(slot), Rank{first_total++}});
    }
  }
  options_.job = "j";
  options_.min_ranks = draw(1, first_total);
  options_.max_ranks = draw(first_total, total);
  options_.interval_ms = 20;
  options_.silence_ms = 100;
  options_.attach_ms = 600;
  options_.elastic_timeout_ms = 60'000;
  slowest_ = chance(80) ? draw(1, 5) : draw(5, 30);

  const auto generation = std::make_shared<const Generation>(first);
  decided_.emplace(1, first);
  for (int i = 0; i < count; ++i) {
    if (i >= first_nodes) {
      push({.kind = Event::Kind::kStartDaemon, .at = draw(1, 600), .node = i, .life = 1});
      continue;
    }
    start_daemon(i, 1);
    node(i).core->begin_first(generation);
    for (size_t slot = 0; slot < node(i).slots.size(); ++slot) {
      node(i).slots[slot].is_in = true;
      const Place place{node(i).core->self(), slot_of(static_cast<int>(slot))};
      attached_[place] = {order_++, 0, 1};
      begun_[place] = {order_++, 0, 1};
    }
  }
  const int faults = draw(0, limits_.max_faults);
  const bool has_node_faults = chance(75);
  if (has_node_faults && faults > 0) {
    is_gentle_ = false;
    loss_percent_ = chance(50) ? 0 : draw(1, 10);
    fatal_accept_ = chance(50) ? 0 : draw(1, 6);
  }
  for (int i = 0; i < faults; ++i) {
    if (has_node_faults) {
      draw_fault();
    } else {
      const int index = draw(0, count - 1);
      push({.kind = Event::Kind::kKillProcess,
            .at = draw(1, kFaultsUntil),
            .node = index,
            .slot = draw(0, static_cast<int>(node(index).slots.size()) - 1),
            .until = chance(60) ? draw(1, 200) : 0});
    }
  }
  draw_end();
  // Newcomers are the last to come.
  calm_at_ = std::max<TicksMs>(calm_at_, 800);
  push({.kind = Event::Kind::kLook, .at = kLookEvery});
}

// It has numbers of its own: a seed without an end gives the run that it gave before there were
// ends.
void GenerationsSimulator::draw_end() {
  std::mt19937_64 ends(seed_ + 1);
  if (ends() % 100 < 15) {
    push({.kind = Event::Kind::kEnd,
          .at = 1 + static_cast<TicksMs>(ends() % kFaultsUntil),
          .node = static_cast<int>(ends() % nodes_.size())});
  }
}

void GenerationsSimulator::draw_fault() {
  const auto count = static_cast<int>(nodes_.size());
  const TicksMs when = draw(1, kFaultsUntil);
  const TicksMs until = when + draw(5, 350);
  const int index = draw(0, count - 1);
  calm_at_ = std::max(calm_at_, until + 200);
  switch (draw(0, 5)) {
    case 0:
    case 1:
      push({.kind = Event::Kind::kKillProcess,
            .at = when,
            .node = index,
            .slot = draw(0, static_cast<int>(node(index).slots.size()) - 1),
            .until = chance(60) ? draw(1, 200) : 0});
      break;
    case 2:
      push({.kind = Event::Kind::kKillDaemon,
            .at = when,
            .node = index,
            .until = chance(60) ? draw(1, 200) : 0});
      break;
    case 3: push({.kind = Event::Kind::kFreeze, .at = when, .node = index, .until = until}); break;
    case 4: {
      const int other = draw(0, count - 1);
      if (other == index) break;
      cuts_.push_back({index, other, when, until});
      if (chance(60)) cuts_.push_back({other, index, when, until});
      break;
    }
    case 5: {
      // The nodes fall into two parts.
      for (int a = 0; a < count; ++a) {
        for (int b = 0; b < count; ++b) {
          if ((a <= index) != (b <= index)) cuts_.push_back({a, b, when, until});
        }
      }
      break;
    }
  }
}

void GenerationsSimulator::start_daemon(int index, uint64_t incarnation) {
  std::vector<std::string> contacts;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (i != index) contacts.push_back(name(i));
  }
  Node& it = node(index);
  it.lives = true;
  it.incarnation = incarnation;
  it.core = std::make_unique<Generations>(MemberId{name(index), incarnation}, name(index),
                                          std::move(contacts), options_);
}

int GenerationsSimulator::node_of(const std::string& address) const {
  return std::stoi(address.substr(1));
}

// --- Events --------------------------------------------------------------------------------------

void GenerationsSimulator::push(Event event) {
  event.order = order_++;
  queue_.push(std::move(event));
}

void GenerationsSimulator::push_tick(int index) {
  Node& it = node(index);
  if (!it.lives) return;
  const std::optional<TicksMs> wanted = it.core->wakes_at();
  if (!wanted || (it.tick_at > now_ && it.tick_at <= *wanted)) return;
  it.tick_at = std::max(*wanted, now_ + 1);
  push({.kind = Event::Kind::kTick, .at = it.tick_at, .node = index});
}

GenerationsResult GenerationsSimulator::run() {
  set_up();
  while (!queue_.empty() && result_.violation.empty()) {
    const Event event = queue_.top();
    queue_.pop();
    if (event.at > calm_at_ + kEndsAfter) break;
    now_ = event.at;
    handle(event);
  }
  if (result_.violation.empty()) check_end();
  if (!result_.violation.empty()) result_.violation += " (seed " + std::to_string(seed_) + ")";
  result_.trace_hash = hash_.value();
  result_.generations = decided_.rbegin()->first;
  return std::move(result_);
}

void GenerationsSimulator::handle(const Event& event) {
  Node& it = node(event.node);
  const bool is_of_daemon = event.kind != Event::Kind::kLook &&
                            event.kind != Event::Kind::kKillDaemon &&
                            event.kind != Event::Kind::kStartDaemon;
  if (is_of_daemon && event.kind == Event::Kind::kTick && event.at != it.tick_at) return;
  if (is_of_daemon && is_frozen(event.node)) {
    Event later = event;
    later.at = it.frozen_until;
    if (event.kind == Event::Kind::kTick) it.tick_at = later.at;
    return push(std::move(later));
  }
  ++result_.events;
  if (event.kind != Event::Kind::kLook) trace(event);
  core::GenerationsOutput output;
  switch (event.kind) {
    case Event::Kind::kMessage: deliver(event, output); break;
    case Event::Kind::kTick:
      it.tick_at = -1;
      if (it.lives) it.core->on_time(now_, output);
      break;
    case Event::Kind::kLook:
      push({.kind = Event::Kind::kLook, .at = now_ + kLookEvery});
      return look();
    case Event::Kind::kAttach: {
      Process& process = it.slots[static_cast<size_t>(event.slot)];
      if (!it.lives || !process.lives || process.waits || process.is_in ||
          process.life != event.life) {
        break;
      }
      process.waits = true;
      const uint32_t epoch = it.core->known() ? it.core->known()->epoch.value : 0;
      attached_[{it.core->self(), slot_of(event.slot)}] = {order_++, process.life, epoch};
      it.core->attach(now_, slot_of(event.slot), output);
      break;
    }
    case Event::Kind::kKillProcess: return kill_process(event);
    case Event::Kind::kKillDaemon: return kill_daemon(event);
    case Event::Kind::kStartDaemon:
      if (it.lives || it.is_over) break;
      start_daemon(event.node, event.life);
      if (it.kept) resume(event.node);
      for (int slot = 0; slot < static_cast<int>(it.slots.size()); ++slot) {
        attach_later(event.node, slot, now_ + draw(1, 60));
      }
      break;
    case Event::Kind::kFreeze:
      if (!is_frozen(event.node)) it.frozen_since = now_;
      it.frozen_until = std::max(it.frozen_until, event.until);
      break;
    case Event::Kind::kEndRunning: {
      const core::GenerationPtr known = it.lives ? it.core->known() : nullptr;
      if (!known || known->epoch != event.epoch || it.core->state() != State::kRunning) break;
      leave(event.node, event.reason);
      it.core->end_running(now_, event.reason, output);
      break;
    }
    case Event::Kind::kLoseNode:
      if (it.lives) it.core->lose_node(now_, event.other, output);
      break;
    case Event::Kind::kEnd:
      if (it.lives) it.core->end(now_, {Code::kShutDown, "ended", {"", {}, true}}, output);
      break;
  }
  carry_out(event.node, std::move(output));
}

void GenerationsSimulator::resume(int index) {
  Node& it = node(index);
  ++result_.resumed;
  core::GenerationsOutput output;
  it.core->resume(now_, *std::exchange(it.kept, std::nullopt), output);
  for (const int slot : std::exchange(it.died_since, {}))
    it.core->lose(now_, slot_of(slot), output);
  carry_out(index, std::move(output));
}

void GenerationsSimulator::deliver(const Event& event, core::GenerationsOutput& output) {
  Node& it = node(event.node);
  const core::GenerationMessage message = std::move(parcels_[event.parcel]);
  free_parcels_.push_back(event.parcel);
  if (std::holds_alternative<core::AcceptGeneration>(message.body) && fatal_accept_ > 0 &&
      now_ < kFaultsUntil && --fatal_accept_ == 0) {
    const TicksMs until = now_ + draw(50, 350);
    calm_at_ = std::max(calm_at_, until + 200);
    const bool dies = chance(50);
    push({.kind = dies ? Event::Kind::kKillDaemon : Event::Kind::kFreeze,
          .at = now_,
          .node = node_of(message.from_address),
          .until = !dies        ? until
                   : chance(60) ? draw(1, 200)
                                : 0});
    // Whoever has accepted may be followed by another daemon at once, and be the only one who has.
    if (chance(50)) {
      accepts_lost_until_ = now_ + 60;
      push({.kind = Event::Kind::kKillDaemon,
            .at = now_ + draw(1, 3),
            .node = event.node,
            .until = draw(1, 30),
            .is_followed = true});
    }
  } else if (std::holds_alternative<core::AcceptGeneration>(message.body) &&
             now_ < accepts_lost_until_) {
    return;
  }
  if (it.lives) it.core->on_message(now_, message, output);
}

void GenerationsSimulator::kill_process(const Event& event) {
  Node& it = node(event.node);
  Process& process = it.slots[static_cast<size_t>(event.slot)];
  if (!process.lives) return;
  process = Process{.lives = false, .life = process.life};
  if (event.until > 0) {
    // Another process takes the slot.
    process = Process{.life = process.life + 1};
    attach_later(event.node, event.slot, now_ + event.until);
  }
  if (!it.lives) {
    it.died_since.insert(event.slot);
    return;
  }
  core::GenerationsOutput output;
  it.core->lose(now_, slot_of(event.slot), output);
  carry_out(event.node, std::move(output));
}

void GenerationsSimulator::kill_daemon(const Event& event) {
  Node& it = node(event.node);
  if (!it.lives) return;
  it.lives = false;
  it.died_since.clear();
  const core::GenerationVotes votes = it.core->votes();
  it.core.reset();
  it.frozen_until = 0;
  it.tick_at = -1;
  for (Process& process : it.slots) process.waits = process.is_in = false;
  if (event.until == 0) return;
  const bool is_same_member = event.is_followed || chance(50);
  if (is_same_member) it.kept = votes;
  push({.kind = Event::Kind::kStartDaemon,
        .at = now_ + event.until,
        .node = event.node,
        .life = it.incarnation + (is_same_member ? 0 : 1)});
}

void GenerationsSimulator::attach_later(int index, int slot, TicksMs at) {
  const Process& process = node(index).slots[static_cast<size_t>(slot)];
  push({.kind = Event::Kind::kAttach, .at = at, .node = index, .slot = slot, .life = process.life});
}

void GenerationsSimulator::carry_out(int index, core::GenerationsOutput output) {
  for (auto& [address, message] : output.sends) dispatch(index, address, std::move(message));
  if (output.ended) leave(index, *output.ended);
  if (output.begun) begin(index, output.begun);
  if (output.hosts_changed) {
    // The ranks hear it at a commit, agree, and leave the generation.
    const core::GenerationPtr known = node(index).core->known();
    for (const GenerationNode& member : known->nodes) {
      const int to = node_of(member.control_address);
      if (to != index && (is_cut(index, to) || is_cut(to, index))) continue;
      push({.kind = Event::Kind::kEndRunning,
            .at = now_ + draw(5, 60),
            .node = to,
            .epoch = known->epoch,
            .reason = "hosts have changed"});
    }
  }
  if (output.over) end(index);
  push_tick(index);
}

void GenerationsSimulator::leave(int index, const std::string&) {
  for (int slot = 0; slot < static_cast<int>(node(index).slots.size()); ++slot) {
    Process& process = node(index).slots[static_cast<size_t>(slot)];
    if (!process.is_in) continue;
    process.is_in = false;
    attach_later(index, slot, now_ + draw(1, 60));
  }
}

void GenerationsSimulator::end(int index) {
  Node& it = node(index);
  if (!it.core->was_ended()) return violated("liveness: node " + name(index) + " gives up");
  it.is_over = true;
  for (Process& process : it.slots) process = Process{.lives = false, .life = process.life};
}

void GenerationsSimulator::begin(int index, const core::GenerationPtr& generation) {
  Node& it = node(index);
  if (it.core->was_ended()) violated("final: " + name(index) + " begins a generation all the same");
  const MemberId id{name(index), it.incarnation};
  const auto member = std::find_if(generation->nodes.begin(), generation->nodes.end(),
                                   [&](const GenerationNode& one) { return one.id == id; });
  if (member == generation->nodes.end()) {
    return violated("incarnations: " + name(index) + " begins a generation without it");
  }
  check_decided(index, *generation);
  it.began = now_;
  for (const GenerationSlot& slot : member->slots) {
    Process& process = it.slots[static_cast<size_t>(slot.slot.value)];
    if (!process.lives || !process.waits) continue;
    process.waits = false;
    process.is_in = true;
    begun_[{id, slot.slot}] = {order_++, process.life, generation->epoch.value};
  }
}

void GenerationsSimulator::dispatch(int from, const std::string& address,
                                    core::GenerationMessage message) {
  const int to = node_of(address);
  if (const auto* present = std::get_if<core::Present>(&message.body)) {
    for (const core::OfferedSlot& offered : present->offer.slots) {
      const Process& process = node(from).slots[static_cast<size_t>(offered.slot.value)];
      if (!process.lives || !process.waits) {
        violated("true offers: " + name(from) + " offers a process that does not wait");
      }
    }
  }
  if (is_cut(from, to) || chance(loss_percent_)) return;
  TicksMs at = now_ + draw(1, slowest_);
  if (chance(3)) at += draw(1, 60);
  const auto schedule = [&](core::GenerationMessage parcel, TicksMs when) {
    size_t place = parcels_.size();
    if (free_parcels_.empty()) {
      parcels_.emplace_back();
    } else {
      place = free_parcels_.back();
      free_parcels_.pop_back();
    }
    parcels_[place] = std::move(parcel);
    push({.kind = Event::Kind::kMessage, .at = when, .node = to, .parcel = place});
  };
  if (chance(2)) schedule(message, at + draw(0, 200));
  schedule(std::move(message), at);
}

bool GenerationsSimulator::is_cut(int from, int to) const {
  return std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
    return cut.from == from && cut.to == to && now_ >= cut.begin && now_ < cut.end;
  });
}

// --- The generation that runs --------------------------------------------------------------------

void GenerationsSimulator::look() {
  for (int i = 0; i < static_cast<int>(nodes_.size()) && result_.violation.empty(); ++i) {
    Node& it = node(i);
    if (!it.lives || is_frozen(i) || it.core->state() != State::kRunning) continue;
    const core::GenerationPtr generation = it.core->known();
    int whom = -1;
    const std::optional<std::string> reason = missed(i, *generation, &whom);
    if (!reason) continue;
    push({.kind = Event::Kind::kEndRunning,
          .at = now_,
          .node = i,
          .epoch = generation->epoch,
          .reason = *reason});
    if (whom < 0 || !chance(70)) continue;
    Event lost{.kind = Event::Kind::kLoseNode, .at = now_ + draw(0, 20), .node = i};
    lost.other = generation->nodes[static_cast<size_t>(whom)].id;
    push(std::move(lost));
  }
  for (auto it = decided_.rbegin(); it != decided_.rend(); ++it) {
    if (!makes_step(it->second)) continue;
    if (it->first < last_step_) {
      violated("one side: generation " + std::to_string(it->first) + " makes a step after " +
               std::to_string(last_step_));
    }
    last_step_ = it->first;
    last_step_at_ = now_;
    ++result_.steps;
    break;
  }
}

// Returns why the node takes the generation for over, and by which index it misses a member.
std::optional<std::string> GenerationsSimulator::missed(int index, const Generation& generation,
                                                        int* whom) {
  Node& it = node(index);
  for (int i = 0; i < static_cast<int>(generation.nodes.size()); ++i) {
    const GenerationNode& member = generation.nodes[static_cast<size_t>(i)];
    const int other = node_of(member.control_address);
    Node& there = node(other);
    if (other == index) {
      if (!is_in(other, member, generation.epoch)) return "a process has died on " + name(index);
      continue;
    }
    if (!there.lives || there.incarnation != member.id.incarnation) {
      if (!chance(50)) continue;
      *whom = i;
      return name(other) + " has died";
    }
    const bool is_long_frozen = is_frozen(other) && now_ - there.frozen_since > options_.silence_ms;
    const bool is_long_cut = std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
      const bool between =
          (cut.from == index && cut.to == other) || (cut.from == other && cut.to == index);
      return between && now_ < cut.end && now_ - cut.begin > options_.silence_ms;
    });
    if (is_long_frozen || is_long_cut) {
      *whom = i;
      return name(other) + " is silent";
    }
    if (is_frozen(other) || is_cut(other, index)) continue;
    const uint32_t known = there.core->known() ? there.core->known()->epoch.value : 0;
    const bool has_begun =
        known == generation.epoch.value && there.core->state() == State::kRunning;
    // The word travels for a while.
    if (known >= generation.epoch.value && !has_begun && (is_gentle_ || chance(50))) {
      return "the generation is over on " + name(other);
    }
    if (known < generation.epoch.value && now_ - it.began > kStartsWithin) {
      return name(other) + " has not begun";
    }
  }
  return std::nullopt;
}

bool GenerationsSimulator::is_in(int index, const GenerationNode& member, Epoch epoch) {
  Node& it = node(index);
  if (!it.lives || it.incarnation != member.id.incarnation || is_frozen(index) ||
      it.core->state() != State::kRunning || it.core->known()->epoch != epoch) {
    return false;
  }
  return std::all_of(member.slots.begin(), member.slots.end(), [&](const GenerationSlot& slot) {
    return it.slots[static_cast<size_t>(slot.slot.value)].is_in;
  });
}

bool GenerationsSimulator::makes_step(const Generation& generation) {
  for (const GenerationNode& member : generation.nodes) {
    const int index = node_of(member.control_address);
    if (!is_in(index, member, generation.epoch)) return false;
    for (const GenerationNode& other : generation.nodes) {
      if (is_cut(index, node_of(other.control_address))) return false;
    }
  }
  return true;
}

// --- Checkers ------------------------------------------------------------------------------------

void GenerationsSimulator::violated(const std::string& what) {
  if (result_.violation.empty()) result_.violation = what + " at " + std::to_string(now_);
}

void GenerationsSimulator::check_decided(int index, const Generation& generation) {
  const auto [it, is_new] = decided_.emplace(generation.epoch.value, generation);
  if (!is_new) {
    if (it->second != generation) {
      violated("one decision: " + name(index) + " has another generation " +
               std::to_string(generation.epoch.value));
    }
    return;
  }
  const int size = generation.world_size();
  if (size < options_.min_ranks || size > options_.max_ranks) {
    violated("bounds: a generation of " + std::to_string(size) + " ranks");
  }
  for (const GenerationNode& member : generation.nodes) {
    for (const GenerationSlot& slot : member.slots) {
      const Place place{member.id, slot.slot};
      const auto attached = attached_.find(place);
      const auto begun = begun_.find(place);
      if (attached == attached_.end() ||
          (begun != begun_.end() && begun->second.order > attached->second.order)) {
        violated("attached: a process of " + member.id.node_id +
                 " has a rank and has not attached");
      }
    }
  }
  decided_at_[generation.epoch.value] = now_;
  const auto before = decided_.find(generation.epoch.value - 1);
  if (before == decided_.end()) return;
  result_.grown += size > before->second.world_size();
  result_.replaced_leaders += before->second.nodes.front().id != generation.nodes.front().id;
  check_dealt(before->second, generation);
}

void GenerationsSimulator::check_dealt(const Generation& before, const Generation& next) {
  std::map<Place, Rank> old_rank;
  for (const GenerationNode& member : before.nodes) {
    for (const GenerationSlot& slot : member.slots) old_rank[{member.id, slot.slot}] = slot.rank;
  }
  std::map<Rank, Place> dealt;
  for (const GenerationNode& member : next.nodes) {
    for (const GenerationSlot& slot : member.slots) dealt[slot.rank] = {member.id, slot.slot};
  }
  bool has_newcomer = false;
  bool has_state = false;
  Rank last{-1};
  for (const auto& [rank, place] : dealt) {
    const auto old = old_rank.find(place);
    has_newcomer |= old == old_rank.end();
    const auto begun = begun_.find(place);
    const bool survives = old != old_rank.end() && begun != begun_.end() &&
                          begun->second.epoch == before.epoch.value &&
                          begun->second.life == attached_.at(place).life;
    if (!survives) continue;
    has_state = true;
    if (has_newcomer || old->second < last) {
      violated("order of ranks: a survivor stands behind others");
    }
    last = old->second;
  }
  // It may end as soon as it has been decided, and newcomers wait for the state from then on.
  const bool awaits_state =
      !has_state && now_ - decided_at_[before.epoch.value] <= options_.attach_ms;
  for (const auto& [place, rank] : old_rank) {
    const Node& it = node(node_of(place.first.node_id));
    const Process& process = it.slots[static_cast<size_t>(place.second.value)];
    const auto begun = begun_.find(place);
    if (!process.lives || begun == begun_.end() || begun->second.life != process.life ||
        begun->second.epoch != before.epoch.value) {
      continue;
    }
    if (awaits_state && it.lives && it.incarnation == place.first.incarnation) {
      violated("state: newcomers alone begin while one lives that was in");
    }
    if (!is_gentle_) continue;
    // Nobody can have been taken for lost: who lives is in.
    const bool is_dealt = std::any_of(dealt.begin(), dealt.end(), [&at = place](const auto& entry) {
      return entry.second == at;
    });
    if (!is_dealt) violated("survivors: one that lives is left out");
  }
}

bool GenerationsSimulator::check_ended() {
  const auto knows = [](const Node& one) { return one.lives && one.core->was_ended(); };
  if (std::none_of(nodes_.begin(), nodes_.end(), knows)) return false;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    const Node& it = node(i);
    if (!it.lives) continue;
    const bool waits = std::any_of(it.slots.begin(), it.slots.end(), [](const Process& process) {
      return process.waits || process.is_in;
    });
    if (!knows(it) || waits) violated("final: " + name(i) + " goes on, though others have ended");
  }
  return true;
}

void GenerationsSimulator::check_end() {
  result_.was_ended = check_ended();
  if (result_.was_ended) return;
  core::GenerationPtr newest;
  int living = 0;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (!node(i).lives) continue;
    const core::GenerationPtr& known = node(i).core->known();
    if (known && (!newest || known->epoch > newest->epoch)) newest = known;
    for (const Process& process : node(i).slots) living += process.lives;
  }
  if (!newest) return;
  std::vector<NodeIndex> voters;
  for (size_t i = 0; i < newest->nodes.size(); ++i) {
    voters.push_back(NodeIndex{static_cast<int32_t>(i)});
  }
  const bool has_quorum = core::Quorum(voters).reached_by([&](NodeIndex voter) {
    const MemberId& id = newest->node(voter).id;
    const Node& it = node(node_of(id.node_id));
    return it.lives && it.incarnation == id.incarnation;
  });
  result_.quorum_lost = !has_quorum;
  result_.too_few = living < options_.min_ranks;
  if (!has_quorum || result_.too_few) return;
  int in = 0;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    for (const Process& process : node(i).slots) in += process.is_in;
  }
  const int wanted = std::min(living, options_.max_ranks);
  if (last_step_ != newest->epoch.value || now_ - last_step_at_ > kStepsWithin) {
    violated("liveness: generation " + std::to_string(newest->epoch.value) + " makes no steps");
  } else if (in != wanted) {
    violated("liveness: " + std::to_string(in) + " processes take part, and " +
             std::to_string(wanted) + " could");
  }
}

void GenerationsSimulator::trace(const Event& event) {
  hash_.add(static_cast<uint64_t>(event.kind)).add(static_cast<uint64_t>(now_));
  hash_.add(static_cast<uint64_t>(event.node)).add(static_cast<uint64_t>(event.slot));
  if (!limits_.keep_trace) return;
  static constexpr const char* kNames[] = {
      "message",       "tick",    "look", "attach", "process dies",  "daemon dies",
      "daemon starts", "freezes", "ends", "loses",  "is told to end"};
  static constexpr const char* kMessages[] = {"Present",  "Heard",  "Prepare", "Promise", "Accept",
                                              "Accepted", "Refuse", "Learn",   "End"};
  static constexpr const char* kStates[] = {"outside", "running", "forming", "over"};
  std::string line =
      std::to_string(now_) + " " + name(event.node) + " " + kNames[static_cast<size_t>(event.kind)];
  if (event.kind == Event::Kind::kMessage) {
    const core::GenerationMessage& message = parcels_[event.parcel];
    line += std::string(" ") + kMessages[message.body.index()] + " from " + message.from.node_id +
            "/" + std::to_string(message.from.incarnation) + " for " +
            std::to_string(message.epoch.value);
    if (const auto* present = std::get_if<core::Present>(&message.body)) {
      line += " slots " + std::to_string(present->offer.slots.size()) + " awaited " +
              std::to_string(present->awaited) + (present->forms ? " forms" : "");
    }
  } else {
    line += " " + std::to_string(event.slot) + " " + event.reason + event.other.node_id;
  }
  if (node(event.node).lives) {
    const Generations& core = *node(event.node).core;
    line += "   [" + std::string(kStates[static_cast<size_t>(core.state())]) + " " +
            std::to_string(core.known() ? core.known()->epoch.value : 0) + "]";
  }
  result_.trace.push_back(std::move(line));
}

}  // namespace rueda::sim
