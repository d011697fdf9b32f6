#include "daemon/engine/build_operation.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "daemon/engine/add_parts.h"
#include "daemon/session/arena.h"

namespace rueda::engine {
namespace {

// A thousand tensors of one arena need it held once.
void hold(session::Arena* arena, Operation& operation) {
  if (!arena) return;
  for (const auto& held : operation.arenas) {
    if (held.get() == arena) return;
  }
  operation.arenas.push_back(arena->shared_from_this());
}

void add_tensors(const core::Launch& launch, const core::Layout& layout, NodeIndex self,
                 const FindSubmission& find, Operation& operation) {
  std::vector<RankBuffers> ranks;
  operation.first_element.push_back(0);
  const size_t ranks_of_node = launch.tickets.size() / launch.tensors->size();
  auto ticket = launch.tickets.begin();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    ranks.clear();
    for (size_t i = 0; i < ranks_of_node; ++i, ++ticket) {
      if (!*ticket) {                                                 // it has joined
        if (operation.op == ReduceOp::kAdasum) ranks.emplace_back();  // its place in the tree stays
        continue;
      }
      const LocalRank rank{static_cast<int32_t>(i)};
      const SubmittedBuffers& buffers = find(rank, **ticket);
      ranks.push_back({buffers.input, buffers.output});
      operation.urgency = std::max(operation.urgency, buffers.urgency);
      hold(buffers.input_arena, operation);
      hold(buffers.output_arena, operation);
    }
    if (has_parts(operation.kind)) {
      add_parts(*tensor.descriptor, layout, self, ranks, operation);
    } else {
      operation.add(tensor.elements, ranks);
    }
  }
}

// The members of a node stand next to each other in the layout.
std::vector<std::vector<size_t>> tree_of(const core::Layout& layout) {
  std::vector<std::vector<size_t>> tree;
  const std::string* node_id = nullptr;
  for (const NodeIndex member : layout.members()) {
    const std::string& own = layout.node(member).node_id;
    if (!node_id || *node_id != own) tree.emplace_back();
    node_id = &own;
    tree.back().push_back(static_cast<size_t>(layout.ring_index(member).value));
  }
  return tree;
}

}  // namespace

std::unique_ptr<Operation> build_operation(const core::Launch& launch, const core::Layout& layout,
                                           NodeIndex self, const FindSubmission& find) {
  auto operation = std::make_unique<Operation>();
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  operation->epoch = launch.epoch;
  operation->process_set = launch.process_set;
  operation->seq = launch.seq;
  operation->generation = launch.generation;
  operation->locked = launch.locked;
  operation->plan_hash = launch.plan_hash;
  operation->tuning = launch.tuning;
  operation->kind = first.kind;
  operation->dtype = first.dtype;
  operation->op = first.op;
  operation->prescale = first.prescale;
  operation->postscale = first.postscale;
  operation->wire_dtype = first.wire_dtype;
  if (reduces(first.kind) && first.op == ReduceOp::kAverage) {
    operation->divisor = layout.member_ranks();
  }
  if (first.op == ReduceOp::kAdasum) operation->tree = tree_of(layout);
  if (has_root(first.kind)) operation->root_node = layout.ring_index(layout.node_of(first.root));

  add_tensors(launch, layout, self, find, *operation);
  return operation;
}

}  // namespace rueda::engine
