// What the ranks of one node have submitted and not yet got back.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/messages/messages.h"

namespace rueda::core {

struct LocalSubmission {
  LocalRank rank;
  Ticket ticket;
  DescriptorPtr descriptor;
  TicksMs submitted_ms = 0;  // when
  // Not empty: it cannot be, in these words, and is to fail on every rank.
  std::string objection;
};

// One tensor's submissions on this node.
struct PendingTensor {
  std::vector<std::optional<LocalSubmission>> by_local_rank;
  int submitted = 0;
  bool reported = false;   // handed to the agreement
  bool disagrees = false;  // with words of why it must fail: nobody may carry it out
  bool ordered = false;    // an operation has it
  bool launched = false;   // which is under way

  std::vector<LocalSubmission> present() const;
  // The lowest rank's; there is one.
  const LocalSubmission& first() const;
  // The same, and nothing is pending any more.
  std::vector<LocalSubmission> take();
};

// A name that comes back, as gradients do, finds its place again: nothing is allocated for it.
class SubmissionTable {
 public:
  // `ranks` are the node's global ranks; the local rank is the position.
  explicit SubmissionTable(std::vector<Rank> ranks)
      : ranks_(std::move(ranks)), joined_(ranks_.size()), waited_(ranks_.size()) {}

  // The error is the submitting rank's own: the name is in flight already.
  Status add(LocalSubmission submission);
  // If every local rank has submitted the tensor, or has joined, and it has not been reported:
  // marks it reported and returns it, with a mismatch text if the ranks disagree.
  std::optional<ReadyTensor> take_ready(const std::string& name);

  // A tensor that was handed out by take_ready(): once more, as it was.
  ReadyTensor ready(const std::string& name) const;

  // Null: no rank has submitted it.
  const PendingTensor* find(const std::string& name) const;
  PendingTensor* find(const std::string& name) {
    return const_cast<PendingTensor*>(std::as_const(*this).find(name));
  }
  // Whether an operation has the tensor; nothing if no rank has submitted it.
  void set_ordered(const std::string& name, bool ordered);
  // Nothing is reported or ordered any more, but what an operation has that goes on: these tensors.
  void reset_but(const std::set<std::string>& carried);
  // Whether the rank has submitted the tensor.
  bool has(LocalRank rank, const std::string& name) const;
  // L11: from its join on, until that has ended.
  bool has_joined(LocalRank rank) const { return joined_[static_cast<size_t>(rank.value)]; }
  size_t joined() const { return joined_count_; }
  bool have_all_joined() const { return joined_count_ == ranks_.size(); }
  // Of the operation's tensors, the one at this place: as it was submitted and reported here, or,
  // when all ranks have joined, as it was decreed. Null: it was not.
  DescriptorPtr descriptor_of(const OrderedOperation& operation, size_t place) const;

  // The rank sleeps until this one is done; none: it does not sleep. A hint: it may be late.
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);
  // As it was told; and the tensor. Null: the rank does not sleep, or what it slept for is over.
  std::optional<Ticket> waited(LocalRank rank) const {
    return waited_[static_cast<size_t>(rank.value)];
  }
  const std::string* waited_by(LocalRank rank) const;
  const std::vector<Rank>& ranks() const { return ranks_; }
  // All that are pending, in the order of names, so that what is done for all of them repeats
  // exactly.
  std::vector<std::pair<const std::string*, const PendingTensor*>> pending() const;
  // The first so many of them.
  std::vector<std::pair<const std::string*, const PendingTensor*>> pending(size_t most) const;
  // Removes the tensor and returns its submissions.
  std::vector<LocalSubmission> remove(const std::string& name);
  // Removes those not reported yet; reported ones are the coordinator's to end.
  std::vector<LocalSubmission> remove_unreported();
  std::vector<LocalSubmission> remove_all();

  size_t submissions() const { return submissions_; }
  size_t submissions_of(LocalRank rank) const;

 private:
  bool is_complete(const PendingTensor& tensor) const;
  void note_removed(const std::vector<LocalSubmission>& removed);

  std::vector<Rank> ranks_;
  std::unordered_map<std::string, PendingTensor> tensors_;  // of the past, too: with none submitted
  std::vector<bool> joined_;                                // by local rank
  size_t joined_count_ = 0;
  std::vector<std::optional<Ticket>> waited_;  // by local rank
  size_t submissions_ = 0;
};

}  // namespace rueda::core
