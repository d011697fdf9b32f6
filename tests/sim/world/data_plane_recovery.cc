// Implements the data plane's part in recovery: what nodes hold of P and F, and what becomes of it.

#include "tests/sim/setup/names.h"
#include "tests/sim/world/data_plane.h"

namespace rueda::sim {
namespace {}  // namespace

DataPlane::Memory* DataPlane::memory(int node, Seq seq) {
  std::map<Seq, Memory>& held = memories_[static_cast<size_t>(node)];
  const auto it = held.find(seq);
  return it == held.end() ? nullptr : &it->second;
}

void DataPlane::remember_launch(int node, const core::Launch& launch, const Name& name) {
  const Memory* before = memory(node, launch.seq);
  if (launch.from_partial && (!before || before->launched || !before->partial)) {
    violated("R1: " + name_of(node) + " is to repeat " + name_of(launch.seq) + " and has no P");
    return;
  }
  int64_t bytes = 0;
  for (const core::LaunchTensor& tensor : *launch.tensors) bytes += tensor.descriptor->bytes();
  Memory& held = memories_[static_cast<size_t>(node)][launch.seq];
  held = Memory();
  held.bytes = bytes;
  held.name = name;
  held.launched = true;
  held.partial = core::track_of(launch.seq) == core::Track::kLockable;
  held.chunks.assign(world_.node(node).core->layout().members().size(), false);
}

// Checks the bound; an operation larger than the bound may go alone.
void DataPlane::check_bound(int node, core::Track track) {
  int64_t unstable = 0;
  int operations = 0;
  for (const auto& [seq, held] : memories_[static_cast<size_t>(node)]) {
    if (core::track_of(seq) != track || held.freed || held.bytes == 0) continue;
    unstable += held.bytes;
    ++operations;
  }
  if (operations < 2 || unstable <= setup_.max_unstable_bytes) return;
  violated("R2: " + std::to_string(unstable) + " bytes are unstable on " + name_of(node));
}

core::DataStopped DataPlane::on_stop(int node, Epoch epoch) {
  core::DataStopped stopped{epoch, {}};
  for (auto& [seq, held] : memories_[static_cast<size_t>(node)]) {
    if (!held.launched || held.freed) continue;
    const auto it = operations_.find(Key{epoch.value, 0, seq, held.name});
    // No chunk is final without every member's part; and fetched operations come whole.
    const bool has_some = it != operations_.end() && it->second.launched_on == it->second.members;
    const bool is_root =
        has_some && it->second.kind == CollectiveKind::kBroadcast && it->second.root == node;
    for (size_t chunk = 0; has_some && chunk < held.chunks.size(); ++chunk) {
      if (is_root || choices_.chance(Decision::kHeld, node, 0, 50)) held.chunks[chunk] = true;
    }
    stopped.held.push_back({seq, held.chunks});
  }
  under_way_[static_cast<size_t>(node)].clear();
  return stopped;
}

void DataPlane::on_recovered(int node, const core::NextEpoch& next) {
  std::map<Seq, Memory> before;
  before.swap(memories_[static_cast<size_t>(node)]);
  std::map<Seq, Memory>& after = memories_[static_cast<size_t>(node)];
  std::map<Place, Name>& under_way = under_way_[static_cast<size_t>(node)];
  under_way.clear();
  for (const core::CarriedOperation& operation : next.operations) {
    const auto it = before.find(operation.was);
    if (it == before.end() || operation.verdict == core::Verdict::kVoid) continue;
    Memory& held = after[operation.seq] = std::move(it->second);
    held.name = Name{};
    held.fetches.clear();
    if (operation.verdict == core::Verdict::kRedo) {
      held.launched = false;
      held.chunks.clear();
    }
  }
  for (const core::Fetch& fetch : next.fetches) after[fetch.seq].fetches.push_back(fetch);
  for (const auto& [seq, held] : after) {
    if (held.fetches.empty()) continue;
    under_way[Place{0, seq}] = Name{};
    queue_.at(queue_.now() + choices_.draw(Decision::kComplete, node, 0, 1, 60), node,
              next.epoch.value, core::OperationDone{seq});
  }
}

// Returns whether the nodes that serve the missing chunks have done so; if they may still, it is
// tried again.
bool DataPlane::fetched(int node, const SimEvent& event, const Memory& held) {
  for (const core::Fetch& fetch : held.fetches) {
    const WorldNode& server = world_.node(fetch.from.value);
    if (!server.alive || server.over || server.epoch > event.epoch) return false;
    if (server.epoch < event.epoch || server.frozen) {
      queue_.at(queue_.now() + 20, event);
      return false;
    }
    const Memory* served = memory(fetch.from.value, fetch.seq);
    if (!served || served->freed || !served->chunks[fetch.chunk]) {
      violated("R1: " + name_of(node) + " fetches " + name_of(fetch.seq) + " from " +
               name_of(fetch.from.value) + ", which has no F of it");
      return false;
    }
  }
  return true;
}

void DataPlane::on_freed(int node, const core::Output& output) {
  for (const Seq seq : output.freed_partials) {
    Memory* held = memory(node, seq);
    if (!held) continue;
    if (!held->whole()) {
      violated("R1: " + name_of(node) + " lets go of P of " + name_of(seq) +
               " and does not hold all of F");
    }
    held->partial = false;
  }
  for (const Seq seq : output.freed_finals) {
    if (Memory* held = memory(node, seq)) held->freed = true;
    for (const NodeIndex member : world_.node(node).core->layout().members()) {
      const WorldNode& other = world_.node(member.value);
      // An operation that failed has nothing here, and another epoch has other numbers.
      const Memory* its = memory(member.value, seq);
      if (!other.alive || other.over || other.epoch != world_.node(node).epoch || !its) continue;
      if (its->launched && its->whole()) continue;
      violated("R1: " + name_of(node) + " lets go of F of " + name_of(seq) + ", of which " +
               name_of(member.value) + " does not hold all");
    }
  }
  for (const core::Launch& launch : output.launches) {
    check_bound(node, core::track_of(launch.seq));
  }
}

}  // namespace rueda::sim
