// The way of a batch in host memory: the channels of each process set of a job, and the operations
// that the data loops carry out. Small operations of one node are carried out on the control loop,
// to which everything here belongs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/lifetime.h"
#include "daemon/engine/data/data_parts.h"
#include "daemon/engine/job/job_spec.h"
#include "daemon/engine/job/path_host.h"
#include "daemon/engine/job/submission_ledger.h"
#include "daemon/engine/operation/operation.h"
#include "daemon/engine/trace/job_trace.h"

namespace rueda::engine {

class HostPath {
 public:
  // The part of an operation that one data job carries out.
  struct Part {
    size_t loop = 0;
    uint32_t number = 0;
    std::unique_ptr<Operation> operation;
  };

  // All of them must outlive the object.
  HostPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
           SubmissionLedger& ledger, observe::JobMetrics& metrics);

  // --- Epochs and process sets

  // Opens the channels of all ranks, the job's `layout`. `data_addresses` has the addresses of each
  // node's data loops, by node.
  void begin_epoch(Epoch epoch, std::vector<std::string> data_addresses,
                   const core::Layout& layout);
  bool is_open() const { return is_open_; }
  Epoch epoch() const { return epoch_; }
  // Ends the epoch if it is open, and then calls `done`, if there is one, from a data loop, once
  // no operation touches memory any more. Returns whether it was open.
  bool end_epoch(std::function<void()> done);
  // Calls `then`, from a data loop, once all that is under way has been passed on; or at once.
  void when_quiet(std::function<void()> then);
  void open_set(uint32_t process_set, const core::Layout& layout);
  void close_set(uint32_t process_set);

  // --- Operations

  // Returns the parts into which the process set's operations are divided; the set must be open.
  const DataParts& parts(uint32_t process_set) const { return parts_.at(process_set); }
  // Returns among how many data loops an operation of so many bytes between nodes is shared out, in
  // a ring of so many members.
  size_t shares_of(ReduceOp op, int64_t wire_bytes, int nodes) const;
  // Carries the batch out. `trace` and `check` may be null.
  void launch(const core::Launch& launch, JobTrace* trace,
              const std::shared_ptr<InputCheck>& check);
  // Carries out this node's part of a transfer between ranks.
  void launch(const core::TransferLaunch& launch);
  // Opens the channels for transfers to and from a node.
  void open_transfers(NodeIndex peer);
  // Sends a message about a transfer, and lets go of what has come with an offer that it refuses.
  void send(const core::TransferSend& send);
  // Keeps what has come with an offer until it is launched or refused.
  void keep(const core::TransferKey& key, std::shared_ptr<const std::vector<std::byte>> data);
  // Cancels what has been launched of the set, as DataLoop::cancel() does. `done` may be null.
  void cancel(const core::Cancel& cancelled, std::function<void()> done);

  // --- Operations that are not in host memory yet

  // The data plane takes operations in their order: operations that are launched after this one
  // wait for it.
  void expect(const core::Launch& launch);
  // Runs an operation that was expected and is there, in these parts, once all operations before it
  // are there.
  void run_expected(const core::Launch& launch, std::vector<Part> parts);
  // Forgets the operations from `cancelled.first` on, which were expected or wait here and have
  // been cancelled.
  void forget_expected(const core::Cancel& cancelled);
  void forget_all_expected() { in_order_.clear(); }
  // Tells the data job that more rounds of an operation are in host memory
  // (Operation::rounds_here).
  void rounds_came(size_t loop, const core::Launch& launch);

 private:
  struct InOrder {
    Seq seq;
    bool is_ready = false;
    std::vector<Part> parts;
  };
  struct EndedHere {
    Epoch epoch;
    OperationKey key;
    Status status;
  };
  struct TransferredHere {
    Epoch epoch;
    core::TransferKey key;
    Status status;
  };
  static std::pair<uint32_t, core::Track> order_of(const core::Launch& launch) {
    return {launch.process_set, core::track_of(launch.seq)};
  }
  core::Reducer reducer() const { return spec_.reducer.value_or(context_.options.reducer); }
  // Charges the set's staging memory to the job's user. If the user has no more of it, the job ends
  // soon.
  void charge_staging(uint32_t process_set, const core::Layout& layout);
  // The same for what the channels for transfers to and from a node take, once.
  void charge_transfers(NodeIndex peer);
  // Returns this node's part of a transfer, with the memory of its ranks.
  Transfer part_of(const core::TransferLaunch& launch) const;
  void open_transfers(const core::Layout& layout);
  // Carries out a transfer that needs no loop: it is small, and of one node.
  void run_here(const Transfer& transfer);
  void open_data(uint32_t process_set, const core::Layout& layout);
  size_t common_loops() const;
  void run_part(Part part);
  // Carries out a small operation of one node.
  void run_here(const Operation& operation);
  // Tells the host of the end when the turn is over.
  void end_later(EndedHere ended);
  void tell_ended_here();

  const EngineContext& context_;
  const JobSpec& spec_;
  PathHost& host_;
  SubmissionLedger& ledger_;
  observe::JobMetrics& metrics_;
  bool is_open_ = false;
  Epoch epoch_;
  std::vector<std::string> data_addresses_;      // The epoch's; the index is that of the node.
  size_t loops_ = 1;                             // The epoch's number of data loops on every node.
  std::map<uint32_t, DataParts> parts_;          // The epoch's, by process set.
  std::map<uint32_t, session::Charge> staging_;  // The epoch's, by process set.
  std::map<NodeIndex, session::Charge> transfer_staging_;  // The epoch's.
  // The data that came with offers which are not launched or refused. The data loop bounds it.
  std::map<core::TransferKey, std::shared_ptr<const std::vector<std::byte>>> carried_;
  std::vector<EndedHere> ended_here_;  // Operations that have ended and are not told yet.
  std::vector<TransferredHere> transferred_here_;  // The same of transfers.
  // Operations that were launched behind a batch which is not in host memory yet.
  std::map<std::pair<uint32_t, core::Track>, std::deque<InOrder>> in_order_;
  OperationKernels kernels_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
