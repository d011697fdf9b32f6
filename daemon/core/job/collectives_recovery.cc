// Collectives under policy `shrink`: what is done waits for the recovery's word, and what an epoch
// leaves over goes on in the next (docs/protocol.md, "Recovery").

#include <memory>
#include <utility>

#include "daemon/core/job/collectives.h"
#include "daemon/core/messages/fusion.h"

namespace rueda::core {

void Collectives::deliver(const CompletedOperation& completed, Output& output) {
  const auto it = done_.find(completed.seq);
  RUEDA_CHECK(it != done_.end());
  const OrderedOperation operation = std::move(it->second);
  done_.erase(it);
  end_operation(operation, completed, output);
}

void Collectives::adopt(const NextEpoch& next, TicksMs now, Output& output) {
  epoch_ = next.epoch;
  const std::set<std::string> carried = carry_over(next);
  submissions_.reset_but(carried);
  fail_refused(next, carried, output);
  stalls_.reset();
  left_.clear();
  AgreementOptions agreement = options_.agreement;
  agreement.replayed = nullptr;  // it begins with a step, and this is the middle of one
  agreement.begun = begun_groups(carried);
  for (size_t track = 0; track < kTracks; ++track) {
    agreement.taken[track] = Seq{next.next_seq[track].value - 1};
  }
  agreement_ = make_agreement(layout_, self_, submissions_, agreement);
  set_now(now);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : submissions_.pending()) names.push_back(*name);
  for (const std::string& name : names) {
    if (auto ready = submissions_.take_ready(name)) agreement_->on_local_ready(std::move(*ready));
  }
  // Also those whose node is lost since: some tensors have failed for it already, where this node's
  // ranks have not submitted them yet.
  for (const Rank rank : next.left) on_rank_left(rank, output);
}

// By what has ended, and by what goes on; the rest of a group may be submitted later.
BegunGroups Collectives::begun_groups(const std::set<std::string>& carried) const {
  BegunGroups begun = ended_groups_;
  for (const std::string& name : carried) begun.note(*submissions_.find(name)->first().descriptor);
  return begun;
}

// The operations that go on, under their new numbers; their tensors.
std::set<std::string> Collectives::carry_over(const NextEpoch& next) {
  std::map<Seq, OrderedOperation> before = std::exchange(launched_, {});
  before.merge(done_);
  done_.clear();
  for (auto& waiting : ordered_) waiting.clear();
  std::set<Seq> incomplete;
  for (const Fetch& fetch : next.fetches) incomplete.insert(fetch.seq);
  std::set<std::string> carried;
  for (const CarriedOperation& operation : next.operations) {
    const auto it = before.find(operation.was);
    // Delivered here already, or an error everywhere.
    if (it == before.end() || operation.verdict == Verdict::kVoid) continue;
    OrderedOperation next_one;  // without a lock, whatever it had
    next_one.seq = operation.seq;
    next_one.tensors = std::move(it->second.tensors);
    carried.insert(next_one.tensors.begin(), next_one.tensors.end());
    if (operation.verdict == Verdict::kRedo) {
      next_one.from_partial = true;
      std::vector<DescriptorPtr> batch;
      for (const std::string& name : next_one.tensors) {
        batch.push_back(submissions_.find(name)->first().descriptor);
      }
      next_one.plan_hash = plan_hash(batch);
      ordered_[index_of(track_of(next_one.seq))].push_back(std::move(next_one));
    } else if (incomplete.contains(operation.seq)) {
      launched_.emplace(next_one.seq, std::move(next_one));
    } else {
      done_.emplace(next_one.seq, std::move(next_one));
    }
  }
  return carried;
}

// Some who go on have told their ranks so.
void Collectives::fail_refused(const NextEpoch& next, const std::set<std::string>& carried,
                               Output& output) {
  for (const RefusedPtr& refused : next.refused) {
    for (const std::string& name : refused->tensors) {
      // What failed is its next turn, which this node has not submitted.
      if (carried.contains(name)) continue;
      if (const PendingTensor* tensor = submissions_.find(name)) {
        ended_groups_.note(*tensor->first().descriptor);
      }
      for (const LocalSubmission& submission : submissions_.remove(name)) {
        refuse(submission, refused->error, output);
      }
    }
  }
}

}  // namespace rueda::core
