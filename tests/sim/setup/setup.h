// Describes a run: nodes, ranks, tensors, steps, options, what goes wrong and how the training
// processes stray from their step. It is plain data, drawn from a seed, so that a run that fails
// can be made smaller piece by piece (shrink.h) and printed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/job/job.h"
#include "daemon/core/model/descriptor.h"

namespace rueda::sim {

// Describes one tensor of the training step.
struct TensorSetup {
  core::TensorDescriptor descriptor;
  uint32_t kinds = ~0u;  // bit k is set if steps of kind k have it (L9's alternatives)
  // The tensors that this one is computed from, which stand before it.
  std::vector<std::string> after;
};

// Says which plan all processes declare before their first step.
enum class Declares : uint8_t {
  kNothing,
  kRight,  // apart from kinds of steps, strays and broadcasts
  kWithoutOrder,
  kTooMuch,    // the plan has a tensor that never comes
  kTooLittle,  // the plan lacks the last tensor
  kNotTheSame,
};
const char* to_string(Declares declares);

// Says how training processes stray from their usual step.
enum class Stray : uint8_t {
  kOtherShape,  // one rank submits another shape than the rest: an error on all
  kOtherGroup,  // one rank puts the tensor's group under another name: an error on all
  kNewShape,    // every rank submits another shape, from this step on
  kSkip,        // every rank leaves the tensor out
  kNew,         // every rank submits a tensor that was never there
  kTwice,       // every rank submits the tensor, waits for it, and submits it again
  kWait,        // one rank waits for the tensor before it submits what comes after
};
const char* to_string(Stray stray);

struct StraySetup {
  Stray what = Stray::kOtherShape;
  int step = 0;  // the first is 0
  size_t tensor = 0;
  int rank = 0;  // for kOtherShape, kOtherGroup, kWait
};

enum class FaultKind : uint8_t {
  kRankDies,
  kNodeDies,
  kChannelBreaks,  // the data channel from `node` to the next one in the ring
  kNodeFreezes,    // stopped and continued: what is sent to it waits
  kPartition,      // messages from `node` to `other` wait, the other way they pass
  kNodeCutOff,     // messages from `node` and to it wait; it runs
};
const char* to_string(FaultKind kind);

struct FaultSetup {
  FaultKind kind = FaultKind::kNodeDies;
  TicksMs at = 0;
  int node = 0;
  int other = 0;
  int rank = 0;
  TicksMs lasts = 0;  // 0 means for good
};

struct RunSetup {
  uint64_t seed = 0;
  core::Coordination mode = core::Coordination::kNegotiate;
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  std::vector<int> ranks;          // the number by node
  std::vector<std::string> racks;  // by node, for the order of the ring; may be empty
  bool has_witness = false;        // the node after the last one: it has no rank, and votes
  std::vector<TensorSetup> tensors;
  // The process sets that the processes add at first, ranks ascending: set i + 1. They overlap.
  std::vector<std::vector<int>> sets;
  int steps = 1;
  std::vector<int> kinds;  // the kinds of steps in turn, again and again; empty: all are of kind 0
  int epochs = 1;          // after the last step all leave, and come again for the next epoch
  bool reordered = true;   // ranks submit a step's tensors in orders of their own
  bool polls = false;      // no process says what it waits for
  bool eager = false;      // ranks begin a step without waiting for the one before
  int leaver = -1;         // this rank leaves half way
  // By rank, the number of steps after which it joins, until all have joined; then all go on with
  // the step that the last would do next. It is empty if no rank joins.
  std::vector<int> joins;
  Declares declares = Declares::kNothing;
  bool autotunes = false;
  bool replays = false;  // a plan of a step of kind 0 is in force from the first step on
  core::TreeOptions tree;
  TicksMs handover_grace_ms = 1'000;
  bool transfers = false;  // in every step, ranks send to each other, and take some of that back
  bool goes = false;       // a node's daemon goes when its ranks have left and the others let it
  int window = 4;          // L5's W
  int open_operations = 4;
  int64_t fusion_threshold_bytes = 0;
  size_t look_ahead_units = 8;
  size_t cache_capacity = 1024;
  int lock_after_steps = 3;
  TicksMs fusion_window_ms = 5;
  TicksMs patience_ms = 200;
  TicksMs cycle_ms = 1;
  int64_t max_unstable_bytes = 1 << 20;  // R2, under policy `shrink`
  int sleep_agreed_every = 1;
  // Plants a mistake of the data plane, to see that the checkers find it: frames of an operation
  // that was cancelled count for the one that comes again under its number (L3).
  bool takes_stale_frames = false;
  std::vector<StraySetup> strays;
  std::vector<FaultSetup> faults;

  int world_size() const;
  int voter_count() const { return static_cast<int>(ranks.size()) + (has_witness ? 1 : 0); }
  int kind_of(int step) const;
  int step_after_joins() const { return *std::max_element(joins.begin(), joins.end()); }
  bool is_grouped(size_t tensor) const { return !tensors[tensor].descriptor.group.empty(); }
  // Returns whether a fault may end the job; shorter freezes and partitions only delay.
  bool is_lethal() const;
  bool delays_add_up() const;
  bool shrinks() const { return policy == core::DeathPolicy::kShrink; }
  // Returns the one node that a fault hits so hard that the others have to go on without it, and
  // can; nullopt if nothing is lost, or it is not that simple.
  std::optional<int> only_loss() const;
  bool has(Stray stray) const;
  // Returns whether some tensors are computed from others.
  bool has_order() const;
  core::Layout layout() const;
  bool has_tree() const;
  // Returns whether the two daemons have a control link: one is the other's parent, or they may
  // have to recover together.
  bool linked(int a, int b) const;
  core::TreeLinks links_of(int node) const;
  // Returns the layout of process set `id`.
  core::Layout layout_of(uint32_t id) const;
  core::JobOptions job_options(int node) const;
  // Returns one line for each item, for a report.
  std::vector<std::string> lines() const;
};

// A link that has been silent for this long is lost.
inline constexpr TicksMs kLinkTimeout = 1'000;
bool is_lethal(const FaultSetup& fault);

// Says what a drawn setup may contain.
struct Limits {
  std::optional<core::Coordination> mode;   // nullopt: any
  std::optional<core::DeathPolicy> policy;  // nullopt: any
  int max_nodes = 12;
  int max_ranks_per_node = 3;
  int max_tensors = 12;
  int max_steps = 12;
  bool faults = true;
  bool strays = true;
  bool mismatches = true;
  bool alternatives = true;
  bool leavers = true;
  bool sets = true;
  bool plans = true;
  bool trees = true;
  bool joins = true;
  bool tuning = true;
  bool nccl = true;
  bool transfers = true;
  bool takes_stale_frames = false;
};

RunSetup draw_setup(uint64_t seed, const Limits& limits);

}  // namespace rueda::sim
