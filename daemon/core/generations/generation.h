// A generation of an elastic job: an epoch with its members and their ranks. When a rank or a node
// dies, or others want to take part, the job goes on as the next generation, in which ranks are
// dealt anew. generations.h agrees on it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

// The place of a training process on its node, 0 to the number of processes that the node may have
// less one. A process keeps its slot, and gets a rank in each generation.
using Slot = StrongId<struct SlotTag, int32_t>;

// One life of a job on a node. A daemon that starts again, or a job that a new launcher registers,
// is another member, which knows nothing of what the one before has promised, unless its launcher
// has kept that (GenerationVotes).
struct MemberId {
  std::string node_id;
  uint64_t incarnation = 0;

  auto operator<=>(const MemberId&) const = default;
};

struct GenerationSlot {
  Slot slot;
  Rank rank;

  bool operator==(const GenerationSlot&) const = default;
};

struct GenerationNode {
  MemberId id;
  std::string control_address;  // It has the form "host:port".
  std::vector<GenerationSlot>
      slots;  // By rank, ascending; the position of a slot is its local rank.

  bool operator==(const GenerationNode&) const = default;
};

// The index of a node is its NodeIndex in the generation; the lowest coordinates it.
struct Generation {
  Epoch epoch;
  std::vector<GenerationNode> nodes;
  std::string reason;  // Why the generation before had to end, for people.

  bool operator==(const Generation&) const = default;

  // Returns the node's index, or -1 if it is no member.
  NodeIndex find(const MemberId& id) const;
  const GenerationNode& node(NodeIndex index) const {
    return nodes[static_cast<size_t>(index.value)];
  }
  int world_size() const;
  // Returns an error if this is no layout of a job: it came from elsewhere.
  Result<Layout> layout() const;
};
using GenerationPtr = std::shared_ptr<const Generation>;

// A process that wants to take part.
struct OfferedSlot {
  Slot slot;
  bool survives = false;  // It has been in the generation before, and so has its state.

  bool operator==(const OfferedSlot&) const = default;
};

// What a node has for the next generation.
struct NodeOffer {
  MemberId id;
  std::string control_address;
  std::vector<OfferedSlot> slots;  // Ascending; those that are attached, and no others.

  bool operator==(const NodeOffer&) const = default;
};

// Returns the next generation: survivors keep their order, so that rank 0 has state, and newcomers
// come after them, node by node. If there are more than `max_ranks`, the last newcomers wait. Nodes
// of which nobody takes part are left out; `before` may be null.
Generation deal_ranks(const Generation* before, const std::vector<NodeOffer>& offers,
                      int max_ranks);

}  // namespace rueda::core
