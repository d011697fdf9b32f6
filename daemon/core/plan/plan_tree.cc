#include "daemon/core/plan/plan_tree.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

// A set of steps, in which bit i stands for step i.
using StepSet = uint32_t;

struct Tensor {
  std::vector<const Occurrence*> by_step;  // An entry is null if the step lacks the tensor.
  StepSet steps = 0;
  size_t place = 0;  // The tensor's place in the first step that has it.
  bool is_placed = false;

  const TensorDescriptor& descriptor() const {
    return *by_step[static_cast<size_t>(std::countr_zero(steps))]->descriptor;
  }
};

// Tensors that stay together: one without a group, or tensors of a group that can be fused.
struct Unit {
  std::vector<Tensor*> tensors;
  size_t last_place = 0;
};

struct Draft {
  std::vector<Tensor*> tensors;
  int64_t bytes = 0;
  size_t last_place = 0;
  // The index is the step: the least Occurrence::ended of the batch's tensors, and the ready_at of
  // the batch's first unit.
  std::vector<uint64_t> first_ended;
  std::vector<TicksMs> first_ready;
};

class TreeMaker {
 public:
  TreeMaker(const std::vector<const StepRecord*>& steps, const FusionOptions& fusion,
            TicksMs fusion_window_ms)
      : steps_(steps.size()), fusion_(fusion), fusion_window_ms_(fusion_window_ms) {
    RUEDA_CHECK(!steps.empty() && steps.size() <= 32);
    for (size_t step = 0; step < steps.size(); ++step) {
      for (size_t place = 0; place < steps[step]->size(); ++place) {
        const Occurrence& occurrence = (*steps[step])[place];
        Tensor& tensor = tensors_[occurrence.descriptor->name];
        if (tensor.steps == 0) tensor.place = place;
        tensor.by_step.resize(steps.size());
        tensor.by_step[step] = &occurrence;
        tensor.steps |= StepSet{1} << step;
      }
    }
    for (const StepRecord* step : steps) {
      std::vector<Tensor*>& order = in_order_.emplace_back();
      for (const Occurrence& item : *step) order.push_back(&tensors_.at(item.descriptor->name));
    }
    tree_.ends.resize(steps.size(), kPlanStart);
  }

  std::optional<PlanTree> make() {
    const StepSet all = steps_ == 32 ? ~StepSet{0} : (StepSet{1} << steps_) - 1;
    grow(all, nullptr, kPlanStart);
    if (!RUEDA_MUTANT(kFusedAcrossBranches) && !find_flaw(tree_.plan).empty()) return std::nullopt;
    return std::move(tree_);
  }

 private:
  // Steps that part from others, and the tensor by which they part, which is in the branch's first
  // batch.
  struct Branch {
    StepSet steps = 0;
    const Tensor* mark = nullptr;
  };
  void grow(StepSet branch, const Tensor* mark, PlanPlace after);
  Branch next_branch(StepSet left, StepSet siblings) const;
  const Tensor* first_left(size_t step) const;
  std::vector<Unit> units(StepSet branch);
  bool may_join(const Draft& batch, const Unit& unit) const;
  void add(Draft& batch, const Unit& unit) const;
  std::vector<Draft> batches(StepSet branch);
  bool is_left(const Tensor& tensor, StepSet branch) const {
    return !tensor.is_placed && (tensor.steps & branch) != 0;
  }

  const size_t steps_;
  const FusionOptions fusion_;
  const TicksMs fusion_window_ms_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::vector<Tensor*>> in_order_;  // The index is the step.
  PlanTree tree_;
};

std::vector<Unit> TreeMaker::units(StepSet branch) {
  std::vector<Tensor*> common;
  for (auto& [name, tensor] : tensors_) {
    if (!tensor.is_placed && (tensor.steps & branch) == branch) common.push_back(&tensor);
  }
  const auto step = static_cast<size_t>(std::countr_zero(branch));
  // The order is that of one step that has them all.
  std::sort(common.begin(), common.end(),
            [&](const Tensor* a, const Tensor* b) { return a->by_step[step] < b->by_step[step]; });
  std::vector<Unit> units;
  std::map<std::string, std::vector<size_t>> of_group;
  for (size_t place = 0; place < common.size(); ++place) {
    const TensorDescriptor& tensor = common[place]->descriptor();
    size_t found = units.size();
    if (!tensor.group.empty()) {
      for (const size_t other : of_group[tensor.group]) {
        const Tensor& first = *units[other].tensors.front();
        if (first.steps == common[place]->steps && can_fuse(first.descriptor(), tensor)) {
          found = other;
        }
      }
      if (found == units.size()) of_group[tensor.group].push_back(found);
    }
    if (found == units.size()) units.emplace_back();
    units[found].tensors.push_back(common[place]);
    units[found].last_place = place;
  }
  return units;
}

bool TreeMaker::may_join(const Draft& batch, const Unit& unit) const {
  const Tensor& first = *batch.tensors.front();
  int64_t bytes = batch.bytes;
  for (const Tensor* tensor : unit.tensors) {
    if (!can_fuse(first.descriptor(), tensor->descriptor())) return false;
    if (first.steps != tensor->steps && !RUEDA_MUTANT(kFusedAcrossBranches)) return false;
    for (size_t step = 0; step < steps_; ++step) {
      const Occurrence* occurrence = tensor->by_step[step];
      if (!occurrence) continue;
      if (occurrence->first_reported > batch.first_ended[step]) return false;
      if (occurrence->ready_at - batch.first_ready[step] > fusion_window_ms_) return false;
    }
    bytes += tensor->descriptor().bytes();
  }
  return bytes <= fusion_.threshold_bytes;
}

