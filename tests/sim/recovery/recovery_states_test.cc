// Tests every run of three nodes and two operations in which at most one node dies, at any point:
// all of them, and not a sample. States are told apart by a hash over everything that decides how
// they go on; from each, every event that may come next is tried, until all who live have entered
// the next epoch. Nothing can go wrong after that, and every order leads to the same state, so one
// is followed.

#include <deque>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include <gtest/gtest.h>

#include "tests/sim/recovery/recovery_world.h"

namespace rueda::sim {
namespace {

// Time stands still, except for jumps: over the leases, once all survivors are sealed, and to the
// next timer when nothing else can happen.
constexpr TicksMs kEviction = 1'000'000;
constexpr TicksMs kEndOfTime = 1'900'000;

std::shared_ptr<const Plan> plan_of(int operations) {
  auto plan = std::make_shared<Plan>();
  std::vector<core::LayoutNode> nodes;
  for (int32_t i = 0; i < 3; ++i) {
    nodes.push_back({"n" + std::to_string(i), "", {Rank{i}}});
  }
  plan->layout = core::Layout::make(std::move(nodes)).value();
  for (int i = 0; i < operations; ++i) plan->operations.push_back({1, 1, i});
  core::RecoveryOptions& options = plan->options;
  options.policy = core::DeathPolicy::kShrink;
  options.heartbeat_ms = 10 * kEviction;
  options.lease_ms = kEviction - 1;
  options.suspicion_ms = 20 * kEviction;
  options.eviction_ms = kEviction;
  options.stagger_ms = 1;
  options.retry_ms = 10'000;
  options.resend_ms = kEviction;
  options.give_up_ms = 20 * kEviction;
  return plan;
}

struct State {
  explicit State(const std::shared_ptr<const Plan>& plan) : world(plan) {}

  RecoveryWorld world;
  // The messages by sender, receiver, and whether they are data; each wire keeps its order.
  std::map<std::tuple<int, int, bool>, std::deque<Parcel>> wires;
  TicksMs now = 0;
  int dead = -1;
  std::set<int> suspecting;  // survivors that have noticed the death

  uint64_t hash() const {
    Fnv1a hash;
    world.hash(hash);
    for (const auto& [wire, parcels] : wires) {
      for (const Parcel& parcel : parcels) hash_parcel(parcel, hash);
    }
    hash.add(static_cast<uint64_t>(now)).add(static_cast<uint64_t>(dead));
    for (const int node : suspecting) hash.add(static_cast<uint64_t>(node));
    return hash.value();
  }
};

class StateSpace {
 public:
  explicit StateSpace(int operations) : plan_(plan_of(operations)) {}

  void explore() {
    State first(plan_);
    first.world.start(0);
    settle(first);
    visit(std::move(first));
    while (!open_.empty() && violation_.empty()) {
      const State state = std::move(open_.back());
      open_.pop_back();
      expand(state);
    }
  }

  const std::string& violation() const { return violation_; }
  size_t states() const { return seen_.size(); }
  uint64_t transitions() const { return transitions_; }
  uint64_t ends() const { return ends_; }
  uint64_t ends_redone() const { return ends_redone_; }
  uint64_t ends_completed() const { return ends_completed_; }

 private:
  void expand(const State& state) {
    const uint64_t before = transitions_;
    tried_ = nullptr;
    follow_one_ = state.dead >= 0;
    for (int node = 0; node < plan_->node_count(); ++node) {
      const NodeModel& model = state.world.node(node);
      follow_one_ &= !model.alive || model.epoch > Epoch{1};
    }
    for (const auto& [wire, parcels] : state.wires) {
      try_event(state, [&, key = wire](State& next) {
        const Parcel parcel = next.wires.at(key).front();
        pop(next, key);
        next.world.arrive(next.now, parcel);
      });
    }
    for (int node = 0; node < plan_->node_count(); ++node) {
      const NodeModel& model = state.world.node(node);
      if (!model.alive) continue;
      if (may_submit(state, node)) {
        try_event(state, [&](State& next) { next.world.submit(next.now, node); });
      }
      if (state.dead < 0 && !all_done(state)) {
        try_event(state, [&](State& next) { die(next, node); });
      }
      if (state.dead >= 0 && !state.suspecting.contains(node)) {
        try_event(state, [&](State& next) {
          next.suspecting.insert(node);
          if (next.world.node(node).epoch == Epoch{1}) {
            next.world.suspect(next.now, node, next.dead);
          }
        });
      }
      if (const auto deadline = model.core->deadline(); deadline && *deadline <= state.now) {
        try_event(state, [&](State& next) { next.world.tick(next.now, node); });
      }
    }
    if (state.now == 0 && state.dead >= 0 && state.suspecting.size() == 2) {
      try_event(state, [&](State& next) { next.now = kEviction; });
    }
    if (transitions_ == before) on_standstill(state);
  }

  template <class Happen>
  void try_event(const State& state, Happen happen) {
    if (follow_one_ && tried_ == &state) return;
    tried_ = &state;
    ++transitions_;
    State next = state;
    happen(next);
    settle(next);
    if (!next.world.checks().violation().empty()) {
      violation_ = next.world.checks().violation();
      return;
    }
    visit(std::move(next));
  }

  void visit(State state) {
    if (seen_.insert(state.hash()).second) open_.push_back(std::move(state));
  }

