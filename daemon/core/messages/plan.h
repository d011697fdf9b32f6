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

// A place in a plan: the index of the batch launched last; kPlanStart: none in this round yet.
using PlanPlace = int32_t;
inline constexpr PlanPlace kPlanStart = -1;

struct PlanBatch {
  std::vector<DescriptorPtr> tensors;
  PlanPlace after = kPlanStart;  // comes after that batch, which is an earlier one
  bool ends = false;             // a round may end here; always so if nothing comes after it
};

// Rounds begin at kPlanStart and go from batch to batch. Where several batches may be next, the one
// whose tensors are there first is.
struct Plan {
  std::vector<PlanBatch> batches;
  DataTuning tuning{};  // of its operations

  // More than one batch can be next somewhere.
  bool has_alternatives() const;
  // By place, kPlanStart first: the batches that may be next. After a batch that ends a round, they
  // are also those that begin one: so find_flaw() bounds how many do either.
  std::vector<std::vector<uint32_t>> successors() const;
  // The batches of the round so far, when this one was launched last.
  std::vector<uint32_t> path_to(PlanPlace place) const;
  size_t tensors() const;
};

// A plan goes in one message (limits::kMaxControlMessageBytes).
inline constexpr size_t kMaxPlanBytes = 3u << 20;
// What a tensor takes of it, at most.
size_t bytes_in_a_plan(const TensorDescriptor& tensor);

// So many batches may begin a round of it, and so many may end one.
inline constexpr size_t kMaxBranchesOfAPlan = 64;

// What is wrong with a plan that came from elsewhere; empty: it can be followed. Takes time and
// memory in proportion to the plan.
std::string find_flaw(const Plan& plan);
// Likewise, for a process set with that id and layout.
std::string find_flaw(const Plan& plan, uint32_t process_set, const Layout& layout);

}  // namespace rueda::core
