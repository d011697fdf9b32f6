#include "daemon/core/messages/plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>

#include "daemon/core/messages/batch_check.h"
#include "daemon/core/model/track.h"

namespace rueda::core {
namespace {

// The batches that come after each place of a plan, in the same round; kPlanStart comes first. They
// are in two flat rows, so that a plan of a hundred thousand batches costs a few allocations.
class Children {
 public:
  explicit Children(const Plan& plan) : first_(plan.batches.size() + 2), all_(plan.batches.size()) {
    for (const PlanBatch& batch : plan.batches) ++first_[index(batch.after) + 1];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    for (size_t i = 0; i < plan.batches.size(); ++i) {
      all_[next[index(plan.batches[i].after)]++] = static_cast<uint32_t>(i);
    }
  }
  std::span<const uint32_t> of(PlanPlace place) const {
    return {all_.begin() + static_cast<std::ptrdiff_t>(first_[index(place)]),
            all_.begin() + static_cast<std::ptrdiff_t>(first_[index(place) + 1])};
  }

 private:
  static size_t index(PlanPlace place) { return static_cast<size_t>(place + 1); }
  std::vector<size_t> first_;
  std::vector<uint32_t> all_;
};

using Names = std::unordered_set<std::string_view>;

// Adds the batch's names. Returns the first name that was there already, or null if there was none,
// and all have been added.
const std::string* add_names(const PlanBatch& batch, Names& names) {
  for (const DescriptorPtr& tensor : batch.tensors) {
    if (!names.insert(tensor->name).second) return &tensor->name;
  }
  return nullptr;
}

// Returns an error text unless each batch has tensors that are alike, and comes after an earlier
// batch.
std::string find_flaw_of_batches(const Plan& plan) {
  if (plan.batches.empty()) return "an empty plan";
  size_t begin = 0;
  size_t end = 0;
  for (size_t i = 0; i < plan.batches.size(); ++i) {
    const PlanBatch& batch = plan.batches[i];
    if (batch.tensors.empty()) return "a plan with an empty batch";
    if (batch.after < kPlanStart || batch.after >= static_cast<PlanPlace>(i)) {
      return "a plan whose batch " + std::to_string(i) + " comes after batch " +
             std::to_string(batch.after);
    }
    if (std::string flaw = find_flaw_of_batch(batch.tensors); !flaw.empty()) {
      return "a plan with " + flaw;
    }
    begin += batch.after == kPlanStart ? 1 : 0;
    end += batch.ends ? 1 : 0;
  }
  if (std::max(begin, end) <= kMaxBranchesOfAPlan) return {};
  return "a plan in which " + std::to_string(begin) + " batches begin a round and " +
         std::to_string(end) + " end one; the limit is " + std::to_string(kMaxBranchesOfAPlan);
}

// Returns an error text unless a tensor comes only once along every way through a round. This is
// one walk over the tree, which takes the names of a batch out again on its way back.
std::string find_repetition(const Plan& plan, const Children& children) {
  struct Step {
    uint32_t batch;
    size_t child;  // The index of the batch's child that is to be visited next.
  };
  Names names;
  std::vector<Step> path;
  const auto leave = [&] {
    for (const DescriptorPtr& tensor : plan.batches[path.back().batch].tensors) {
      names.erase(tensor->name);
    }
    path.pop_back();
  };
  for (const uint32_t root : children.of(kPlanStart)) {
    std::optional<uint32_t> next = root;
    while (next || !path.empty()) {
      if (next) {
        if (const std::string* name = add_names(plan.batches[*next], names)) {
          return "a plan with tensor \"" + *name + "\" twice";
        }
        path.push_back({*next, 0});
        next.reset();
      }
      const auto below = children.of(static_cast<PlanPlace>(path.back().batch));
      if (path.back().child < below.size()) {
        next = below[path.back().child++];
      } else {
        leave();
      }
    }
  }
  return {};
}

// Returns an error text unless batches that may be next at the same place have no tensor in common,
// because the presence of a tensor must tell them apart (L9).
std::string find_ambiguity(const Plan& plan, const Children& children) {
  const auto ambiguous = [](const std::string& name) {
    return "a plan with tensor \"" + name + "\" in two batches that may be next";
  };
  Names first;
  for (const uint32_t batch : children.of(kPlanStart)) {
    if (const std::string* name = add_names(plan.batches[batch], first)) return ambiguous(*name);
  }
  for (size_t place = 0; place < plan.batches.size(); ++place) {
    const auto below = children.of(static_cast<PlanPlace>(place));
    if (below.size() < 2 && !plan.batches[place].ends) continue;
    Names next;
    for (const uint32_t batch : below) {
      if (const std::string* name = add_names(plan.batches[batch], next)) return ambiguous(*name);
    }
    if (!plan.batches[place].ends) continue;
    for (const std::string_view name : next) {
      if (first.contains(name)) return ambiguous(std::string(name));
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
  if (std::string flaw = find_flaw_of_batches(plan); !flaw.empty()) return flaw;
  const Children children(plan);
  for (size_t i = 0; i < plan.batches.size(); ++i) {
    if (!plan.batches[i].ends && children.of(static_cast<PlanPlace>(i)).empty()) {
      return "a plan whose batch " + std::to_string(i) + " leads nowhere";
    }
  }
  if (std::string flaw = find_repetition(plan, children); !flaw.empty()) return flaw;
  return find_ambiguity(plan, children);
}

std::string find_flaw(const Plan& plan, uint32_t process_set, const Layout& layout) {
  if (std::string flaw = find_flaw(plan); !flaw.empty()) return flaw;
  for (const PlanBatch& batch : plan.batches) {
    std::string flaw = find_flaw_of_batch(batch.tensors, Track::kLockable, process_set, layout);
    if (!flaw.empty()) return "a plan with " + flaw;
  }
  return {};
}

}  // namespace rueda::core
