#include "daemon/core/plan.h"

#include <algorithm>
#include <set>

#include "daemon/core/track.h"

namespace rueda::core {
namespace {

// Two batches that may be next have no tensor in common: presence tells them apart (L9).
std::string find_ambiguity(const Plan& plan, const std::vector<uint32_t>& next) {
  std::set<std::string> names;
  for (const uint32_t index : next) {
    for (const DescriptorPtr& tensor : plan.batches[index].tensors) {
      if (!names.insert(tensor->name).second) {
        return "tensor \"" + tensor->name + "\" in two batches that may be next";
      }
    }
  }
  return {};
}

}  // namespace

std::vector<std::vector<uint32_t>> Plan::successors() const {
  std::vector<std::vector<uint32_t>> next(batches.size() + 1);
  for (size_t i = 0; i < batches.size(); ++i) {
    next[static_cast<size_t>(batches[i].after + 1)].push_back(static_cast<uint32_t>(i));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].ends) next[i + 1].insert(next[i + 1].end(), next[0].begin(), next[0].end());
  }
  return next;
}

bool Plan::has_alternatives() const {
  const auto next = successors();
  return std::any_of(next.begin(), next.end(), [](const auto& some) { return some.size() > 1; });
}

std::vector<uint32_t> Plan::path_to(PlanPlace place) const {
  std::vector<uint32_t> path;
  for (; place != kPlanStart; place = batches[static_cast<size_t>(place)].after) {
    path.push_back(static_cast<uint32_t>(place));
  }
  std::reverse(path.begin(), path.end());
  return path;
}

size_t Plan::tensors() const {
  std::set<std::string> names;
  for (const PlanBatch& batch : batches) {
    for (const DescriptorPtr& tensor : batch.tensors) names.insert(tensor->name);
  }
  return names.size();
}

size_t bytes_in_a_plan(const TensorDescriptor& tensor) {
  return 96 + tensor.name.size() + tensor.group.size() + 11 * tensor.shape.size();
}

std::string find_flaw(const Plan& plan) {
  if (plan.batches.empty()) return "an empty plan";
  std::vector<bool> is_followed(plan.batches.size());
  for (size_t i = 0; i < plan.batches.size(); ++i) {
    const PlanBatch& batch = plan.batches[i];
    if (batch.tensors.empty()) return "a plan with an empty batch";
    if (batch.after < kPlanStart || batch.after >= static_cast<PlanPlace>(i)) {
      return "a plan whose batch " + std::to_string(i) + " comes after batch " +
             std::to_string(batch.after);
    }
    if (batch.after != kPlanStart) is_followed[static_cast<size_t>(batch.after)] = true;
  }
  for (size_t i = 0; i < plan.batches.size(); ++i) {
    if (is_followed[i]) continue;
    if (!plan.batches[i].ends) {
      return "a plan whose batch " + std::to_string(i) + " leads nowhere";
    }
    std::set<std::string> names;
    for (const uint32_t index : plan.path_to(static_cast<PlanPlace>(i))) {
      for (const DescriptorPtr& tensor : plan.batches[index].tensors) {
        if (!names.insert(tensor->name).second) {
          return "a plan with tensor \"" + tensor->name + "\" twice";
        }
      }
    }
  }
  for (const auto& next : plan.successors()) {
    if (std::string flaw = find_ambiguity(plan, next); !flaw.empty()) return "a plan with " + flaw;
  }
  return {};
}

std::string find_flaw_of_recorded(const Plan& plan) {
  for (const PlanBatch& batch : plan.batches) {
    for (const DescriptorPtr& tensor : batch.tensors) {
      if (track_of(*tensor) != Track::kLockable || tensor->process_set != 0) {
        return "a plan with tensor \"" + tensor->name + "\", which cannot be in it";
      }
    }
  }
  return find_flaw(plan);
}

}  // namespace rueda::core
