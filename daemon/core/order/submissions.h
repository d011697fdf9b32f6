// The submissions of one node's ranks that have not been given back to them yet.
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
  TicksMs submitted_ms = 0;  // When the rank submitted it.
  // If not empty, the submission is invalid, and this is the text with which it must fail on every
  // rank.
  std::string objection;
};

// One tensor's submissions on this node.
struct PendingTensor {
  std::vector<std::optional<LocalSubmission>> by_local_rank;
  int submitted = 0;
  bool reported = false;   // The agreement has been told that the tensor is ready.
  bool disagrees = false;  // The tensor was reported with a mismatch, so nobody may carry it out.
  bool ordered = false;    // An operation has the tensor.
  bool launched = false;   // That operation has been launched, and has not ended.

  std::vector<LocalSubmission> present() const;
  // Returns the submission of the lowest local rank that has one. There must be one.
  const LocalSubmission& first() const;
  // Returns what present() returns, and resets the tensor: nothing is pending any more.
  std::vector<LocalSubmission> take();
};

// The pending tensors of one node, by name. A name that comes back, as gradients do, finds its
// place again: nothing is allocated for it.
class SubmissionTable {
 public:
  // `ranks` are the node's global ranks; a local rank is a position in them.
  explicit SubmissionTable(std::vector<Rank> ranks)
      : ranks_(std::move(ranks)), joined_(ranks_.size()), waited_(ranks_.size()) {}

  // Adds the submission. An error, which is the submitting rank's own, says that the name is in
  // flight already.
  Status add(LocalSubmission submission);
  // If every local rank has submitted the tensor, or has joined, and it has not been reported:
  // marks it reported and returns it, with a mismatch text if the ranks disagree.
  std::optional<ReadyTensor> take_ready(const std::string& name);

  // Returns a tensor once more that take_ready() has handed out, as it was.
  ReadyTensor ready(const std::string& name) const;

  // Returns null if no rank has submitted the tensor.
  const PendingTensor* find(const std::string& name) const;
  PendingTensor* find(const std::string& name) {
    return const_cast<PendingTensor*>(std::as_const(*this).find(name));
  }
  // Notes whether an operation has the tensor. Does nothing if no rank has submitted it.
  void set_ordered(const std::string& name, bool ordered);
  // Marks all tensors as neither reported nor ordered, but for those of operations that go on in
  // the next epoch, whose names are in `carried`.
  void reset_but(const std::set<std::string>& carried);
  // Returns whether the rank has submitted the tensor.
  bool has(LocalRank rank, const std::string& name) const;
  // L11: a rank has joined from its join on, until the join has ended.
  bool has_joined(LocalRank rank) const { return joined_[static_cast<size_t>(rank.value)]; }
  size_t joined() const { return joined_count_; }
  bool have_all_joined() const { return joined_count_ == ranks_.size(); }
  // Returns the descriptor of the operation's tensor at this place, as it was submitted and
  // reported on this node, or, if all ranks have joined, as it was decreed. Returns null if it was
  // not.
  DescriptorPtr descriptor_of(const OrderedOperation& operation, size_t place) const;

  // Notes that the rank sleeps until the submission with this ticket is done; none: it does not
  // sleep. This is a hint, which may be late.
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);
  // These return what set_waited() was told, and the name of that tensor. The name is null if the
  // rank does not sleep, or what it slept for is over.
  std::optional<Ticket> waited(LocalRank rank) const {
    return waited_[static_cast<size_t>(rank.value)];
  }
  const std::string* waited_by(LocalRank rank) const;
  const std::vector<Rank>& ranks() const { return ranks_; }
  // Returns all tensors that are pending, in the order of names, so that what is done for all of
  // them repeats exactly.
  std::vector<std::pair<const std::string*, const PendingTensor*>> pending() const;
  // Returns at most `most` pending tensors, the first in the order of names.
  std::vector<std::pair<const std::string*, const PendingTensor*>> pending(size_t most) const;
  // Removes the tensor and returns its submissions.
  std::vector<LocalSubmission> remove(const std::string& name);
  // Removes the tensors that are not reported yet, because the coordinator ends those that are.
  std::vector<LocalSubmission> remove_unreported();
  std::vector<LocalSubmission> remove_all();

  size_t submissions() const { return submissions_; }
  size_t submissions_of(LocalRank rank) const;

 private:
  bool is_complete(const PendingTensor& tensor) const;
  void note_removed(const std::vector<LocalSubmission>& removed);

  std::vector<Rank> ranks_;
  std::unordered_map<std::string, PendingTensor> tensors_;  // Names of the past are in it, too.
  std::vector<bool> joined_;                                // The index is the local rank.
  size_t joined_count_ = 0;
  std::vector<std::optional<Ticket>> waited_;  // The index is the local rank.
  size_t submissions_ = 0;
};

}  // namespace rueda::core
