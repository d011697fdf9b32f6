#include "daemon/engine/job/submission_ledger.h"

#include <algorithm>

#include "daemon/base/yielding_wait.h"

namespace rueda::engine {

SubmissionLedger::SubmissionLedger(size_t local_ranks, std::shared_ptr<observe::JobMetrics> metrics)
    : metrics_(std::move(metrics)), rows_(local_ranks) {}

void SubmissionLedger::set_capacity(LocalRank rank, uint32_t capacity) {
  row(rank).capacity = capacity;
}

HeldSubmission& SubmissionLedger::held(LocalRank rank, Ticket ticket) {
  Row& owner = row(rank);
  const size_t place = ticket.value & (owner.capacity - 1);
  if (place >= owner.held.size()) owner.held.resize(place + 1);
  return owner.held[place];
}

SubmittedOnDevice& SubmissionLedger::on_device(LocalRank rank, Ticket ticket) {
  Row& owner = row(rank);
  const size_t place = ticket.value & (owner.capacity - 1);
  if (place >= owner.on_device.size()) owner.on_device.resize(place + 1);
  return owner.on_device[place];
}

SubmissionLedger::HeldNow SubmissionLedger::hold(LocalRank rank,
                                                 const session::Submission& submission,
                                                 double now_s) {
  HeldSubmission& item = held(rank, submission.ticket);
  RUEDA_CHECK(!item.is_in_flight);
  const bool is_new = submission.content == 0 || item.content != submission.content;
  if (is_new) {
    item.content = submission.content;
    item.buffers = {submission.input.data,        submission.output.data,
                    submission.input.arena.get(), submission.output.arena.get(),
                    {submission.priority, 0},     submission.input.bytes,
                    submission.output.bytes};
    item.bytes = std::max(submission.input.bytes, submission.output.bytes);
    item.process_set = submission.descriptor->process_set;
    item.is_transfer = is_transfer(submission.descriptor->kind);
    item.moves_data = moves_data(submission.descriptor->kind) && !item.is_transfer;
    item.copied_in = submission.copied_in;
    item.copied_out = submission.copied_out;
    item.descriptor = submission.descriptor;
    item.steps = nullptr;
    if (submission.descriptor->memory == MemorySpace::kDevice) {
      on_device(rank, submission.ticket) = {
          {submission.input.device_memory, submission.input.device_offset},
          {submission.output.device_memory, submission.output.device_offset}};
    }
  }
  item.ticket = submission.ticket;
  item.buffers.urgency.submitted = ++submitted_;
  item.submitted_s = now_s;
  item.is_in_flight = true;
  has_small_ |= item.bytes <= kSmallBytes;
  if (item.copied_in) {
    metrics_->copied_in_bytes.Increment(static_cast<double>(submission.input.bytes));
  }
  return {item, is_new};
}

const HeldSubmission* SubmissionLedger::left_on_device(LocalRank rank) const {
  for (const HeldSubmission& item : row(rank).held) {
    if (item.is_in_flight && item.descriptor->memory != MemorySpace::kHost) return &item;
  }
  return nullptr;
}

// --- Operations ----------------------------------------------------------------------------------

void SubmissionLedger::begin(OperationKey key, CollectiveKind kind, size_t parts,
                             std::shared_ptr<InputCheck> check) {
  operations_.emplace(key, UnderWay{kind, parts, std::move(check)});
}

bool SubmissionLedger::end_part(OperationKey key) {
  const auto found = operations_.find(key);
  return found == operations_.end() || --found->second.parts == 0;
}

const InputCheck* SubmissionLedger::check_of(OperationKey key) const {
  const auto found = operations_.find(key);
  return found == operations_.end() ? nullptr : found->second.check.get();
}

void SubmissionLedger::cancel(const core::Cancel& cancelled) {
  const uint32_t set = cancelled.process_set;
  const auto end = operations_.lower_bound({set, core::first_of(core::Track::kDecreed)});
  operations_.erase(operations_.lower_bound({set, cancelled.first}), end);
}

// --- Ends ----------------------------------------------------------------------------------------

void SubmissionLedger::end(const core::Delivery& delivery) {
  HeldSubmission& item = held(delivery.rank, delivery.ticket);
  RUEDA_CHECK(item.is_in_flight && item.ticket == delivery.ticket);
  item.is_in_flight = false;
  counted_.has_small |= item.bytes <= kSmallBytes;
  count_end(delivery, item);
}

void SubmissionLedger::count_end(const core::Delivery& delivery, const HeldSubmission& held) {
  if (held.is_transfer) return count_transfer(delivery, held);
  if (!held.moves_data) return;
  if (delivery.status.is_ok()) {
    last_failed_name_.clear();
    if (held.copied_out) counted_.copied_out_bytes += held.bytes;
    const OperationKey key{held.process_set, delivery.seq};
    if (delivery.is_first) {
      ++counted_.tensors;
      counted_.reduced_bytes += held.bytes;
    }
    if (counted_.last == key) return;  // This is a later tensor of the batch.
    counted_.last = key;
    const auto done = operations_.find(key);
    if (done == operations_.end()) return;
    metrics_->of(done->second.kind).ok->Increment();
    operations_.erase(done);
    ++operations_done_;
    return;
  }
  const core::TensorDescriptor& tensor = *held.descriptor;
  if (last_failed_name_ == tensor.name) return;
  last_failed_name_ = tensor.name;
  metrics_->of(tensor.kind).error->Increment();
}

void SubmissionLedger::count_transfer(const core::Delivery& delivery, const HeldSubmission& held) {
  const observe::JobMetrics::Outcomes& outcomes = metrics_->of(held.descriptor->kind);
  if (!delivery.status.is_ok()) return outcomes.error->Increment();
  outcomes.ok->Increment();
  if (held.copied_out) counted_.copied_out_bytes += held.bytes;
  if (held.descriptor->kind == CollectiveKind::kReceive) {
    metrics_->transferred_bytes.Increment(static_cast<double>(held.bytes));
  }
}

bool SubmissionLedger::count() {
  const Counted counted = std::exchange(counted_, {});
  metrics_->tensors.Increment(static_cast<double>(counted.tensors));
  metrics_->reduced_bytes.Increment(static_cast<double>(counted.reduced_bytes));
  metrics_->copied_out_bytes.Increment(static_cast<double>(counted.copied_out_bytes));
  bytes_reduced_ += counted.reduced_bytes;
  return counted.has_small;
}

}  // namespace rueda::engine
