#include "tests/sim/setup/setup.h"

#include <algorithm>
#include <numeric>

#include "tests/sim/setup/declared_plan_faults.h"
#include "tests/sim/setup/random_choices.h"

namespace rueda::sim {
namespace {

// Draws from a stream of its own, apart from the decisions that a run takes.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(mix(seed ^ 0x5e7u)) {}
  int draw(int low, int high) {
    state_ = mix(state_);
    return low + static_cast<int>(state_ % (static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(int percent) { return draw(0, 99) < percent; }

 private:
  uint64_t state_;
};

void draw_tensors(Dice& dice, const Limits& limits, RunSetup& setup) {
  const int count = dice.draw(1, limits.max_tensors);
  const int group_size = dice.draw(0, std::min(count, 4));
  for (int i = 0; i < count; ++i) {
    TensorSetup tensor;
    core::TensorDescriptor& descriptor = tensor.descriptor;
    descriptor.name = "t" + std::to_string(i);
    const int kind = dice.draw(0, 9);
    if (i < group_size) {
      descriptor.group = "g";
      descriptor.group_size = static_cast<uint32_t>(group_size);
    } else if (kind == 7 && !setup.shrinks()) {
      descriptor.kind = CollectiveKind::kAllgather;
    } else if (kind == 8) {
      const bool goes_up = i % 2 == 1 && !setup.shrinks();
      descriptor.kind = goes_up ? CollectiveKind::kReduce : CollectiveKind::kBroadcast;
      descriptor.root = Rank{dice.draw(0, setup.world_size() - 1)};
    } else if (kind == 9) {
      descriptor.kind = CollectiveKind::kBarrier;
    }
    descriptor.dtype = dice.chance(70) ? DType::kFloat32 : DType::kInt64;
    if (descriptor.kind != CollectiveKind::kBarrier) descriptor.shape = {dice.draw(0, 64)};
    setup.tensors.push_back(std::move(tensor));
  }
}

constexpr int kMaxKinds = 4;

// Draws the kinds of steps: every n-th step is another kind, or kinds come at random; their tensors
// are nested, or not.
void draw_kinds(Dice& dice, RunSetup& setup) {
  const int kinds = dice.draw(2, kMaxKinds);
  const int every = dice.draw(2, 4);
  for (int step = 0; step < 12; ++step) {
    setup.kinds.push_back(every == 4                  ? dice.draw(0, kinds - 1)
                          : step % every == every - 1 ? 1 + step / every % (kinds - 1)
                                                      : 0);
  }
  const bool is_nested = dice.chance(30);
  for (TensorSetup& tensor : setup.tensors) {
    const uint32_t some = is_nested ? ~0u << dice.draw(1, kinds - 1)
                                    : static_cast<uint32_t>(dice.draw(1, (1 << kinds) - 1));
    if (tensor.descriptor.group.empty() && dice.chance(50)) tensor.kinds = some;
  }
}

// Puts some tensors, or a whole group, into device memory, and lets NCCL carry them.
void draw_nccl(Dice& dice, RunSetup& setup) {
  const bool has_group = dice.chance(50);
  for (TensorSetup& tensor : setup.tensors) {
    core::TensorDescriptor& descriptor = tensor.descriptor;
    const bool may_be = descriptor.kind == CollectiveKind::kAllreduce ||
                        descriptor.kind == CollectiveKind::kBroadcast;
    if (may_be && (descriptor.group.empty() ? dice.chance(50) : has_group)) {
      descriptor.memory = MemorySpace::kDeviceNccl;
    }
  }
}

void draw_strays(Dice& dice, const Limits& limits, RunSetup& setup) {
  const auto add = [&](Stray what) {
    setup.strays.push_back(
        {what, dice.draw(0, setup.steps - 1),
         static_cast<size_t>(dice.draw(0, static_cast<int>(setup.tensors.size()) - 1)),
         dice.draw(0, setup.world_size() - 1)});
  };
  if (limits.mismatches && setup.world_size() > 1 && dice.chance(20)) {
    add(dice.chance(50) ? Stray::kOtherShape : Stray::kOtherGroup);
  }
  if (!limits.strays || !dice.chance(40)) return;
  for (int left = dice.draw(1, 3); left > 0; --left) {
    add(static_cast<Stray>(
        dice.draw(static_cast<int>(Stray::kNewShape), static_cast<int>(Stray::kWait))));
  }
}

// Draws process sets; no two have the same ranks, and none has all.
void draw_sets(Dice& dice, RunSetup& setup) {
  for (int left = dice.draw(1, 3); left > 0; --left) {
    std::vector<int> ranks;
    for (int rank = 0; rank < setup.world_size(); ++rank) {
      if (dice.chance(50)) ranks.push_back(rank);
    }
    const bool is_all = static_cast<int>(ranks.size()) == setup.world_size();
    const bool is_there =
        std::find(setup.sets.begin(), setup.sets.end(), ranks) != setup.sets.end();
    if (!ranks.empty() && !is_all && !is_there) setup.sets.push_back(std::move(ranks));
  }
}

void draw_plan(Dice& dice, const Limits& limits, RunSetup& setup) {
  setup.declares = static_cast<Declares>(dice.draw(1, 4));
  if (limits.mismatches && setup.world_size() > 1 && dice.chance(10)) {
    setup.declares = Declares::kNotTheSame;
  }
  for (size_t i = 1; i < setup.tensors.size(); ++i) {
    // The tensors of a group are submitted at once.
    if (setup.is_grouped(i) || !dice.chance(40)) continue;
    const int before = dice.draw(0, static_cast<int>(i) - 1);
    setup.tensors[i].after.push_back(setup.tensors[static_cast<size_t>(before)].descriptor.name);
  }
}

void draw_joins(Dice& dice, RunSetup& setup) {
  // All ranks take part in what comes before the first step.
  const bool has_preface = !setup.sets.empty() || setup.declares != Declares::kNothing;
  for (int rank = 0; rank < setup.world_size(); ++rank) {
    setup.joins.push_back(dice.draw(has_preface ? 1 : 0, setup.steps));
  }
  core::TensorDescriptor& last = setup.tensors.back().descriptor;
  const bool is_reduced = last.kind == CollectiveKind::kAllreduce && last.group.empty();
  if (is_reduced && dice.chance(30)) last.op = ReduceOp::kMax;  // zeros would spoil a maximum
}

void draw_faults(Dice& dice, RunSetup& setup) {
  const int nodes = setup.voter_count();
  for (int left = dice.draw(1, 3); left > 0; --left) {
    FaultSetup fault;
    fault.kind = static_cast<FaultKind>(dice.draw(0, 5));
    fault.at = dice.draw(1, 300 + 100 * setup.steps);
    fault.node = dice.draw(0, nodes - 1);
    fault.rank = dice.draw(0, setup.world_size() - 1);
    // The control plane is a star: a link has the coordinator, node 0, at one end. But to recover,
    // all nodes talk to all.
    fault.other = fault.node == 0 || setup.shrinks() ? dice.draw(0, nodes - 1) : 0;
    if (fault.kind >= FaultKind::kNodeFreezes) {
      fault.lasts = dice.chance(70) ? dice.draw(10, 900) : dice.draw(1'100, 3'000);
    }
    if (fault.kind == FaultKind::kPartition && fault.node == fault.other) continue;
    setup.faults.push_back(fault);
  }
}

void draw_tree(Dice& dice, RunSetup& setup) {
  setup.tree = {2, dice.draw(1, 3)};
  setup.handover_grace_ms = dice.chance(70) ? dice.draw(1, 10) : dice.draw(20, 1'000);
  setup.goes = setup.epochs == 1 && dice.chance(70);
  for (FaultSetup& fault : setup.faults) {
    if (fault.kind != FaultKind::kPartition || setup.linked(fault.node, fault.other)) continue;
    fault.other = setup.links_of(fault.node).neighbours().front().value;
  }
}

}  // namespace

const char* to_string(Stray stray) {
  static constexpr const char* kNames[] = {"other-shape", "other-group", "new-shape", "skip",
                                           "new",         "twice",       "wait"};
  return kNames[static_cast<int>(stray)];
}

const char* to_string(Declares declares) {
  static constexpr const char* kNames[] = {"nothing",  "the step",   "the step without its order",
                                           "too much", "too little", "not the same plan"};
  return kNames[static_cast<int>(declares)];
}

const char* to_string(FaultKind kind) {
  static constexpr const char* kNames[] = {"rank-dies",    "node-dies", "channel-breaks",
                                           "node-freezes", "partition", "node-cut-off"};
  return kNames[static_cast<int>(kind)];
}

bool is_lethal(const FaultSetup& fault) {
  switch (fault.kind) {
    case FaultKind::kNodeFreezes:
    case FaultKind::kPartition:
    case FaultKind::kNodeCutOff: return fault.lasts > kLinkTimeout;
    default: return true;
  }
}

int RunSetup::kind_of(int step) const {
  return kinds.empty() ? 0 : kinds[static_cast<size_t>(step) % kinds.size()];
}

int RunSetup::world_size() const { return std::accumulate(ranks.begin(), ranks.end(), 0); }

// Returns whether faults that only delay may come so close upon each other that nothing passes in
// between.
bool RunSetup::delays_add_up() const {
  constexpr TicksMs kTimeToBeHeard = 300;
  std::vector<FaultSetup> delays;
  for (const FaultSetup& fault : faults) {
    if (fault.lasts > 0 && !sim::is_lethal(fault)) delays.push_back(fault);
  }
  std::sort(delays.begin(), delays.end(),
            [](const FaultSetup& a, const FaultSetup& b) { return a.at < b.at; });
  TicksMs begin = 0;
  TicksMs end = 0;
  for (const FaultSetup& fault : delays) {
    if (fault.at > end + kTimeToBeHeard) begin = fault.at;
    end = std::max(end, fault.at + fault.lasts);
    if (end - begin > kLinkTimeout) return true;
  }
  return false;
}

bool RunSetup::is_lethal() const {
  return delays_add_up() || std::any_of(faults.begin(), faults.end(), [](const FaultSetup& fault) {
           return sim::is_lethal(fault);
         });
}

std::optional<int> RunSetup::only_loss() const {
  std::optional<int> node;
  for (const FaultSetup& fault : faults) {
    if (!sim::is_lethal(fault)) continue;
    if (node || fault.kind != FaultKind::kNodeDies) return std::nullopt;
    node = fault.node;
  }
  // Of two nodes, the other half may not go on; and a rank that leaves half way takes all others
  // along.
  return !delays_add_up() && shrinks() && (ranks.size() > 2 || has_witness) && leaver < 0 &&
                 epochs == 1
             ? node
             : std::nullopt;
}

bool RunSetup::has(Stray stray) const {
  return std::any_of(strays.begin(), strays.end(),
                     [&](const StraySetup& item) { return item.what == stray; });
}

bool RunSetup::has_order() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorSetup& tensor) { return !tensor.after.empty(); });
}

core::Layout RunSetup::layout() const {
  std::vector<core::LayoutNode> nodes;
  int32_t next_rank = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    core::LayoutNode node;
    node.node_id = "n" + std::to_string(i);
    for (int j = 0; j < ranks[i]; ++j) node.ranks.push_back(Rank{next_rank++});
    nodes.push_back(std::move(node));
  }
  return core::Layout::make(std::move(nodes)).value();
}

