#include "daemon/engine/build_operation.h"

#include <algorithm>
#include <cstddef>
#include <vector>

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

// Whether the tensor lies behind the last one in the memory of every rank.
bool follows(const OperationTensor& last, size_t last_bytes,
             const std::vector<RankBuffers>& ranks) {
  if (last_bytes == 0 || last.ranks.size() != ranks.size()) return false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (last.ranks[i].input + last_bytes != ranks[i].input ||
        last.ranks[i].output + last_bytes != ranks[i].output) {
      return false;
    }
  }
  return true;
}

void add_tensors(const core::Launch& launch, const FindSubmission& find, Operation& operation) {
  const size_t element = element_bytes(operation.dtype);
  std::vector<RankBuffers> ranks;
  int64_t end = 0;
  operation.first_element.push_back(0);
  const size_t ranks_of_node = launch.tickets.size() / launch.tensors->size();
  auto ticket = launch.tickets.begin();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    const int64_t elements = tensor.elements;
    ranks.clear();
    for (size_t i = 0; i < ranks_of_node; ++i, ++ticket) {
      if (!*ticket) continue;  // it has joined
      const LocalRank rank{static_cast<int32_t>(i)};
      const SubmittedBuffers& buffers = find(rank, **ticket);
      ranks.push_back({buffers.input, buffers.output});
      operation.urgency = std::max(operation.urgency, buffers.urgency);
      hold(buffers.input_arena, operation);
      hold(buffers.output_arena, operation);
    }
    end += elements;
    if (!operation.tensors.empty() &&
        follows(operation.tensors.back(),
                static_cast<size_t>(operation.tensors.back().elements) * element, ranks)) {
      operation.tensors.back().elements += elements;
      operation.first_element.back() = end;
      continue;
    }
    operation.tensors.push_back({elements, ranks});
    operation.first_element.push_back(end);
  }
}

}  // namespace

std::unique_ptr<Operation> build_operation(const core::Launch& launch, const core::Layout& layout,
                                           const FindSubmission& find) {
  auto operation = std::make_unique<Operation>();
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  operation->epoch = launch.epoch;
  operation->process_set = launch.process_set;
  operation->seq = launch.seq;
  operation->generation = launch.generation;
  operation->locked = launch.locked;
  operation->plan_hash = launch.plan_hash;
  operation->kind = first.kind;
  operation->dtype = first.dtype;
  operation->op = first.op;
  operation->prescale = first.prescale;
  operation->postscale = first.postscale;
  if (first.kind == CollectiveKind::kAllreduce && first.op == ReduceOp::kAverage) {
    operation->divisor = layout.member_ranks();
  }
  if (first.kind == CollectiveKind::kBroadcast) {
    const NodeIndex root_node = layout.node_of(first.root);
    operation->root_node = layout.ring_index(root_node);
    const std::vector<Rank>& ranks = layout.node(root_node).ranks;
    operation->root_local = LocalRank{
        static_cast<int32_t>(std::find(ranks.begin(), ranks.end(), first.root) - ranks.begin())};
  }

  add_tensors(launch, find, *operation);
  return operation;
}

}  // namespace rueda::engine
