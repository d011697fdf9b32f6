// What the ranks of one node have submitted of a plan that comes again as it came before: rows by
// place in the plan, found by the pointer to the descriptor, past the tables that know names. A
// step of a thousand tensors costs a thousand comparisons of pointers here.
//
// It knows what repeats, and nothing else: for whatever is different it is emptied into the tables,
// where everything has its rule (Collectives::leave_fast_path()).
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
  // `ranks` of this node submit.
  PlanFastPath(const Plan& plan, size_t ranks);
  PlanFastPath(const PlanFastPath&) = delete;
  PlanFastPath& operator=(const PlanFastPath&) = delete;

  // Whether the submission has a place here: a tensor of the plan, as the plan has it, of one batch
  // alone, that the rank has not submitted already.
  bool take(TicksMs now, LocalRank rank, Ticket ticket, const DescriptorPtr& descriptor);
  // Of these batches, the one of which every rank had submitted all first; not one under way. None:
  // there is none.
  std::optional<uint32_t> first_ready(std::span<const uint32_t> batches) const;
  // Some rank has submitted something again of the round that is not over with the batch `at`.
  bool repeats(PlanPlace at) const;
  bool has_all(LocalRank rank, uint32_t batch) const {
    return batches_[batch].by_rank[static_cast<size_t>(rank.value)] == batches_[batch].tensors;
  }
  // The rank has submitted it under this ticket, and it is not under way.
  bool gathers(LocalRank rank, Ticket ticket) const;

  // The batch is ready, and launched from here on.
  void begin(uint32_t batch) { batches_[batch].is_under_way = true; }
  // What was launched has ended: the ranks may submit it again.
  void end(uint32_t batch);

  size_t tensors(uint32_t batch) const { return batches_[batch].tensors; }
  size_t ranks() const { return ranks_; }
  // As it was submitted; `tensor` counts within the batch. It must have been.
  LocalSubmission submission(uint32_t batch, size_t tensor, LocalRank rank) const;
  const DescriptorPtr& descriptor(uint32_t batch, size_t tensor, LocalRank rank) const {
    return known_[known_index(place_of(batch, tensor), rank)];
  }
  // As the plan has them.
  const LaunchTensors& to_launch(uint32_t batch) const { return batches_[batch].to_launch; }
  Ticket ticket(uint32_t batch, size_t tensor, LocalRank rank) const {
    return rows_[row_index(place_of(batch, tensor), rank)].ticket;
  }

  // Those of batches that are not under way, rank by rank in the order of tickets; they are here no
  // longer.
  std::vector<LocalSubmission> take_gathered();

  size_t submissions() const { return submissions_; }
  size_t submissions_of(LocalRank rank) const;
  // When the oldest submission came; none: there is none.
  std::optional<TicksMs> since() const;

 private:
  struct Row {
    Ticket ticket;
    TicksMs submitted_ms = 0;
    uint64_t round = 0;  // the batch's: it is there
  };
  struct Batch {
    uint32_t first = 0;  // place of its first tensor
    uint32_t tensors = 0;
    uint32_t missing = 0;           // submissions
    std::vector<uint32_t> by_rank;  // submissions
    uint64_t round = 1;             // how often it has begun
    LaunchTensors to_launch;
    PlanPlace after = kPlanStart;
    bool ends = false;
    bool is_under_way = false;
    TicksMs since_ms = 0;       // of the first submission
    uint64_t ready_moment = 0;  // by a count of batches that became ready
  };
  struct RankMemory {
    std::unordered_map<const TensorDescriptor*, uint32_t> places;
    std::vector<uint32_t> after;  // by place: what the rank submitted after it the last time
    uint32_t last = 0;            // place of its last submission
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
  // The tensor's place; kNoPlace: it is not the plan's, or that of several batches.
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  uint32_t find(LocalRank rank, const DescriptorPtr& descriptor);
  void remove(Batch& batch);

  const size_t ranks_;
  std::vector<Batch> batches_;
  std::vector<uint32_t> batch_of_;                          // by place
  std::unordered_map<std::string_view, uint32_t> by_name_;  // kNoPlace: it has several
  std::vector<DescriptorPtr> planned_;                      // by place; has the names
  // By rank and place: a process has a descriptor of its own, of the same value.
  std::vector<DescriptorPtr> known_;
  std::vector<RankMemory> memory_;  // by rank
  std::vector<Row> rows_;           // by place and rank
  size_t submissions_ = 0;
  uint64_t moment_ = 0;
};

}  // namespace rueda::core
