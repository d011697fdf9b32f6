#include "daemon/core/plan_follower.h"

#include <algorithm>
#include <utility>

#include "daemon/core/fusion.h"

namespace rueda::core {

PlanFollower::PlanFollower(Plan plan, Seq first) : plan_(std::move(plan)), next_(first) {
  for (const std::vector<DescriptorPtr>& tensors : plan_.batches) {
    Batch batch;
    batch.hash = plan_hash(tensors);
    for (const DescriptorPtr& tensor : tensors) {
      batch.names.push_back(tensor->name);
      const auto made = places_.emplace(tensor->name, Place{batches_.size(), tensor});
      batch.places.push_back(&made.first->second);
    }
    batches_.push_back(std::move(batch));
  }
}

std::string PlanFollower::on_ready(const ReadyTensor& tensor) {
  if (!tensor.mismatch.empty()) return tensor.mismatch;
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
    place.descriptor = tensor.descriptor;  // the same by value: the next look is cheap
  }
  place.ready = true;
  Batch& batch = batches_[place.batch];
  ++batch.ready;
  ++ready_tensors_;
  return {};
}

std::optional<OrderedOperation> PlanFollower::take_head() {
  if (!is_ready(head_)) return std::nullopt;
  Batch& batch = batches_[head_];
  OrderedOperation operation;
  operation.seq = next_;
  operation.locked = true;
  operation.plan_hash = batch.hash;
  operation.tensors = batch.names;
  for (Place* place : batch.places) place->ready = false;
  ready_tensors_ -= batch.ready;
  batch.ready = 0;
  ++next_.value;
  head_ = (head_ + 1) % batches_.size();
  return operation;
}

std::set<std::string> PlanFollower::cut_off_by(Seq seq) const {
  // Counted back from the head, which is operation `next_`.
  const size_t back = (next_.value - seq.value) % batches_.size();
  const size_t cut = (head_ + batches_.size() - back) % batches_.size();
  std::set<std::string> begun;
  std::set<std::string> cut_off;
  for (size_t i = 0; i < plan_.batches.size(); ++i) {
    for (const DescriptorPtr& tensor : plan_.batches[i]) {
      if (tensor->group.empty()) continue;
      if (i < cut) {
        begun.insert(tensor->group);
      } else if (begun.contains(tensor->group)) {
        cut_off.insert(tensor->name);
      }
    }
  }
  return cut_off;
}

std::string PlanFollower::find_deviation(const SubmissionTable& submissions) const {
  // A tensor of this round of the plan has come again, ahead of the head.
  for (size_t i = 0; i < head_; ++i) {
    if (batches_[i].ready == 0) continue;
    const auto again =
        std::find_if(batches_[i].names.begin(), batches_[i].names.end(),
                     [&](const std::string& name) { return places_.at(name).ready; });
    return "tensor \"" + *again + "\" has come again before " + describe_head();
  }
  // A rank sleeps until a tensor is done that must not be launched before one that it has not
  // submitted.
  for (size_t rank = 0; rank < submissions.ranks().size(); ++rank) {
    const LocalRank local{static_cast<int32_t>(rank)};
    const std::string* waited = submissions.waited_by(local);
    if (!waited) continue;
    const auto it = places_.find(*waited);
    if (it == places_.end() || !submissions.has(local, *waited)) continue;
    // Launched already: it will end. (Its name cannot be ready again while it is in flight.)
    if (submissions.find(*waited)->ordered) continue;
    const std::vector<std::string>& head = batches_[head_].names;
    const auto missing = std::find_if(head.begin(), head.end(), [&](const std::string& name) {
      return !submissions.has(local, name);
    });
    if (missing == head.end()) continue;
    return "rank " + std::to_string(submissions.ranks()[rank].value) + " waits for tensor \"" +
           *waited + "\" and has not submitted \"" + *missing +
           "\", which comes before it or with it";
  }
  return {};
}

std::string PlanFollower::describe_head() const {
  for (const std::string& name : batches_[head_].names) {
    if (!places_.at(name).ready) return "tensor \"" + name + "\", which is next in the plan";
  }
  return "the next batch of the plan";
}

}  // namespace rueda::core
