#include "daemon/core/plan/plan_follower.h"

#include <algorithm>
#include <utility>

#include "daemon/base/hash.h"
#include "daemon/core/messages/fusion.h"

namespace rueda::core {

PlanFollower::PlanFollower(Plan plan, Seq first, PlanPlace at)
    : plan_(std::move(plan)),
      successors_(plan_.successors()),
      has_alternatives_(plan_.has_alternatives()),
      at_(at),
      next_(first),
      before_walked_(at) {
  for (const PlanBatch& planned : plan_.batches) {
    Batch batch;
    batch.hash = plan_hash(planned.tensors);
    for (const DescriptorPtr& tensor : planned.tensors) {
      batch.names.push_back(tensor->name);
      const auto made = places_.try_emplace(tensor->name);
      made.first->second.descriptor = tensor;
      made.first->second.batches.push_back(static_cast<uint32_t>(batches_.size()));
      batch.places.push_back(&made.first->second);
    }
    batches_.push_back(std::move(batch));
  }
}

std::string PlanFollower::on_ready(const ReadyTensor& tensor) {
  if (!tensor.mismatch.empty()) return tensor.mismatch;
  const bool joins = tensor.descriptor->kind == CollectiveKind::kJoin;
  if (joins || tensor.absent.value >= 0) {  // A join ends the lock (L11).
    return "rank " + std::to_string((joins ? tensor.rank : tensor.absent).value) + " has joined";
  }
  const auto it = places_.find(tensor.descriptor->name);
  if (it == places_.end()) {
    return "tensor \"" + tensor.descriptor->name + "\" is not in the plan";
  }
  Place& place = it->second;
  if (place.descriptor != tensor.descriptor) {
    if (const auto difference = find_difference(*place.descriptor, *tensor.descriptor)) {
      return "tensor \"" + tensor.descriptor->name + "\" has " + difference->field + " " +
             difference->right + ", and " + difference->left + " in the plan";
    }
    // They are equal by value; now the next comparison is cheap.
    place.descriptor = tensor.descriptor;
  }
  place.ready = true;
  ++ready_tensors_;
  ++moment_;
  for (const uint32_t index : place.batches) {
    ++batches_[index].ready;
    batches_[index].ready_since = moment_;
  }
  return {};
}

std::optional<OrderedOperation> PlanFollower::take_next() {
  const std::vector<uint32_t>& next = next_batches();
  const uint32_t* chosen = nullptr;
  for (const uint32_t& index : next) {
    if (!is_ready(index)) continue;
    if (!chosen || batches_[index].ready_since < batches_[*chosen].ready_since) chosen = &index;
  }
  if (!chosen) return std::nullopt;
  Batch& batch = batches_[*chosen];
  OrderedOperation operation = advance(*chosen);
  operation.tensors = batch.names;
  ready_tensors_ -= batch.names.size();
  for (Place* place : batch.places) {
    place->ready = false;
    for (const uint32_t index : place->batches) --batches_[index].ready;
  }
  return operation;
}

OrderedOperation PlanFollower::advance(uint32_t batch) {
  // Nodes may choose different batches. Then no operation from here on is the same to them, and its
  // hash says so (L9).
  Fnv1a walk;
  walk.add(walk_hash_);
  walk.add(batches_[batch].hash);
  walk_hash_ = walk.value();
  OrderedOperation operation;
  operation.seq = next_;
  operation.locked = true;
  operation.plan_hash = walk_hash_;
  operation.tuning = plan_.tuning;
  const bool begins_a_round = plan_.batches[batch].after == kPlanStart;
  if (begins_a_round && at_ != kPlanStart) ++ended_[at_];
  ++next_.value;
  walked_.push_back(batch);
  at_ = static_cast<PlanPlace>(batch);
  return operation;
}

uint64_t PlanFollower::rounds() const {
  uint64_t all = 0;
  for (const auto& [place, times] : ended_) all += times;
  return all;
}

bool PlanFollower::has_led_through_a_round() const {
  return !ended_.empty() || (at_ != kPlanStart && plan_.batches[static_cast<size_t>(at_)].ends);
}

void PlanFollower::forget_before(Seq seq) {
  while (!walked_.empty() && next_.value - walked_.size() < seq.value) {
    before_walked_ = static_cast<PlanPlace>(walked_.front());
    walked_.pop_front();
  }
}

PlanPlace PlanFollower::place_before(Seq seq) const {
  const size_t back = next_.value - std::min(seq, next_).value;
  if (back >= walked_.size()) return before_walked_;
  return static_cast<PlanPlace>(walked_[walked_.size() - back - 1]);
}

BegunGroups PlanFollower::begun_before(Seq seq) const {
  BegunGroups begun;
  for (const uint32_t index : plan_.path_to(place_before(seq))) {
    for (const DescriptorPtr& tensor : plan_.batches[index].tensors) begun.note(*tensor);
  }
  return begun;
}

// Returns a text if a tensor of this round of the plan has come again, and the round is not over.
std::string PlanFollower::find_repeated() const {
  if (at_ == kPlanStart || plan_.batches[static_cast<size_t>(at_)].ends) return {};
  PlanPlace place = at_;
  for (; place != kPlanStart; place = plan_.batches[static_cast<size_t>(place)].after) {
    const Batch& batch = batches_[static_cast<size_t>(place)];
    if (batch.ready == 0) continue;
    const auto again = std::find_if(batch.names.begin(), batch.names.end(),
                                    [&](const auto& name) { return places_.at(name).ready; });
    return "tensor \"" + *again + "\" has come again before " + describe_next();
  }
  return {};
}

const std::string* PlanFollower::find_missing(uint32_t batch, LocalRank rank,
                                              const SubmissionTable& submissions) const {
  const std::vector<std::string>& names = batches_[batch].names;
  const auto missing = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return !submissions.has(rank, name);
  });
  return missing == names.end() ? nullptr : &*missing;
}

