// Collectives while a plan repeats as it was (rehearsal.h): a batch is launched when its rows are
// full, and no table that knows names is touched. Whatever is different settles it: all that is in
// the rehearsal goes where it would be without one.

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/core/job/collectives.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {

// Only with nothing in flight, so that a name is either in the tables or in the rehearsal.
bool Collectives::rehearse(const LocalSubmission& submission) {
  if (!rehearsing_) {
    if (recovery_ || !left_.empty() || submissions_.submissions() > 0) return false;
    const std::optional<NextInPlan> next = agreement_->next_in_plan();
    if (!next) return false;
    if (!rehearsal_ || rehearsed_generation_ != next->generation) {
      rehearsal_.emplace(*next->plan, locals_.size());
      rehearsed_generation_ = next->generation;
    }
    rehearsing_ = true;
  }
  if (submission.objection.empty() &&
      rehearsal_->take(now_, submission.rank, submission.ticket, submission.descriptor)) {
    return true;
  }
  settle();
  return false;
}

// None: the plan that is rehearsed is in force no longer, or something stands against it.
std::optional<NextInPlan> Collectives::next_rehearsed() const {
  const std::optional<NextInPlan> next = agreement_->next_in_plan();
  return next && next->generation == rehearsed_generation_ ? next : std::nullopt;
}

// L6, in short: what may be a deviation is for the agreement to judge.
bool Collectives::may_rehearse() const {
  const std::optional<NextInPlan> next = next_rehearsed();
  if (!next) return false;
  if (rehearsal_->repeats(next->at)) return false;
  for (size_t local = 0; local < locals_.size(); ++local) {
    const LocalRank rank{static_cast<int32_t>(local)};
    const bool has_done_its_part =
        std::any_of(next->batches.begin(), next->batches.end(),
                    [&](uint32_t batch) { return rehearsal_->has_all(rank, batch); });
    const std::optional<Ticket> waited = submissions_.waited(rank);
    if (waited && !has_done_its_part && rehearsal_->gathers(rank, *waited)) return false;
  }
  return true;
}

void Collectives::launch_rehearsed(std::vector<OrderedOperation>& ordered) {
  while (rehearsing_) {
    const std::optional<NextInPlan> next = next_rehearsed();
    if (!next) return;
    const std::optional<uint32_t> batch = rehearsal_->first_ready(next->batches);
    if (!batch) return;
    OrderedOperation operation = agreement_->take_next_in_plan(*batch);
    operation.rehearsed = true;
    operation.batch = batch;
    rehearsal_->begin(*batch);
    ordered.push_back(std::move(operation));
  }
}

void Collectives::settle() {
  if (!std::exchange(rehearsing_, false)) return;
  for (auto& [seq, operation] : launched_) {
    const bool is_rehearsed = operation.batch.has_value();
    tabulate(operation);
    if (!is_rehearsed) continue;
    for (const std::string& name : operation.tensors) submissions_.find(name)->launched = true;
  }
  for (OrderedOperation& operation : ordered_[index_of(Track::kLockable)]) tabulate(operation);
  for (LocalSubmission& submission : rehearsal_->take_gathered()) {
    if (auto ready = enter(std::move(submission))) agreement_->on_local_ready(std::move(*ready));
  }
}

// No name is there yet: the rehearsal began with empty tables.
std::optional<ReadyTensor> Collectives::enter(LocalSubmission submission) {
  const DescriptorPtr descriptor = submission.descriptor;
  stalls_.on_submitted(submission);
  RUEDA_CHECK(submissions_.add(std::move(submission)).is_ok());
  return submissions_.take_ready(descriptor->name);
}

void Collectives::tabulate(OrderedOperation& operation) {
  if (!operation.batch) return;
  const uint32_t batch = *std::exchange(operation.batch, std::nullopt);
  for (size_t tensor = 0; tensor < rehearsal_->tensors(batch); ++tensor) {
    for (size_t local = 0; local < rehearsal_->ranks(); ++local) {
      enter(rehearsal_->submission(batch, tensor, LocalRank{static_cast<int32_t>(local)}));
    }
    const std::string& name = rehearsal_->descriptor(batch, tensor, LocalRank{0})->name;
    submissions_.set_ordered(name, true);
    operation.tensors.push_back(name);
  }
  rehearsal_->end(batch);
}

void Collectives::fill(const OrderedOperation& operation, Launch& launch) const {
  const uint32_t batch = *operation.batch;
  launch.tensors = rehearsal_->to_launch(batch);
  launch.tickets.reserve(launch.tensors->size() * rehearsal_->ranks());
  for (size_t tensor = 0; tensor < launch.tensors->size(); ++tensor) {
    for (size_t local = 0; local < rehearsal_->ranks(); ++local) {
      const LocalRank rank{static_cast<int32_t>(local)};
      launch.tickets.push_back(rehearsal_->ticket(batch, tensor, rank));
    }
  }
}

void Collectives::end_rehearsed(const OrderedOperation& operation, const CompletedOperation& result,
                                Output& output) {
  const uint32_t batch = *operation.batch;
  const size_t tensors = rehearsal_->tensors(batch);
  output.deliveries.reserve(output.deliveries.size() + tensors * locals_.size());
  // Rank by rank: whoever tells them goes through the memory of one after the other.
  for (size_t local = 0; local < locals_.size(); ++local) {
    const LocalRank rank{static_cast<int32_t>(local)};
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      deliver(rank, rehearsal_->ticket(batch, tensor, rank), Status::ok(), result, 0, output);
      output.deliveries.back().is_first = local == 0;
    }
    // The last thing that the rank has done.
    stalls_.on_completed(rehearsal_->submission(batch, tensors - 1, rank), now_);
  }
  rehearsal_->end(batch);
}

std::optional<TicksMs> Collectives::rehearsal_ends_at() const {
  const std::optional<TicksMs> since = rehearsing_ ? rehearsal_->since() : std::nullopt;
  if (!since) return std::nullopt;
  return *since + options_.agreement.patience_ms / kRehearsalsInPatience;
}

size_t Collectives::in_flight() const {
  return submissions_.submissions() + (rehearsing_ ? rehearsal_->submissions() : 0);
}

}  // namespace rueda::core
