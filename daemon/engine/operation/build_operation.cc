#include "daemon/engine/operation/build_operation.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "daemon/base/parts.h"
#include "daemon/core/messages/fusion.h"
#include "daemon/engine/operation/add_parts.h"
#include "daemon/engine/ports/headroom.h"
#include "daemon/session/memory/arena.h"

namespace rueda::engine {
namespace {

// Makes the operation hold the arena. A thousand tensors of one arena need it held once.
void hold(session::Arena* arena, Operation& operation) {
  if (!arena) return;
  for (const auto& held : operation.arenas) {
    if (held.get() == arena) return;
  }
  operation.arenas.push_back(arena->shared_from_this());
}

// Returns what is wrong with the tensor as it was submitted here, or "" if nothing is. `reaches` is
// how far the buffers of each rank go that has not joined. The function reads no descriptor but the
// first one's, because a step may have thousands.
std::string find_flaw_of(int64_t elements, const core::TensorDescriptor& first, bool is_root_here,
                         const std::vector<Reach>& reaches) {
  const size_t wanted = static_cast<size_t>(elements) * element_bytes(first.dtype);
  if (wanted == 0) return {};
  const bool all_give = reduces(first.kind);
  const bool all_get = first.kind == CollectiveKind::kAllreduce;
  bool has_giver = false;
  bool has_getter = false;
  for (const Reach& reach : reaches) {
    const bool fits = (reach.input == 0 ? !all_give : reach.input >= wanted) &&
                      (reach.output == 0 ? !all_get : reach.output >= wanted);
    if (!fits) {
      return "has " + std::to_string(wanted) + " bytes, and a rank has given an input of " +
             std::to_string(reach.input) + " and an output of " + std::to_string(reach.output);
    }
    has_giver |= reach.input > 0;
    has_getter |= reach.output > 0;
  }
  if (!is_root_here) return {};
  if (first.kind == CollectiveKind::kBroadcast && !has_giver) return "lacks what its root gives";
  if (first.kind == CollectiveKind::kReduce && !has_getter) return "has no place at its root";
  return {};
}

// Returns the same where each rank has a part.
std::string find_flaw_of_parts(const core::TensorDescriptor& tensor, const core::Layout& layout,
                               NodeIndex self, const std::vector<Reach>& reaches) {
  if (reaches.size() != layout.node(self).ranks.size()) return "lacks the part of a rank";
  const Status fits = check_parts(tensor.parted(), layout.member_ranks());
  return fits.is_ok() ? std::string() : "cannot be cut: " + fits.message();
}

Status add_tensors(const core::Launch& launch, const core::Layout& layout, NodeIndex self,
                   const FindSubmission& find, Operation& operation) {
  std::vector<RankBuffers> ranks;
  std::vector<Reach> reaches;
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  const bool is_root_here = has_root(first.kind) && layout.node_of(first.root) == self;
  operation.first_element.push_back(0);
  const size_t ranks_of_node = launch.tickets.size() / launch.tensors->size();
  auto ticket = launch.tickets.begin();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    ranks.clear();
    reaches.clear();
    for (size_t i = 0; i < ranks_of_node; ++i, ++ticket) {
      if (!*ticket) {  // The rank has joined.
        // Its place in the tree stays.
        if (operation.op == ReduceOp::kAdasum) ranks.emplace_back();
        continue;
      }
      const LocalRank rank{static_cast<int32_t>(i)};
      const SubmittedBuffers& buffers = find(rank, **ticket);
      ranks.push_back({buffers.input, buffers.output});
      reaches.push_back(
          {buffers.input ? buffers.input_bytes : 0, buffers.output ? buffers.output_bytes : 0});
      operation.urgency = std::max(operation.urgency, buffers.urgency);
      hold(buffers.input_arena, operation);
      hold(buffers.output_arena, operation);
    }
    std::string flaw;
    if (has_parts(first.kind)) {
      flaw = find_flaw_of_parts(*tensor.descriptor, layout, self, reaches);
      if (flaw.empty()) {
        flaw = add_parts(*tensor.descriptor, layout, self, ranks, reaches, operation);
      }
    } else {
      flaw = find_flaw_of(tensor.elements, first, is_root_here, reaches);
      if (flaw.empty()) operation.add(tensor.elements, ranks);
    }
    if (flaw.empty()) continue;
    return Status(Code::kInternal, "operation " + std::to_string(core::number_of(launch.seq)) +
                                       " cannot be carried out here: tensor \"" +
                                       tensor.descriptor->name + "\" " + flaw);
  }
  return Status::ok();
}

// Returns what keeps the batch from being one operation, or "" if nothing does: the whole batch is
// carried out as its first tensor is. A plan's batches were checked when the plan came.
std::string find_flaw_of_all(const core::Launch& launch, const core::Layout& layout) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    if (launch.locked) break;
    const core::TensorDescriptor& other = *tensor.descriptor;
    if (&other == &first || core::can_fuse(first, other)) continue;
    return "tensors \"" + first.name + "\" and \"" + other.name + "\", which are not alike";
  }
  if (!has_root(first.kind) || layout.has_rank(first.root)) return {};
  return "tensor \"" + first.name + "\" with root rank " + std::to_string(first.root.value) +
         ", which has no place there";
}

// Returns Operation::tree. The members of a node stand next to each other in the layout.
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

Result<std::unique_ptr<Operation>> build_operation(const core::Launch& launch,
                                                   const core::Layout& layout, NodeIndex self,
                                                   const FindSubmission& find) {
  auto operation = std::make_unique<Operation>();
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (const std::string flaw = find_flaw_of_all(launch, layout); !flaw.empty()) {
    return Status(Code::kInternal, "operation " + std::to_string(core::number_of(launch.seq)) +
                                       " cannot be carried out here: it has " + flaw);
  }
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
  const double headroom = headroom_of(first.kind, first.op, operation->dtype_between_nodes(),
                                      operation->divisor, layout.members().size() > 1);
  operation->prescale /= headroom;
  operation->postscale *= headroom;
  if (first.op == ReduceOp::kAdasum) operation->tree = tree_of(layout);
  if (has_root(first.kind)) operation->root_node = layout.ring_index(layout.node_of(first.root));

  if (Status added = add_tensors(launch, layout, self, find, *operation); !added.is_ok()) {
    return added;
  }
  return operation;
}

}  // namespace rueda::engine