bool PlanFollower::has_a_way(PlanPlace from, const std::string& tensor, LocalRank rank,
                             const SubmissionTable& submissions, std::set<uint32_t>& seen) const {
  for (const uint32_t index : successors_[static_cast<size_t>(from + 1)]) {
    if (find_missing(index, rank, submissions) || !seen.insert(index).second) continue;
    const std::vector<std::string>& names = batches_[index].names;
    if (std::find(names.begin(), names.end(), tensor) != names.end()) return true;
    if (has_a_way(static_cast<PlanPlace>(index), tensor, rank, submissions, seen)) return true;
  }
  return false;
}

std::string PlanFollower::find_deviation(const SubmissionTable& submissions) const {
  if (std::string repeated = find_repeated(); !repeated.empty()) return repeated;
  // The rest looks for ranks that sleep until a tensor is done, which must not be launched before a
  // tensor that the rank has not submitted.
  const std::vector<uint32_t>& next = next_batches();
  for (size_t rank = 0; rank < submissions.ranks().size(); ++rank) {
    const LocalRank local{static_cast<int32_t>(rank)};
    const std::string* waited = submissions.waited_by(local);
    if (!waited) continue;
    const auto it = places_.find(*waited);
    if (it == places_.end() || !submissions.has(local, *waited)) continue;
    // The tensor is launched already, so it will end. (Its name cannot be ready again while it is
    // in flight.)
    if (submissions.find(*waited)->ordered) continue;
    const std::string* missing = find_missing(next.front(), local, submissions);
    // Batches behind the next one are looked at when they are next.
    if (next.size() == 1 && !missing) continue;
    std::set<uint32_t> seen;
    if (next.size() > 1 && has_a_way(at_, *waited, local, submissions, seen)) continue;
    std::string text = "rank " + std::to_string(submissions.ranks()[rank].value) +
                       " waits for tensor \"" + *waited + "\" and has ";
    if (!missing) return text + "not submitted all that comes before it or with it";
    return text + "not submitted \"" + *missing + "\", which comes before it or with it";
  }
  return {};
}

std::string PlanFollower::describe_next() const {
  std::vector<std::string> missing;
  for (const uint32_t index : next_batches()) {
    const std::vector<std::string>& names = batches_[index].names;
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const auto& name) { return !places_.at(name).ready; });
    if (found != names.end()) missing.push_back("\"" + *found + "\"");
  }
  if (missing.empty()) return "the next batch of the plan";
  if (missing.size() == 1) return "tensor " + missing[0] + ", which is next in the plan";
  std::string text = missing[0];
  for (size_t i = 1; i < missing.size(); ++i) {
    text += (i + 1 == missing.size() ? " or " : ", ") + missing[i];
  }
  return "one of the tensors " + text + ", which may be next in the plan";
}

}  // namespace rueda::core
