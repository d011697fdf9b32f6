// A schedule that repeats, as a tree (rule L9 of docs/protocol.md): steps of several kinds begin
// alike and part where one has a tensor that the others lack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/model/descriptor.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/tuning.h"

namespace rueda::core {

using DescriptorPtr = std::shared_ptr<const TensorDescriptor>;

// A place in a plan: the index of the batch that was launched last. At kPlanStart no batch of this
// round has been launched yet.
using PlanPlace = int32_t;
inline constexpr PlanPlace kPlanStart = -1;

struct PlanBatch {
  std::vector<DescriptorPtr> tensors;
  PlanPlace after = kPlanStart;  // The batch that this one comes after; it has a lower index.
  bool ends = false;             // A round may end here; always true if nothing comes after it.
};

// The batches of a schedule. Rounds begin at kPlanStart and go from batch to batch. Where several
// batches may be next, the one whose tensors are there first is next.
struct Plan {
  std::vector<PlanBatch> batches;
  DataTuning tuning{};  // How its operations go between nodes.

  // Returns whether there is a place after which more than one batch can be next.
  bool has_alternatives() const;
  // Returns, by place and with kPlanStart first, the batches that may be next. After a batch that
  // ends a round, these include those that begin a round, so the result's size is bounded only
  // because find_flaw() bounds how many batches begin a round and how many end one.
  std::vector<std::vector<uint32_t>> successors() const;
  // Returns the batches of the round so far, if the batch `place` was launched last.
  std::vector<uint32_t> path_to(PlanPlace place) const;
  // Returns how many different tensors the plan has.
  size_t tensors() const;
};

// The largest plan that fits into one message (limits::kMaxControlMessageBytes).
inline constexpr size_t kMaxPlanBytes = 3u << 20;
// Returns how many bytes of that a tensor takes, at most.
size_t bytes_in_a_plan(const TensorDescriptor& tensor);

// At most so many batches may begin a round of a plan, and at most so many may end one.
inline constexpr size_t kMaxBranchesOfAPlan = 64;

// Returns what is wrong with a plan that came from elsewhere, or "" if it can be followed. The time
// and the memory are proportional to the plan.
std::string find_flaw(const Plan& plan);
// Returns what is wrong with the plan for a process set with that id and layout, or "" if the set
// can follow it.
std::string find_flaw(const Plan& plan, uint32_t process_set, const Layout& layout);

}  // namespace rueda::core