bool RunSetup::has_tree() const {
  return !shrinks() && static_cast<int>(ranks.size()) > tree.threshold;
}

core::TreeLinks RunSetup::links_of(int node) const {
  const int fan_in = has_tree() ? tree.fan_in : static_cast<int>(ranks.size());
  return {core::Tree(layout(), fan_in), NodeIndex{node}};
}

bool RunSetup::linked(int a, int b) const {
  if (a == b || shrinks()) return a != b;
  const std::vector<NodeIndex> neighbours = links_of(a).neighbours();
  return std::find(neighbours.begin(), neighbours.end(), NodeIndex{b}) != neighbours.end();
}

core::Layout RunSetup::layout_of(uint32_t id) const {
  if (id == 0) return layout();
  std::vector<Rank> members;
  for (const int rank : sets.at(id - 1)) members.push_back(Rank{rank});
  return layout().subset(members);
}

// Returns options that make a change every few steps.
core::TuningOptions small_search(int64_t fusion_threshold_bytes) {
  core::TuningOptions tuning;
  tuning.is_enabled = true;
  tuning.space.fusion_bytes = {fusion_threshold_bytes, 64, 0};
  tuning.space.chunk_bytes = {0, 4096, 8192};
  tuning.space.cutovers_log2 = {0, 2};
  tuning.window_rounds = 1;
  tuning.window_ms = 0;
  tuning.rounds_to_skip = 0;
  return tuning;
}