  // Puts what was sent on its wire. Heartbeats and the question for a decision arrive at once:
  // their time changes little, and there are many.
  void settle(State& state) {
    while (!state.world.sent().empty()) {
      std::vector<Parcel> sent;
      sent.swap(state.world.sent());
      for (Parcel& parcel : sent) {
        if (!state.world.node(parcel.to).alive) continue;
        const auto* message = std::get_if<core::RecoveryMessage>(&parcel.body);
        const bool at_once = message && (std::holds_alternative<core::Heartbeat>(message->body) ||
                                         std::holds_alternative<core::Ask>(message->body));
        if (at_once) {
          state.world.arrive(state.now, parcel);
        } else {
          state.wires[{parcel.from, parcel.to, parcel.is_data()}].push_back(std::move(parcel));
        }
      }
    }
    skip_what_changes_nothing(state);
  }

  // Handles events without effect, which need no order: frames for a node that is sealed, messages
  // of an epoch that is over where they arrive, submissions while nothing is launched.
  void skip_what_changes_nothing(State& state) const {
    for (auto& [wire, parcels] : state.wires) {
      const NodeModel& to = state.world.node(std::get<1>(wire));
      std::erase_if(parcels, [&](const Parcel& parcel) { return is_void(to, parcel); });
    }
    std::erase_if(state.wires, [](const auto& wire) { return wire.second.empty(); });
    for (int node = 0; node < plan_->node_count(); ++node) {
      while (state.world.node(node).sealed && may_submit(state, node)) {
        state.world.submit(state.now, node);
      }
    }
  }

  static bool is_void(const NodeModel& to, const Parcel& parcel) {
    if (const auto* frame = std::get_if<Frame>(&parcel.body)) {
      return frame->epoch < to.epoch || (frame->epoch == to.epoch && to.sealed);
    }
    const auto* message = std::get_if<core::RecoveryMessage>(&parcel.body);
    if (!message) return false;
    if (const auto* learn = std::get_if<core::Learn>(&message->body)) {
      return learn->decision->epoch <= to.epoch;
    }
    return message->epoch < to.epoch && (std::holds_alternative<core::Promise>(message->body) ||
                                         std::holds_alternative<core::Accepted>(message->body) ||
                                         std::holds_alternative<core::Refuse>(message->body) ||
                                         std::holds_alternative<core::Acknowledge>(message->body));
  }

  bool may_submit(const State& state, int node) const {
    const NodeModel& model = state.world.node(node);
    return model.alive && model.ready < static_cast<int>(plan_->operations.size());
  }

  static void pop(State& state, const std::tuple<int, int, bool>& wire) {
    state.wires.at(wire).pop_front();
    if (state.wires.at(wire).empty()) state.wires.erase(wire);
  }

  // Kills the node. Messages that it had sent may still arrive.
  static void die(State& state, int node) {
    state.dead = node;
    state.world.crash(node);
    std::erase_if(state.wires, [&](const auto& wire) { return std::get<1>(wire.first) == node; });
  }

  bool all_done(const State& state) const {
    for (int node = 0; node < plan_->node_count(); ++node) {
      if (!state.world.has_finished(node)) return false;
    }
    return true;
  }

  void on_standstill(const State& state) {
    bool finished = true;
    std::optional<TicksMs> next_timer;
    for (int node = 0; node < plan_->node_count(); ++node) {
      const NodeModel& model = state.world.node(node);
      if (!model.alive) continue;
      finished &= state.world.has_finished(node) && !model.ended;
      const auto deadline = model.core->deadline();
      if (deadline && (!next_timer || *deadline < *next_timer)) next_timer = deadline;
    }
    if (finished) {
      ++ends_;
      ends_redone_ += state.world.checks().redone() > 0;
      ends_completed_ += state.world.checks().completed_by_decision() > 0;
    } else if (next_timer && *next_timer < kEndOfTime) {
      try_event(state, [&](State& next) { next.now = *next_timer; });
    } else {
      violation_ = "liveness: survivors wait for ever";
    }
  }

  std::shared_ptr<const Plan> plan_;
  std::vector<State> open_;
  std::unordered_set<uint64_t> seen_;
  std::string violation_;
  bool follow_one_ = false;  // one event of the state being expanded is enough
  const State* tried_ = nullptr;
  uint64_t transitions_ = 0;
  uint64_t ends_ = 0;
  uint64_t ends_redone_ = 0;
  uint64_t ends_completed_ = 0;
};

void explore(int operations) {
  StateSpace space(operations);
  space.explore();
  EXPECT_EQ(space.violation(), "");
  std::cout << "3 nodes, " << operations << " operations, at most one death: " << space.states()
            << " states, " << space.transitions() << " transitions, " << space.ends()
            << " ways to end, " << space.ends_redone() << " of them by repeating, "
            << space.ends_completed() << " by completing\n";
  // A search that is cut short would also find nothing.
  EXPECT_GT(space.states(), operations == 1 ? 5'000u : 100'000u);
  EXPECT_GT(space.ends_redone(), 0u);
  EXPECT_GT(space.ends_completed(), 0u);
}

TEST(RecoveryStates, OneOperation) { explore(1); }
TEST(RecoveryStates, TwoOperations) { explore(2); }

}  // namespace
}  // namespace rueda::sim
