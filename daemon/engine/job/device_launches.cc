#include "daemon/engine/job/device_launches.h"

#include <vector>

#include "daemon/engine/ports/headroom.h"

namespace rueda::engine {

DeviceLaunch DeviceLaunches::how(const core::Launch& launch) const {
  const core::Collectives& set = *host_.find_set(launch.process_set);
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  DeviceLaunch how;
  if (first.op == ReduceOp::kAverage && reduces(first.kind)) {
    how.divisor = set.layout().member_ranks();
  }
  how.headroom = headroom_of(first.kind, first.op, dtype_on_wire(first.dtype, first.wire_dtype),
                             how.divisor, set.layout().members().size() > 1);
  const std::vector<LocalRank>& locals = set.locals();
  for (size_t i = 0; i < locals.size(); ++i) {
    if (host_.global_rank(locals[i]) == first.root) how.root = i;
  }
  return how;
}

FindDevicePlaces DeviceLaunches::places(const core::Launch& launch) {
  return [this, &locals = host_.find_set(launch.process_set)->locals()](
             size_t place, Ticket ticket) -> DevicePlaces {
    const LocalRank rank = locals[place];
    const SubmittedOnDevice& submitted = ledger_.on_device(rank, ticket);
    const auto at = [&](const SubmittedOnDevice::Side& where) {
      return gpu::Place{.memory = worker_->number_of(rank, where.memory), .offset = where.offset};
    };
    const uint64_t capacity = ledger_.capacity(rank);
    const uint64_t word = ticket.value & (capacity - 1);
    const uint32_t counters = worker_->counters_of(rank);
    return {at(submitted.input),
            at(submitted.output),
            {.memory = counters, .offset = word * sizeof(uint64_t)},
            {.memory = counters, .offset = (capacity + word) * sizeof(uint64_t)},
            ticket.value};
  };
}

}  // namespace rueda::engine