core::JobOptions RunSetup::job_options(int node) const {
  core::JobOptions options;
  options.job = "sim";
  options.data_address = "data" + std::to_string(node);
  if (!racks.empty()) options.rack = racks[static_cast<size_t>(node)];
  options.max_launched_operations = window;
  options.start_timeout_ms = 5'000;
  options.agreement.max_open_operations = open_operations;
  options.agreement.fusion.threshold_bytes = fusion_threshold_bytes;
  options.agreement.fusion.look_ahead_units = look_ahead_units;
  options.agreement.mode = mode;
  options.agreement.cache_capacity = cache_capacity;
  options.agreement.lock_after_steps = lock_after_steps;
  options.agreement.fusion_window_ms = fusion_window_ms;
  options.agreement.patience_ms = patience_ms;
  options.agreement.cycle_time_us = to_us(cycle_ms);
  options.agreement.sleep_agreed_every = sleep_agreed_every;
  if (autotunes) options.agreement.tuning = small_search(fusion_threshold_bytes);
  if (replays) options.agreement.replayed = recorded_by(*this);
  options.is_tuned = autotunes || replays;
  options.tree = tree;
  options.handover_timeout_ms = kLinkTimeout + 200;
  options.handover_grace_ms = handover_grace_ms;
  core::RecoveryOptions& recovery = options.recovery;
  recovery.policy = policy;
  recovery.has_witness = has_witness;
  recovery.max_unstable_bytes = max_unstable_bytes;
  recovery.heartbeat_ms = 150;
  recovery.lease_ms = 1'000;
  recovery.suspicion_ms = kLinkTimeout + 200;
  recovery.eviction_ms = kLinkTimeout + 300;
  recovery.stagger_ms = 50;
  recovery.retry_ms = 400;
  recovery.resend_ms = 150;
  recovery.give_up_ms = 6'000;
  return options;
}

