// The way of a batch in device memory that goes between nodes through host memory. The GPU worker
// brings what this node's ranks make of the batch to host memory, the data plane takes it from
// there as it does that of one rank, and the worker brings back what has come of it
// (docs/decisions/0052-tensors-in-device-memory.md). By device each rank is a member of the ring,
// and so each has a row of its own there: the ring goes from GPU to GPU
// (docs/decisions/0033-by-node-or-by-device.md). Where the GPU adds what arrives, it is
// asked for each chunk (docs/decisions/0061-additions-on-the-gpu.md). It belongs to the control
// loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/lifetime.h"
#include "daemon/engine/device/staged_rounds.h"
#include "daemon/engine/job/device_launches.h"
#include "daemon/engine/job/host_path.h"

namespace rueda::engine {

class StagedPath {
 public:
  // All of them must outlive the object, and `device` must be open before the first launch.
  StagedPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
             SubmissionLedger& ledger, HostPath& host_path, DeviceLaunches& device);

  void launch(const core::Launch& launch);
  // The data plane has ended all its parts of the operation. Returns whether the operation goes
  // this way: then the host hears of its end once the result is back in device memory.
  bool on_done(OperationKey key);
  // One of the data jobs that carry an operation out: that of a part (data_parts.h), for a share.
  struct Carrier {
    uint32_t part = 0;
    int share = 0;
  };
  // A data job has ended the first `rounds` rounds of what it does of the operation.
  void on_rounds_done(OperationKey key, uint32_t generation, Carrier by, int rounds);
  // Cancels what was launched of the set. Returns a function that lets go of the memory of those
  // batches, to be called when the data plane has; null if there are none.
  std::function<void()> cancel(const core::Cancel& cancelled);
  // The process set is no more: the worker forgets its staging.
  void close_set(uint32_t process_set);
  // The job has failed, so all batches are over.
  void forget() { batches_.clear(); }

 private:
  // What a part of the node gives to a batch, and gets: by node all ranks are one, by device each.
  struct Part {
    core::Launch launch;  // It has the tickets of the part's ranks alone.
    DeviceLaunch how;
    size_t first_rank = 0;  // The place of the part's first rank among those of the node.
    uint64_t offset = 0;    // The part's row begins here in that of the batch.
    // Network cards read what the part begins to send from the GPU's memory, and nothing of it is
    // copied to host memory.
    bool is_read_there = false;
  };
  struct Batch {
    core::Launch launch;
    std::vector<Part> parts;
    std::vector<ElementRange> rounds;
    bool adds_on_gpu = false;
    // It has the parts' rows one behind the other, so that a batch has room for all or for none.
    // None if no rank of this node has anything.
    std::optional<StagedRow> row;
    int users = 1;  // Who uses the row: the batch, and rounds that the worker has.
    std::vector<StagedRound> operations;  // By round, without those that the worker was given.
    // The number of rounds in host memory; a batch of a single round is sent when that is there.
    std::shared_ptr<std::atomic<int>> rounds_here = std::make_shared<std::atomic<int>>(0);
    size_t shares = 1;
    // By part, then share: how many rounds have ended on the network.
    std::vector<size_t> rounds_done;
    size_t rounds_begun_back = 0;
    size_t rounds_back = 0;
    bool is_over = false;
  };
  using BatchPtr = std::shared_ptr<Batch>;
  struct WantedAddition {
    BatchPtr batch;
    size_t part = 0;
    ChunkAddition addition;
    std::function<void(const Status&)> done;
  };
  // A data job's staging, which the worker has mapped.
  struct MappedStaging {
    std::shared_ptr<const StagingFile> file;
    uint32_t number = 0;
  };

  // These two return the same on all nodes.
  bool always_rings(const core::Launch& launch) const;
  std::vector<ElementRange> rounds_of(const core::Launch& launch) const;
  size_t shares_of(const core::Launch& launch) const;
  std::vector<Part> parts_of(const core::Launch& launch) const;
  static StagedRow row_of(const Batch& batch, const Part& part);
  void gather(const BatchPtr& batch, const Result<StagedRow>& row);
  // Gives the operations to the worker. Calls `then` once they have ended well, unless the batch is
  // over by then.
  void run_round(const BatchPtr& batch, std::vector<gpu::WorkerOperation> operations,
                 void (StagedPath::*then)(const BatchPtr&));
  // Releases one reference to the batch's row, and gives the row back after the last.
  void let_go(Batch& batch);
  void on_round_out(const BatchPtr& batch);
  // Builds what a part does of the batch on the network.
  Result<std::unique_ptr<Operation>> build(const BatchPtr& batch, size_t part);
  void send(const BatchPtr& batch);
  void bring_back(const BatchPtr& batch);
  void on_round_back(const BatchPtr& batch);
  void end(Batch& batch, const Status& status);

  bool always_exchanges(const core::Launch& launch) const;
  bool adds_on_gpu(const core::Launch& launch) const;
  std::vector<ElementRange> sent_of(const Batch& batch, size_t part) const;
  // Returns whether a part's row has the values as they are sent, where a network card might read
  // them.
  bool may_be_read(const Batch& batch, const Part& part) const;
  // Whether a data job's channel reads from the memory that is exported now.
  std::shared_ptr<std::atomic<bool>>& readable(const core::Launch& launch, size_t part,
                                               size_t share);
  // Returns whether the channels of all data jobs that will carry the part do so.
  bool is_read(const Batch& batch, size_t part);
  GpuReduce additions_of(const BatchPtr& batch, size_t part);
  void add_on_gpu(WantedAddition wanted);
  void serve_additions();
  void run_addition(const WantedAddition& wanted);
  // Returns the worker's number of the staging, which it maps when it is first asked for.
  uint32_t number_of_staging(uint32_t process_set, const ChunkAddition& addition);

  const EngineContext& context_;
  const JobSpec& spec_;
  PathHost& host_;
  SubmissionLedger& ledger_;
  HostPath& host_path_;
  DeviceLaunches& device_;
  std::map<OperationKey, BatchPtr> batches_;
  std::deque<WantedAddition> wanted_additions_;                    // At most one for each slot.
  size_t adding_ = 0;                                              // Additions that the worker has.
  std::map<uint32_t, std::vector<MappedStaging>> mapped_staging_;  // By process set.
  std::shared_ptr<const gpu::DmaBuf> exported_;                    // Of the last batch.
  struct Reader {
    Epoch epoch;
    uint32_t process_set = 0;
    size_t part = 0;
    size_t share = 0;
    auto operator<=>(const Reader&) const = default;
  };
  std::map<Reader, std::shared_ptr<std::atomic<bool>>> readers_;  // Of what is exported_.
  Lifetime lifetime_;
};

}  // namespace rueda::engine
