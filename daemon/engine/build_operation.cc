#include "daemon/engine/build_operation.h"

#include <algorithm>

namespace rueda::engine {

std::unique_ptr<Operation> build_operation(const core::Launch& launch, const core::Layout& layout,
                                           const FindSubmission& find) {
  auto operation = std::make_unique<Operation>();
  const core::TensorDescriptor& first = *launch.tensors.front().descriptor;
  operation->epoch = launch.epoch;
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
    operation->divisor = layout.world_size();
  }
  if (first.kind == CollectiveKind::kBroadcast) {
    operation->root_node = layout.node_of(first.root);
    const std::vector<Rank>& ranks = layout.node(operation->root_node).ranks;
    operation->root_local = LocalRank{
        static_cast<int32_t>(std::find(ranks.begin(), ranks.end(), first.root) - ranks.begin())};
  }

  operation->first_element.push_back(0);
  for (const core::LaunchTensor& tensor : launch.tensors) {
    OperationTensor item;
    item.elements = tensor.descriptor->elements();
    for (size_t i = 0; i < tensor.tickets.size(); ++i) {
      const session::Submission& submission =
          find(LocalRank{static_cast<int32_t>(i)}, tensor.tickets[i]);
      item.ranks.push_back({submission.input.data, submission.output.data});
      for (const auto& arena : {submission.input.arena, submission.output.arena}) {
        if (arena) operation->arenas.push_back(arena);
      }
    }
    operation->first_element.push_back(operation->first_element.back() + item.elements);
    operation->tensors.push_back(std::move(item));
  }
  // A thousand tensors of one arena need it held once.
  std::sort(operation->arenas.begin(), operation->arenas.end());
  operation->arenas.erase(std::unique(operation->arenas.begin(), operation->arenas.end()),
                          operation->arenas.end());
  return operation;
}

}  // namespace rueda::engine