std::vector<std::string> RunSetup::lines() const {
  std::vector<std::string> lines;
  const auto number = [](auto value) { return std::to_string(value); };
  std::string counts;
  for (int count : ranks) counts += " " + number(count);
  lines.push_back(std::string("mode ") + core::to_string(mode) + ", policy " +
                  (shrinks() ? "shrink, unstable bytes " + number(max_unstable_bytes) : "fail"));
  lines.push_back("nodes " + number(ranks.size()) + ", ranks" + counts +
                  (has_witness ? ", and a witness, n" + number(ranks.size()) : "") +
                  (has_tree() ? ", a tree of fan-in " + number(tree.fan_in) : "") +
                  (goes ? ", daemons go" : ""));
  if (!racks.empty()) {
    std::string line = "racks";
    for (const std::string& rack : racks) line += " " + rack;
    lines.push_back(line);
  }
  lines.push_back("steps " + number(steps) + ", epochs " + number(epochs) +
                  (reordered ? ", reordered" : "") + (eager ? ", eager" : "") +
                  (polls ? ", polls" : "") + (transfers ? ", transfers" : "") +
                  (leaver < 0 ? "" : ", rank " + number(leaver) + " leaves half way"));
  lines.push_back("window " + number(window) + ", open operations " + number(open_operations) +
                  ", fusion threshold " + number(fusion_threshold_bytes) + ", look-ahead " +
                  number(look_ahead_units));
  lines.push_back("cache " + number(cache_capacity) + ", lock after " + number(lock_after_steps) +
                  " steps, fusion window " + number(fusion_window_ms) + ", patience " +
                  number(patience_ms) + ", cycle " + number(cycle_ms) + ", agreed on every " +
                  number(sleep_agreed_every));
  if (autotunes) lines.push_back("autotuned");
  if (replays) lines.push_back("a recorded plan is replayed");
  if (declares != Declares::kNothing) {
    lines.push_back(std::string("ranks declare ") + to_string(declares));
  }
  if (!joins.empty()) {
    std::string line = "ranks join after so many steps:";
    for (const int join : joins) line += " " + number(join);
    lines.push_back(line);
  }
  if (!kinds.empty()) {
    std::string line = "kinds of steps";
    for (const int kind : kinds) line += " " + number(kind);
    lines.push_back(line);
  }
  for (const TensorSetup& tensor : tensors) {
    const core::TensorDescriptor& d = tensor.descriptor;
    std::string line = "tensor " + d.name + " " + std::string(rueda::to_string(d.kind)) + " " +
                       rueda::to_string(d.dtype) + " " + core::shape_to_string(d.shape);
    if (d.op != ReduceOp::kAverage) line += std::string(" op ") + rueda::to_string(d.op);
    if (!d.group.empty()) line += " group " + d.group;
    if (d.memory != MemorySpace::kHost) line += std::string(" in ") + rueda::to_string(d.memory);
    for (const std::string& before : tensor.after) line += " after " + before;
    if (tensor.kinds != ~0u) {
      line += " in steps of kinds";
      for (int kind = 0; kind < kMaxKinds; ++kind) {
        if ((tensor.kinds >> kind & 1) != 0) line += " " + number(kind);
      }
    }
    lines.push_back(line);
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    std::string line = "process set " + number(i + 1) + ": ranks";
    for (const int rank : sets[i]) line += " " + number(rank);
    lines.push_back(line);
  }
  for (const StraySetup& stray : strays) {
    lines.push_back("stray " + std::string(to_string(stray.what)) + " in step " +
                    number(stray.step) + ": tensor " + tensors[stray.tensor].descriptor.name +
                    ", rank " + number(stray.rank));
  }
  for (const FaultSetup& fault : faults) {
    std::string line = "fault at " + number(fault.at) + ": " + to_string(fault.kind);
    switch (fault.kind) {
      case FaultKind::kRankDies: line += " " + number(fault.rank); break;
      case FaultKind::kPartition:
        line += " n" + number(fault.node) + " to n" + number(fault.other) + " for " +
                number(fault.lasts);
        break;
      case FaultKind::kNodeFreezes:
      case FaultKind::kNodeCutOff:
        line += " n" + number(fault.node) + " for " + number(fault.lasts);
        break;
      default: line += " n" + number(fault.node); break;
    }
    lines.push_back(line);
  }
  return lines;
}

