#include "daemon/core/generations/generation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/core/model/mutants.h"

namespace rueda::core {

NodeIndex Generation::find(const MemberId& id) const {
  const auto it = std::find_if(nodes.begin(), nodes.end(), [&](const GenerationNode& node) {
    return RUEDA_MUTANT(kStaleIncarnationLetIn) ? node.id.node_id == id.node_id : node.id == id;
  });
  return NodeIndex{it == nodes.end() ? -1 : static_cast<int32_t>(it - nodes.begin())};
}

int Generation::world_size() const {
  size_t size = 0;
  for (const GenerationNode& node : nodes) size += node.slots.size();
  return static_cast<int>(size);
}

Result<Layout> Generation::layout() const {
  std::vector<LayoutNode> out;
  for (const GenerationNode& node : nodes) {
    LayoutNode& entry = out.emplace_back(LayoutNode{node.id.node_id, node.control_address, {}});
    for (const GenerationSlot& slot : node.slots) entry.ranks.push_back(slot.rank);
  }
  return Layout::make(std::move(out));
}

Generation deal_ranks(const Generation* before, const std::vector<NodeOffer>& offers,
                      int max_ranks) {
  // Where a process stands: survivors by the rank that they had, newcomers behind all of them, in
  // the order of their nodes: those of before, then the others by id.
  constexpr int32_t kNewcomer = INT32_MAX;
  struct Place {
    int32_t old_rank;
    int32_t old_node;
    const NodeOffer* offer;
    Slot slot;
  };
  std::vector<Place> places;
  for (const NodeOffer& offer : offers) {
    const NodeIndex index = before ? before->find(offer.id) : NodeIndex{-1};
    const int32_t old_node = index.value < 0 ? kNewcomer : index.value;
    for (const OfferedSlot& offered : offer.slots) {
      int32_t old_rank = kNewcomer;
      if (index.value >= 0 && offered.survives) {
        for (const GenerationSlot& slot : before->node(index).slots) {
          if (slot.slot == offered.slot) old_rank = slot.rank.value;
        }
      }
      if (RUEDA_MUTANT(kNewcomersFirst)) old_rank = kNewcomer - old_rank;
      places.push_back({old_rank, old_node, &offer, offered.slot});
    }
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.old_rank, a.old_node, a.offer->id, a.slot) <
           std::tie(b.old_rank, b.old_node, b.offer->id, b.slot);
  });
  const auto most = static_cast<size_t>(max_ranks);
  if (places.size() > most && !RUEDA_MUTANT(kMaxNpIgnored)) places.resize(most);

  Generation out;
  std::map<MemberId, size_t> index_of;
  for (size_t i = 0; i < places.size(); ++i) {
    const NodeOffer& offer = *places[i].offer;
    const auto [it, is_new] = index_of.emplace(offer.id, out.nodes.size());
    if (is_new) out.nodes.push_back({offer.id, offer.control_address, {}});
    out.nodes[it->second].slots.push_back({places[i].slot, Rank{static_cast<int32_t>(i)}});
  }
  return out;
}

}  // namespace rueda::core
