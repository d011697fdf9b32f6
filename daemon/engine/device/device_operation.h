// Builds what a GPU worker carries out, from what the core launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/base/parts.h"
#include "daemon/core/job/job_events.h"
#include "daemon/gpu/worker/commands.h"

namespace rueda::engine {

// The places of one rank's submission, in the worker's numbers of memory.
struct DevicePlaces {
  gpu::Place input;
  gpu::Place output;
  gpu::Place ready;    // The counter that says when the input is there.
  gpu::Place done;     // The counter that has to say when the output is there.
  uint64_t value = 0;  // The value of both counters.
};
// Finds the places of a submission. `place` is the rank's among those of the node in the process
// set.
using FindDevicePlaces = std::function<DevicePlaces(size_t place, Ticket)>;

struct DeviceLaunch {
  int64_t divisor = 1;  // The divisor that makes a sum an average.
  double headroom = 1;  // See engine/ports/headroom.h.
  // For a broadcast: the root's place on this node; none if it is on another node.
  std::optional<size_t> root;
};

// Returns operations in the order in which a stream has to carry them out; each but the last has as
// many tensors as a worker takes in one operation. There are none if nobody has anything to give.
// Operations have no numbers yet.
std::vector<gpu::WorkerOperation> build_device_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find);

// A row in which the tensors of a batch lie one behind the other on their way to other nodes. It is
// in memory that the worker has allocated, and in host memory, at one offset in both.
struct StagedRow {
  uint32_t scratch = 0;  // These two are the worker's numbers of the memory.
  uint32_t host = 0;
  uint64_t offset = 0;
  std::byte* memory = nullptr;  // The host memory at the offset.
  // What a network card may read the scratch memory by; null if none can.
  std::shared_ptr<const gpu::DmaBuf> exported;
};
// Returns the bytes that the batch's row takes. Tensors of ranks that have all joined have no place
// in it.
uint64_t staged_bytes(const core::Launch& launch);

// A round of a batch that goes between nodes (engine/device/staged_rounds.h). The values that are
// sent are what this node's ranks make of the batch: their sum for example, with prescale, but
// without postscale and divisor, which the last addition applies; or what the root gives, if it is
// here.
struct StagedRound {
  std::vector<gpu::WorkerOperation> out;  // They copy to host memory.
  std::vector<gpu::WorkerOperation> in;   // They copy from there to all ranks.
};
// Returns the rounds, of which there is at least one. The first waits until all ranks are ready; a
// tensor's end is told with its last element. Either list of a round may be empty. `sent` has, by
// round, what goes to host memory, as the rest is only added to what comes (build_addition()); if
// it is empty, all of it goes.
std::vector<StagedRound> build_staged_rounds(const core::Launch& launch, const DeviceLaunch& how,
                                             const FindDevicePlaces& find, const StagedRow& row,
                                             std::span<const ElementRange> rounds,
                                             std::span<const ElementRange> sent = {});

// Returns an operation that adds what this node's ranks make of a part of a batch, which is in
// scratch memory, to what has come of it from other nodes, at a place that the GPU reaches. It is
// for batches to which all ranks give.
gpu::WorkerOperation build_addition(const core::Launch& launch, const DeviceLaunch& how,
                                    const StagedRow& row, ElementRange part,
                                    const gpu::Place& chunk, bool is_final);
// Returns an operation that adds up values of nodes, of the batch's type between nodes, in this
// order; there are at least two, all at places that the GPU reaches. The sum may take the place of
// one of them.
gpu::WorkerOperation build_addition_of(const core::Launch& launch, const DeviceLaunch& how,
                                       std::span<const gpu::Place> addends, int64_t elements,
                                       const gpu::Place& sum, bool is_final);

// The communicator that carries a batch between nodes, and the worker's stream for it.
struct NcclPlace {
  uint32_t communicator = 0;
  uint32_t stream = 0;
  int root = -1;  // For a broadcast: the member whose node has the root.
};
// Returns operations in the order in which the stream has to carry them out. The values that this
// node's ranks make of a batch come to the row's scratch memory, go across from there, in one
// piece, and the result comes back to all ranks.
std::vector<gpu::WorkerOperation> build_across_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find,
                                                          const StagedRow& row,
                                                          const NcclPlace& across);

}  // namespace rueda::engine
