// The submissions of a job's ranks on this node that are in flight, and the operations that carry
// them out. It also counts what has ended. It belongs to the control loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job/job.h"
#include "daemon/engine/operation/build_operation.h"
#include "daemon/engine/operation/input_check.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

using OperationKey = std::pair<uint32_t, Seq>;  // The process set comes first.

// A submission in flight. Its place keeps what an earlier submission has left there: most
// submissions come again, and then nothing but the ticket is new. A step has a thousand of them, so
// all that is needed, but for the launch, is in the first cache line.
struct alignas(64) HeldSubmission {
  uint64_t content = 0;  // It is that of session::Submission.
  Ticket ticket;
  double submitted_s = 0;
  uint64_t bytes = 0;
  uint32_t process_set = 0;  // It is the descriptor's, which is not always in cache.
  bool moves_data = false;   // In an operation of the order, which a transfer is not.
  bool is_transfer = false;
  bool copied_in = false;
  bool copied_out = false;
  bool is_in_flight = false;
  core::DescriptorPtr descriptor;
  SubmittedBuffers buffers;
  // If contributions are checked: how often the rank has given a tensor of this name.
  uint64_t* steps = nullptr;  // The running count; null if the tensor is not counted.
  uint64_t step = 0;          // The count when this was submitted.
};

// The memory of a submission on a GPU. It stands beside its HeldSubmission, so that those of
// submissions in host memory need not be longer.
struct SubmittedOnDevice {
  struct Side {
    uint32_t memory = 0;  // The id that the session gave it.
    uint64_t offset = 0;  // In bytes.
  };
  Side input;
  Side output;
};

class SubmissionLedger {
 public:
  SubmissionLedger(size_t local_ranks, std::shared_ptr<observe::JobMetrics> metrics);

  // --- Submissions

  // The rank has a process whose tickets in flight differ modulo `capacity`, a power of two.
  void set_capacity(LocalRank rank, uint32_t capacity);
  uint32_t capacity(LocalRank rank) const { return row(rank).capacity; }
  // Writes the submission down, at the time `now_s`. `is_new` is false if it is the same as the
  // last one of its place: then all that is derived from it is still there.
  struct HeldNow {
    HeldSubmission& item;
    bool is_new;
  };
  HeldNow hold(LocalRank rank, const session::Submission& submission, double now_s);
  HeldSubmission& held(LocalRank rank, Ticket ticket);
  SubmittedOnDevice& on_device(LocalRank rank, Ticket ticket);
  // Returns a submission of the rank that is in flight in device memory, or null.
  const HeldSubmission* left_on_device(LocalRank rank) const;
  // Returns true if something small was submitted since the last call.
  bool take_small() { return std::exchange(has_small_, false); }

  // --- Operations

  // The operation has begun, in so many parts that end by themselves. `check` may be null.
  void begin(OperationKey key, CollectiveKind kind, size_t parts,
             std::shared_ptr<InputCheck> check);
  // One of its parts has ended. Returns whether none is left.
  bool end_part(OperationKey key);
  // Returns the check of what its ranks gave, or null.
  const InputCheck* check_of(OperationKey key) const;
  void erase(OperationKey key) { operations_.erase(key); }
  // Forgets the lockable operations of the set from `cancelled.first` on.
  void cancel(const core::Cancel& cancelled);
  void forget_operations() { operations_.clear(); }

  // --- Ends

  // The submission has ended. Ends that are told together are counted together: see count().
  void end(const core::Delivery& delivery);
  // Adds what has ended since the last call to the metrics. Returns whether something was small.
  bool count();
  uint64_t operations_done() const { return operations_done_; }
  uint64_t bytes_reduced() const { return bytes_reduced_; }

 private:
  struct Row {
    uint32_t capacity = 1;
    std::vector<HeldSubmission> held;          // By ticket modulo capacity, as far as was in use.
    std::vector<SubmittedOnDevice> on_device;  // By ticket modulo capacity, as far as was in use.
  };
  struct UnderWay {
    CollectiveKind kind;
    size_t parts;                       // The parts that have not ended.
    std::shared_ptr<InputCheck> check;  // May be null.
  };
  // Counts ends that are told together, because metrics cost more than the rest.
  struct Counted {
    uint64_t tensors = 0;
    uint64_t reduced_bytes = 0;
    uint64_t copied_out_bytes = 0;
    OperationKey last;  // The operation that was counted last.
    bool has_small = false;
  };

  Row& row(LocalRank rank) { return rows_[static_cast<size_t>(rank.value)]; }
  const Row& row(LocalRank rank) const { return rows_[static_cast<size_t>(rank.value)]; }
  void count_end(const core::Delivery& delivery, const HeldSubmission& held);
  void count_transfer(const core::Delivery& delivery, const HeldSubmission& held);

  std::shared_ptr<observe::JobMetrics> metrics_;
  std::vector<Row> rows_;  // The index is the local rank.
  std::map<OperationKey, UnderWay> operations_;
  Counted counted_;
  uint64_t operations_done_ = 0;
  uint64_t bytes_reduced_ = 0;
  uint64_t submitted_ = 0;        // The number of submissions so far.
  std::string last_failed_name_;  // Several ranks' submissions of one tensor count as one.
  bool has_small_ = false;
};

}  // namespace rueda::engine
