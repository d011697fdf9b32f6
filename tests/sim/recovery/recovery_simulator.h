// Recovery in a run made of random numbers: one seed gives one job of 1 to 12 nodes, its delays and
// its faults, event by event, for ever. Drawn from the seed: nodes that crash, freeze and thaw,
// links that fail one way and heal, messages lost, repeated and reordered, unfounded suspicions.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/sim/recovery/recovery_world.h"

namespace rueda::sim {

struct RecoveryLimits {
  int max_nodes = 12;
  int max_operations = 8;
  int max_faults = 3;
  bool keep_trace = false;
};

struct RecoveryResult {
  std::string violation;  // empty: all checkers held
  uint64_t trace_hash = 0;
  std::vector<std::string> trace;  // with keep_trace
  uint64_t events = 0;
  uint32_t epochs = 0;
  uint64_t redone = 0;
  uint64_t completed_by_decision = 0;
  uint64_t delivered = 0;  // operations, on each node
  uint64_t failed = 0;
  uint64_t mixed = 0;  // nodes' tensors of two epochs
  uint64_t diverged = 0;
  uint64_t left_out = 0;
  uint64_t quorums_lost = 0;
};

class RecoverySimulator {
 public:
  RecoverySimulator(uint64_t seed, const RecoveryLimits& limits);
  RecoveryResult run();

 private:
  struct Event {
    enum class Kind : uint8_t { kParcel, kTick, kSubmit, kCrash, kFreeze, kSuspect } kind;
    TicksMs at = 0;
    uint64_t order = 0;  // ties are broken by insertion
    int node = 0;
    int other = 0;      // kSuspect: whom
    TicksMs until = 0;  // kFreeze
    size_t parcel = 0;  // kParcel: where in parcels_
    Epoch epoch;        // kSuspect: whose channel broke; 0: whichever it is in
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  // A one-way failure.
  struct LinkFault {
    int from = 0, to = 0;
    TicksMs begin = 0, end = 0;
    bool loses_frames = false;  // or they arrive once it has healed
  };

  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return draw(0, 99) < percent; }

  std::shared_ptr<const Plan> draw_plan(const RecoveryLimits& limits);
  void draw_faults(const RecoveryLimits& limits);
  void draw_fault();
  void push(Event event);
  void push_tick(int node);
  void handle(const Event& event);
  void dispatch_sent();
  void dispatch(Parcel parcel);
  void schedule_parcel(Parcel parcel, TicksMs at);
  const LinkFault* fault_on(int from, int to) const;
  bool all_finished() const;
  void note_quorum();
  void check_end();
  void trace(const Event& event);
  void summarize();

  const uint64_t seed_;
  const RecoveryLimits limits_;
  std::mt19937_64 random_;
  std::shared_ptr<const Plan> plan_;
  RecoveryWorld world_;
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::vector<Parcel> parcels_;
  std::vector<size_t> free_parcels_;
  std::vector<LinkFault> link_faults_;
  std::map<std::pair<int, int>, TicksMs> stream_time_;  // frames between two nodes keep their order
  std::vector<TicksMs> frozen_until_;
  std::vector<TicksMs> tick_at_;
  TicksMs now_ = 0;
  TicksMs calm_at_ = 0;  // the last fault is over
  int slowest_ = 4;      // delay
  bool noted_ = false;
  bool must_go_on_ = false;  // a quorum was there when it became calm
  uint64_t order_ = 0;
  Fnv1a hash_;
  RecoveryResult result_;
};

}  // namespace rueda::sim
