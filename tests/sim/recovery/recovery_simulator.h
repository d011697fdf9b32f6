// Runs recovery in a run made of random numbers: one seed always gives the same job of 1 to 12
// nodes, with the same delays and faults, event by event. Drawn from the seed are nodes that crash,
// freeze and thaw, links that fail one way and heal, messages that are lost, repeated and
// reordered, and unfounded suspicions.
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
  std::string violation;  // empty if all checkers held
  uint64_t trace_hash = 0;
  std::vector<std::string> trace;  // is filled with keep_trace
  uint64_t events = 0;
  uint32_t epochs = 0;
  uint64_t redone = 0;
  uint64_t completed_by_decision = 0;
  uint64_t delivered = 0;  // operations that were delivered, counted on each node
  uint64_t failed = 0;
  uint64_t mixed = 0;  // tensors of two epochs, counted on each node
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
    uint64_t order = 0;  // breaks ties, by insertion
    int node = 0;
    int other = 0;      // kSuspect: the suspected node
    TicksMs until = 0;  // kFreeze: the end
    size_t parcel = 0;  // kParcel: its place in parcels_
    Epoch epoch;        // kSuspect: the epoch of the broken channel; 0: the node's epoch
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  // Describes a failure of one direction of a link.
  struct LinkFault {
    int from = 0, to = 0;
    TicksMs begin = 0, end = 0;
    bool loses_frames = false;  // if false, they arrive once the link has healed
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
  std::map<std::pair<int, int>, TicksMs> stream_time_;  // keeps the order of frames of two nodes
  std::vector<TicksMs> frozen_until_;
  std::vector<TicksMs> tick_at_;
  TicksMs now_ = 0;
  TicksMs calm_at_ = 0;  // the time when the last fault is over
  int slowest_ = 4;      // the longest delay
  bool noted_ = false;
  bool must_go_on_ = false;  // a quorum was connected when the last fault was over
  uint64_t order_ = 0;
  Fnv1a hash_;
  RecoveryResult result_;
};

}  // namespace rueda::sim
