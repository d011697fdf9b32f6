// JobRunner's side of submissions: what it holds of those in flight, and how they end.

#include <algorithm>
#include <utility>

#include "daemon/base/yielding_wait.h"
#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {
JobRunner::Held& JobRunner::held(LocalRank rank, Ticket ticket) {
  Local& owner = local(rank);
  const size_t place = ticket.value & (owner.capacity - 1);
  if (place >= owner.held.size()) owner.held.resize(place + 1);
  return owner.held[place];
}

void JobRunner::on_submit(session::Session& session, const session::Submission& submission) {
  const LocalRank rank = session.attach().local_rank;
  if (local(rank).attach_deferred) {  // the core has not heard of this process
    session.complete(submission.ticket,
                     Status(Code::kUnavailable, "job " + spec_.job +
                                                    " has not started: wait for rueda_init to "
                                                    "return"),
                     core_.epoch(), 0, Seq{0}, 0);
    session.flush();
    return;
  }
  if (Status wrong = check_place(rank, submission); !wrong.is_ok()) {
    session.complete(submission.ticket, wrong, core_.epoch(), 0, Seq{0}, 0);
    session.flush();
    return;
  }
  begin_turn();
  hold(rank, submission);
  const core::DescriptorPtr& descriptor = held(rank, submission.ticket).descriptor;
  if (core_.submit_again(now_ms_, rank, submission.ticket, descriptor)) return;
  core_.step(now_ms_, core::Submitted{{rank, submission.ticket, descriptor, now_ms_, {}}}, output_);
}

// The session has made its buffers as long as the client's place among the ranks asks for.
Status JobRunner::check_place(LocalRank rank, const session::Submission& submission) const {
  if (submission.places == 0) return Status::ok();
  const core::TensorDescriptor& tensor = *submission.descriptor;
  const core::Collectives* set = find_set(tensor.process_set);
  if (!set) return Status::ok();  // the core says so
  const std::vector<Rank> ranks = set->layout().ranks();
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), core_.global_rank(rank));
  if (at != ranks.end() && *at == core_.global_rank(rank) &&
      at - ranks.begin() == submission.place &&
      static_cast<size_t>(submission.places) == ranks.size()) {
    return Status::ok();
  }
  return Status(
      Code::kInvalidArgument,
      "the " + std::string(to_string(tensor.kind)) + " of tensor \"" + tensor.name +
          "\" is for place " + std::to_string(submission.place) + " of " +
          std::to_string(submission.places) + " ranks, and process set " +
          std::to_string(tensor.process_set) + " has " + std::to_string(ranks.size()) +
          " ranks, among them another in that place, or none; ask for the place of rank " +
          std::to_string(core_.global_rank(rank).value));
}

void JobRunner::hold(LocalRank rank, const session::Submission& submission) {
  Held& item = held(rank, submission.ticket);
  RUEDA_CHECK(!item.is_in_flight);
  if (submission.content == 0 || item.content != submission.content) {
    item.content = submission.content;
    item.buffers = {submission.input.data,        submission.output.data,
                    submission.input.arena.get(), submission.output.arena.get(),
                    {submission.priority, 0},     submission.input.bytes,
                    submission.output.bytes};
    item.bytes = std::max(submission.input.bytes, submission.output.bytes);
    item.process_set = submission.descriptor->process_set;
    item.moves_data = moves_data(submission.descriptor->kind);
    item.copied_in = submission.copied_in;
    item.copied_out = submission.copied_out;
    item.descriptor = carried(submission.descriptor);
    item.steps = nullptr;
    if (submission.descriptor->memory == MemorySpace::kDevice) {
      on_device(rank, submission.ticket) = {
          {submission.input.device_memory, submission.input.device_offset},
          {submission.output.device_memory, submission.output.device_offset}};
    }
  }
  item.ticket = submission.ticket;
  item.buffers.urgency.submitted = ++submitted_;
  item.submitted_s = turn_began_s_;
  item.is_in_flight = true;
  if (spec_.checks_finite && submission.descriptor->memory == MemorySpace::kHost) {
    count_step(rank, item);
  }
  has_small_ |= item.bytes <= kSmallBytes;
  if (item.copied_in) {
    metrics_->copied_in_bytes.Increment(static_cast<double>(submission.input.bytes));
  }
}

void JobRunner::deliver_all(const std::vector<core::Delivery>& deliveries) {
  counted_ = {};
  for (const core::Delivery& delivery : deliveries) deliver(delivery);
  metrics_->tensors.Increment(static_cast<double>(counted_.tensors));
  metrics_->reduced_bytes.Increment(static_cast<double>(counted_.reduced_bytes));
  metrics_->copied_out_bytes.Increment(static_cast<double>(counted_.copied_out_bytes));
  bytes_reduced_ += counted_.reduced_bytes;
  if (counted_.has_small) context_.on_small();
  flush_sessions();
}

void JobRunner::deliver(const core::Delivery& delivery) {
  Local& owner = local(delivery.rank);
  Held& item = held(delivery.rank, delivery.ticket);
  RUEDA_CHECK(item.is_in_flight && item.ticket == delivery.ticket);
  item.is_in_flight = false;
  counted_.has_small |= item.bytes <= kSmallBytes;
  count_end(delivery, item);
  // Who said goodbye with it in flight is not the process that is there now.
  if (!owner.session || owner.attach_deferred) return;
  owner.session->complete(delivery.ticket, delivery.status, delivery.epoch, delivery.contributors,
                          delivery.seq, delivery.value);
  owner.dirty = true;
}

void JobRunner::count_end(const core::Delivery& delivery, const Held& held) {
  if (!held.moves_data) return;
  if (delivery.status.is_ok()) {
    last_failed_name_.clear();
    if (held.copied_out) counted_.copied_out_bytes += held.bytes;
    const OperationKey key{held.process_set, delivery.seq};
    if (delivery.is_first) {
      ++counted_.tensors;
      counted_.reduced_bytes += held.bytes;
    }
    if (counted_.last == key) return;  // a later tensor of the batch
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

void JobRunner::flush_sessions() {
  for (Local& item : locals_) {
    if (std::exchange(item.dirty, false) && item.session) item.session->flush();
  }
}

}  // namespace rueda::engine
