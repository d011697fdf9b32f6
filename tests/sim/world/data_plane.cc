#include "tests/sim/world/data_plane.h"

#include "daemon/base/check.h"

namespace rueda::sim {

const core::Layout& DataPlane::layout_of(int node, uint32_t process_set) const {
  const std::vector<const core::Collectives*> sets = world_.node(node).core->process_sets();
  const auto it = std::find_if(sets.begin(), sets.end(),
                               [&](const auto* set) { return set->id() == process_set; });
  RUEDA_CHECK(it != sets.end());
  return (*it)->layout();
}

uint64_t DataPlane::members_of(int node, uint32_t process_set) const {
  uint64_t members = 0;
  for (const NodeIndex member : layout_of(node, process_set).members()) {
    members |= uint64_t{1} << member.value;
  }
  return members;
}

uint64_t DataPlane::needed_by(const Operation& operation, int node) const {
  if (!has_root(operation.kind) || setup_.shrinks()) return operation.members;
  const core::Layout& layout = world_.node(node).core->layout();
  const auto next = [&](int other) { return layout.next(NodeIndex{other}).value; };
  uint64_t needed = uint64_t{1} << node;
  const bool goes_down = operation.kind == CollectiveKind::kBroadcast;
  for (int on_the_way = goes_down ? operation.root : next(operation.root); on_the_way != node;
       on_the_way = next(on_the_way)) {
    needed |= uint64_t{1} << on_the_way;
  }
  return needed;
}

void DataPlane::on_launch(int node, const core::Launch& launch) {
  const Name name = setup_.takes_stale_frames ? Name{} : Name{launch.generation, launch.plan_hash};
  Operation& operation = operations_[Key{launch.epoch.value, launch.process_set, launch.seq, name}];
  if (operation.members == 0) operation.members = members_of(node, launch.process_set);
  under_way_[static_cast<size_t>(node)][Place{launch.process_set, launch.seq}] = name;
  if (setup_.shrinks()) remember_launch(node, launch, name);
  compare_neighbours(node, launch);
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  operation.kind = first.kind;
  if (has_root(first.kind)) {
    operation.root = world_.layout().node_of(first.root).value;
  }
  operation.launched_on |= uint64_t{1} << node;
  if (operation.launched_on == operation.members) ++operations_completed_;
  for (int other = 0; other < world_.node_count(); ++other) {
    const uint64_t bit = uint64_t{1} << other;
    if ((operation.members & bit) == 0) continue;
    const uint64_t needed = needed_by(operation, other);
    if ((operation.scheduled_on & bit) != 0 || (operation.launched_on & needed) != needed) continue;
    operation.scheduled_on |= bit;
    SimEvent done{SimEvent::Kind::kEvent, other, launch.epoch.value,
                  core::OperationDone{launch.seq, launch.process_set}};
    done.generation = name.generation;
    done.plan_hash = name.plan_hash;
    queue_.at(queue_.now() + choices_.draw(Decision::kComplete, other, 0, 0, 60), std::move(done));
  }
}

// Compares the node's batch with its neighbours', because a node sends its first frames when it
// launches.
void DataPlane::compare_neighbours(int node, const core::Launch& launch) {
  if (!launch.locked || setup_.takes_stale_frames) return;
  const core::Layout& layout = layout_of(node, launch.process_set);
  const Place place{launch.process_set, launch.seq};
  const auto compare = [&](NodeIndex sender, NodeIndex receiver) {
    if (world_.node(sender.value).epoch != world_.node(receiver.value).epoch) return;
    const auto& sent = under_way_[static_cast<size_t>(sender.value)];
    const auto& meant = under_way_[static_cast<size_t>(receiver.value)];
    const auto one = sent.find(place);
    const auto other = meant.find(place);
    if (one == sent.end() || other == meant.end()) return;
    if (one->second.generation != launch.generation ||
        other->second.generation != launch.generation || one->second == other->second) {
      return;
    }
    const int delay = choices_.draw(Decision::kNotice, receiver.value, sender.value, 2, 40);
    queue_.at(queue_.now() + delay, receiver.value, launch.epoch.value,
              core::OperationDiverged{launch.seq, launch.generation, sender, launch.process_set});
  };
  compare(NodeIndex{node}, layout.next(NodeIndex{node}));
  compare(layout.previous(NodeIndex{node}), NodeIndex{node});
}

bool DataPlane::completes(int node, const SimEvent& event) {
  const auto* done = std::get_if<core::OperationDone>(&event.event);
  if (!done) return true;
  std::map<Place, Name>& under_way = under_way_[static_cast<size_t>(node)];
  const auto it = under_way.find(Place{done->process_set, done->seq});
  const Name name{event.generation, event.plan_hash};
  if (it == under_way.end() || it->second != name) return false;
  Memory* held = memory(node, done->seq);
  if (held && !held->fetches.empty()) {
    if (!fetched(node, event, *held)) return false;
    held->chunks.assign(held->chunks.size(), true);
    held->fetches.clear();
    under_way.erase(it);
    return true;
  }
  const Key key{event.epoch, done->process_set, done->seq, name};
  const uint64_t needed = needed_by(operations_[key], node);
  for (int other = 0; other < world_.node_count(); ++other) {
    // A node that has said goodbye had passed on all that it had (docs/decisions/0005).
    const WorldNode& member = world_.node(other);
    const bool is_missing =
        (needed & (uint64_t{1} << other)) != 0 && !member.alive && member.core->attached() > 0;
    if (is_missing && !choices_.chance(Decision::kChannel, node, other, 50)) return false;
  }
  under_way.erase(it);
  if (held) held->chunks.assign(held->chunks.size(), true);
  return true;
}

void DataPlane::on_cancel(int node, const core::Cancel& cancel) {
  std::map<Place, Name>& under_way = under_way_[static_cast<size_t>(node)];
  std::erase_if(under_way, [&](const auto& entry) {
    const auto& [process_set, seq] = entry.first;
    return process_set == cancel.process_set && core::track_of(seq) == core::Track::kLockable &&
           seq >= cancel.first && entry.second.generation < cancel.generation;
  });
  std::map<Seq, Memory>& held = memories_[static_cast<size_t>(node)];
  held.erase(held.lower_bound(cancel.first),
             held.lower_bound(core::first_of(core::Track::kDecreed)));
}

void DataPlane::on_epoch_over(int node, uint32_t epoch) {
  under_way_[static_cast<size_t>(node)].clear();
  memories_[static_cast<size_t>(node)].clear();
  const core::Layout& layout = world_.node(node).core->layout();
  if (!layout.is_member(NodeIndex{node})) return;
  for (const NodeIndex peer : {layout.next(NodeIndex{node}), layout.previous(NodeIndex{node})}) {
    if (peer.value == node) continue;
    const int delay = choices_.draw(Decision::kNotice, peer.value, node, 0, 40);
    queue_.at(
        queue_.now() + delay, peer.value, epoch,
        core::DataChannelLost{NodeIndex{node}, Status(Code::kNodeLost, "the channel closed")});
  }
}

void DataPlane::on_silence(int node, const Status& status) {
  for (int other = 0; other < world_.node_count(); ++other) {
    if (other == node || !choices_.chance(Decision::kChannel, other, node, 50)) continue;
    const int delay = choices_.draw(Decision::kNotice, other, node, 1, 50);
    queue_.at(queue_.now() + delay, other, world_.node(other).epoch,
              core::DataChannelLost{NodeIndex{node}, status});
  }
}

}  // namespace rueda::sim
