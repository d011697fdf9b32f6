// The submissions of one node's ranks to a plan that comes again as it came before. They are rows
// by place in the plan, found by the pointer to the descriptor, past the tables that know names: a
// step of a thousand tensors costs a thousand comparisons of pointers here.
//
// The fast path knows what repeats, and nothing else: for whatever is different it is emptied into
// the tables, where everything has its rule (Collectives::leave_fast_path()).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/core/messages/plan.h"
#include "daemon/core/order/submissions.h"

namespace rueda::core {

class PlanFastPath {
 public:
  // `ranks` is the number of this node's ranks that submit.
  PlanFastPath(const Plan& plan, size_t ranks);
  PlanFastPath(const PlanFastPath&) = delete;
  PlanFastPath& operator=(const PlanFastPath&) = delete;

  // Takes the submission if it has a place here, and returns whether it did. It has a place if its
  // tensor is one of the plan, as the plan has it, in one batch alone, and the rank has not
  // submitted it already.
  bool take(TicksMs now, LocalRank rank, Ticket ticket, const DescriptorPtr& descriptor);
  // Returns, of these batches, the one that was first submitted by every rank in full and is not
  // under way; none if there is no such batch.
  std::optional<uint32_t> first_ready(std::span<const uint32_t> batches) const;
  // Returns whether some rank has submitted something again of the round of which `at` is the last
  // launched batch, and which does not end there.
  bool repeats(PlanPlace at) const;
  bool has_all(LocalRank rank, uint32_t batch) const {
    return batches_[batch].by_rank[static_cast<size_t>(rank.value)] == batches_[batch].tensors;
  }
  // Returns whether the rank has submitted a tensor under this ticket, and its batch is not under
  // way.
  bool gathers(LocalRank rank, Ticket ticket) const;

  // The batch is ready, and is launched from here on.
  void begin(uint32_t batch) { batches_[batch].is_under_way = true; }
  // The batch was launched and has ended: the ranks may submit it again.
  void end(uint32_t batch);

  size_t tensors(uint32_t batch) const { return batches_[batch].tensors; }
  size_t ranks() const { return ranks_; }
  // Returns the submission of the batch's tensor with index `tensor` by the rank, which must have
  // submitted it.
  LocalSubmission submission(uint32_t batch, size_t tensor, LocalRank rank) const;
  const DescriptorPtr& descriptor(uint32_t batch, size_t tensor, LocalRank rank) const {
    return known_[known_index(place_of(batch, tensor), rank)];
  }
  // Returns the batch's tensors, as the plan has them.
  const LaunchTensors& to_launch(uint32_t batch) const { return batches_[batch].to_launch; }
  Ticket ticket(uint32_t batch, size_t tensor, LocalRank rank) const {
    return rows_[row_index(place_of(batch, tensor), rank)].ticket;
  }

  // Returns the submissions of batches that are not under way, rank by rank in the order of
  // tickets, and forgets them.
  std::vector<LocalSubmission> take_gathered();

  size_t submissions() const { return submissions_; }
  size_t submissions_of(LocalRank rank) const;
  // Returns when the oldest submission came, or none if there is none.
  std::optional<TicksMs> since() const;

 private:
  struct Row {
    Ticket ticket;
    TicksMs submitted_ms = 0;
    uint64_t round = 0;  // The row holds a submission if this is its batch's round.
  };
  struct Batch {
    uint32_t first = 0;  // The place of its first tensor.
    uint32_t tensors = 0;
    uint32_t missing = 0;           // Submissions that have not come.
    std::vector<uint32_t> by_rank;  // Submissions that have come.
    uint64_t round = 1;             // One more than the number of its rounds that have ended.
    LaunchTensors to_launch;
    PlanPlace after = kPlanStart;
    bool ends = false;
    bool is_under_way = false;
    TicksMs since_ms = 0;       // When its first submission came.
    uint64_t ready_moment = 0;  // The moment_ at which it became ready.
  };
  struct RankMemory {
    std::unordered_map<const TensorDescriptor*, uint32_t> places;
    std::vector<uint32_t> after;  // By place: what the rank submitted after it last time.
    uint32_t last = 0;            // The place of its last submission.
  };

  uint32_t place_of(uint32_t batch, size_t tensor) const {
    return batches_[batch].first + static_cast<uint32_t>(tensor);
  }
  size_t row_index(uint32_t place, LocalRank rank) const {
    return size_t{place} * ranks_ + static_cast<size_t>(rank.value);
  }
  size_t known_index(uint32_t place, LocalRank rank) const {
    return static_cast<size_t>(rank.value) * batch_of_.size() + place;
  }
  bool is_gathered(const Batch& batch) const {
    return !batch.is_under_way && batch.missing < batch.tensors * ranks_;
  }
  // Returns the tensor's place, or kNoPlace if it is not the plan's, or that of several batches.
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  uint32_t find(LocalRank rank, const DescriptorPtr& descriptor);
  void remove(Batch& batch);

  const size_t ranks_;
  std::vector<Batch> batches_;
  std::vector<uint32_t> batch_of_;  // The index is the place.
  // kNoPlace: the name has several places.
  std::unordered_map<std::string_view, uint32_t> by_name_;
  std::vector<DescriptorPtr> planned_;  // By place. These have the names.
  // The index is by rank and place. A process has a descriptor of its own, which has the same
  // value.
  std::vector<DescriptorPtr> known_;
  std::vector<RankMemory> memory_;  // The index is the rank.
  std::vector<Row> rows_;           // By place and rank.
  size_t submissions_ = 0;
  uint64_t moment_ = 0;
};

}  // namespace rueda::core
