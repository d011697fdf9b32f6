// What the ranks of one node have submitted and not yet got back.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/messages.h"

namespace rueda::core {

struct LocalSubmission {
  LocalRank rank;
  Ticket ticket;
  DescriptorPtr descriptor;
  TicksMs submitted_ms = 0;  // when
};

// One tensor's submissions on this node.
struct PendingTensor {
  std::vector<std::optional<LocalSubmission>> by_local_rank;
  int submitted = 0;
  bool reported = false;  // handed to the agreement
  bool ordered = false;   // an operation has it

  std::vector<LocalSubmission> present() const;
};

// Keyed by name, in the order of names, so that what is done for all of them repeats exactly.
class SubmissionTable {
 public:
  // `ranks` are the node's global ranks; the local rank is the position.
  explicit SubmissionTable(std::vector<Rank> ranks)
      : ranks_(std::move(ranks)), waited_(ranks_.size()) {}

  // The error is the submitting rank's own: the name is in flight already.
  Status add(LocalSubmission submission);
  // If every local rank has submitted the tensor and it has not been reported: marks it reported
  // and returns it, with a mismatch text if the ranks disagree.
  std::optional<ReadyTensor> take_ready(const std::string& name);

  const PendingTensor* find(const std::string& name) const;
  // The tensor is there.
  void set_ordered(const std::string& name, bool ordered) { tensors_.at(name).ordered = ordered; }
  // Whether the rank has submitted the tensor.
  bool has(LocalRank rank, const std::string& name) const;

  // The rank sleeps until this one is done; none: it does not sleep. A hint: it may be late.
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);
  // Null: the rank does not sleep, or what it slept for is over.
  const std::string* waited_by(LocalRank rank) const;
  const std::vector<Rank>& ranks() const { return ranks_; }
  const std::map<std::string, PendingTensor>& tensors() const { return tensors_; }
  // Removes the tensor and returns its submissions.
  std::vector<LocalSubmission> remove(const std::string& name);
  // Removes those not reported yet; reported ones are the coordinator's to end.
  std::vector<LocalSubmission> remove_unreported();
  std::vector<LocalSubmission> remove_all();

  size_t submissions() const { return submissions_; }
  size_t submissions_of(LocalRank rank) const;

 private:
  std::vector<Rank> ranks_;
  std::map<std::string, PendingTensor> tensors_;
  std::vector<std::optional<Ticket>> waited_;  // by local rank
  size_t submissions_ = 0;
};

}  // namespace rueda::core