void draw_tuning(Dice& dice, const Limits& limits, RunSetup& setup) {
  const bool locks = setup.mode == core::Coordination::kLocked;
  if (!limits.tuning || !locks) return;
  setup.autotunes = dice.chance(30);
  // A search needs some steps.
  if (setup.autotunes && setup.joins.empty()) setup.steps += dice.draw(0, 20);
  setup.replays =
      setup.declares == Declares::kNothing && dice.chance(20) && recorded_by(setup) != nullptr;
}

RunSetup draw_setup(uint64_t seed, const Limits& limits) {
  Dice dice(seed);
  RunSetup setup;
  setup.seed = seed;
  setup.takes_stale_frames = limits.takes_stale_frames;
  setup.mode = limits.mode.value_or(static_cast<core::Coordination>(dice.draw(0, 5)));
  const core::DeathPolicy any =
      dice.chance(40) ? core::DeathPolicy::kShrink : core::DeathPolicy::kFail;
  setup.policy = limits.policy.value_or(any);
  // Most clusters are small: most faults of the protocol show with few nodes, and sooner.
  const int most = dice.chance(80) ? std::min(limits.max_nodes, 4) : limits.max_nodes;
  for (int left = dice.draw(1, most); left > 0; --left) {
    setup.ranks.push_back(dice.draw(1, limits.max_ranks_per_node));
  }
  setup.steps = dice.draw(1, limits.max_steps);
  setup.epochs = dice.chance(15) ? 2 : 1;
  setup.reordered = dice.chance(70);
  setup.eager = dice.chance(30);
  draw_tensors(dice, limits, setup);
  if (limits.alternatives && dice.chance(30)) draw_kinds(dice, setup);
  if (limits.leavers && dice.chance(20)) setup.leaver = dice.draw(0, setup.world_size() - 1);
  setup.window = dice.draw(1, 4);
  setup.open_operations = dice.draw(1, 4);
  setup.fusion_threshold_bytes = dice.chance(20) ? 0 : dice.draw(16, 4096);
  setup.look_ahead_units = static_cast<size_t>(dice.draw(0, 8));
  setup.cache_capacity = dice.chance(50) ? 1024 : static_cast<size_t>(dice.draw(1, 8));
  setup.lock_after_steps = dice.draw(1, 3);
  setup.fusion_window_ms = dice.draw(0, 20);
  setup.patience_ms = dice.draw(20, 200);
  setup.cycle_ms = dice.draw(1, 5);
  setup.sleep_agreed_every = dice.draw(1, 4);
  setup.polls = dice.chance(30);
  setup.max_unstable_bytes = dice.chance(70) ? 1 << 20 : dice.draw(1, 400);
  draw_strays(dice, limits, setup);
  setup.has_witness = setup.shrinks() && dice.chance(40);
  if (limits.faults && dice.chance(50)) draw_faults(dice, setup);
  if (limits.sets && !setup.shrinks() && dice.chance(40)) draw_sets(dice, setup);
  if (limits.plans && !setup.shrinks() && dice.chance(25)) draw_plan(dice, limits, setup);
  if (limits.trees && !setup.shrinks() && setup.ranks.size() > 2 && dice.chance(50)) {
    draw_tree(dice, setup);
  }
  // A rank whose join ends because another rank has left cannot leave sets in order.
  const bool may_join = !setup.shrinks() && (setup.leaver < 0 || setup.sets.empty());
  if (limits.joins && may_join && dice.chance(30)) draw_joins(dice, setup);
  if (dice.chance(40)) {
    for (size_t i = 0; i < setup.ranks.size(); ++i) {
      setup.racks.push_back(std::string(1, "abc"[dice.draw(0, 2)]));
    }
  }
  // While a rank has joined such tensors are errors, in some steps and not in others.
  const bool may_be_nccl =
      !setup.shrinks() && setup.joins.empty() && setup.declares == Declares::kNothing;
  if (limits.nccl && may_be_nccl && dice.chance(25)) draw_nccl(dice, setup);
  draw_tuning(dice, limits, setup);
  // A rank that has joined submits nothing. Where one leaves, others give up a step in the middle,
  // and would wait for each other's messages.
  setup.transfers = limits.transfers && !setup.shrinks() && setup.joins.empty() &&
                    setup.leaver < 0 && dice.chance(35);
  return setup;
}

}  // namespace rueda::sim