void TreeMaker::add(Draft& batch, const Unit& unit) const {
  if (batch.tensors.empty()) {
    batch.first_ended.resize(steps_, UINT64_MAX);
    batch.first_ready.resize(steps_);
    for (size_t step = 0; step < steps_; ++step) {
      const Occurrence* occurrence = unit.tensors.front()->by_step[step];
      if (occurrence) batch.first_ready[step] = occurrence->ready_at;
    }
  }
  for (Tensor* tensor : unit.tensors) {
    batch.tensors.push_back(tensor);
    batch.bytes += tensor->descriptor().bytes();
    for (size_t step = 0; step < steps_; ++step) {
      const Occurrence* occurrence = tensor->by_step[step];
      if (occurrence)
        batch.first_ended[step] = std::min(batch.first_ended[step], occurrence->ended);
    }
  }
  batch.last_place = std::max(batch.last_place, unit.last_place);
}

// Returns batches of the tensors that all steps of the branch have and no batch has yet.
std::vector<Draft> TreeMaker::batches(StepSet branch) {
  std::vector<Draft> batches;
  std::vector<size_t> open;  // The last batch of each kind of tensors that can be fused.
  for (const Unit& unit : units(branch)) {
    const auto joined = std::find_if(open.begin(), open.end(),
                                     [&](size_t index) { return may_join(batches[index], unit); });
    const size_t index = joined == open.end() ? batches.size() : *joined;
    if (index == batches.size()) {
      const Tensor& first = *unit.tensors.front();
      std::erase_if(open, [&](size_t other) {
        const Tensor& like = *batches[other].tensors.front();
        return like.steps == first.steps && can_fuse(like.descriptor(), first.descriptor());
      });
      open.push_back(index);
      batches.emplace_back();
    }
    add(batches[index], unit);
  }
  std::stable_sort(batches.begin(), batches.end(),
                   [](const Draft& a, const Draft& b) { return a.last_place < b.last_place; });
  return batches;
}

const Tensor* TreeMaker::first_left(size_t step) const {
  const auto found = std::find_if(in_order_[step].begin(), in_order_[step].end(),
                                  [](const Tensor* tensor) { return !tensor->is_placed; });
  return found == in_order_[step].end() ? nullptr : *found;
}

// Chooses, of the steps that are left, as many as possible that share a tensor which no other
// sibling has. If there is none, it chooses those that go on with the same tensor; then the batch
// that is ready first tells the way.
TreeMaker::Branch TreeMaker::next_branch(StepSet left, StepSet siblings) const {
  Branch best;
  for (const auto& [name, tensor] : tensors_) {
    const StepSet steps = tensor.steps & siblings;
    if (!is_left(tensor, left) || (steps & ~left) != 0) continue;
    const int more = std::popcount(steps) - std::popcount(best.steps);
    if (more < 0 || (more == 0 && tensor.place >= best.mark->place)) continue;
    best = {steps, &tensor};
  }
  if (best.mark) return best;
  best.mark = first_left(static_cast<size_t>(std::countr_zero(left)));
  for (size_t step = 0; step < steps_; ++step) {
    if ((left >> step & 1) != 0 && first_left(step) == best.mark) best.steps |= StepSet{1} << step;
  }
  return best;
}

void TreeMaker::grow(StepSet branch, const Tensor* mark, PlanPlace after) {
  if (!RUEDA_MUTANT(kFusedAcrossBranches) || std::has_single_bit(branch)) {
    std::vector<Draft> drafts = batches(branch);
    const auto first = std::find_if(drafts.begin(), drafts.end(), [&](const Draft& draft) {
      return std::find(draft.tensors.begin(), draft.tensors.end(), mark) != draft.tensors.end();
    });
    if (first != drafts.end()) std::rotate(drafts.begin(), first, first + 1);
    for (const Draft& draft : drafts) {
      PlanBatch& batch = tree_.plan.batches.emplace_back();
      for (Tensor* tensor : draft.tensors) {
        tensor->is_placed = true;
        batch.tensors.push_back(
            tensor->by_step[static_cast<size_t>(std::countr_zero(branch))]->descriptor);
      }
      batch.after = std::exchange(after, static_cast<PlanPlace>(tree_.plan.batches.size()) - 1);
    }
  }
  StepSet left = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor.is_placed) left |= tensor.steps & branch;
  }
  for (size_t step = 0; step < steps_; ++step) {
    if (((branch & ~left) >> step & 1) == 0) continue;
    tree_.ends[step] = after;
    tree_.plan.batches[static_cast<size_t>(after)].ends = true;
  }
  while (left != 0) {
    Branch next = next_branch(left, branch);
    if (RUEDA_MUTANT(kFusedAcrossBranches)) next = {left & (~left + 1), nullptr};
    // A tensor may have its place in several branches.
    std::vector<std::pair<Tensor*, bool>> placed;
    for (auto& [name, tensor] : tensors_) placed.emplace_back(&tensor, tensor.is_placed);
    grow(next.steps, next.mark, after);
    for (const auto& [tensor, was_placed] : placed) tensor->is_placed = was_placed;
    left &= ~next.steps;
  }
}

}  // namespace

std::optional<PlanTree> make_plan_tree(const std::vector<const StepRecord*>& steps,
                                       const FusionOptions& fusion, TicksMs fusion_window_ms) {
  return TreeMaker(steps, fusion, fusion_window_ms).make();
}

}  // namespace rueda::core
