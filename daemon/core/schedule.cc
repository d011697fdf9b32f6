#include "daemon/core/schedule.h"

#include <algorithm>

namespace rueda::core {
namespace {

// A plan goes in one message (limits::kMaxControlMessageBytes), and what never repeats must not be
// remembered for ever: a longer stretch is no step.
constexpr size_t kMostPlanBytes = 3u << 20;

size_t bytes_in_a_plan(const TensorDescriptor& tensor) {
  return 96 + tensor.name.size() + tensor.group.size() + 11 * tensor.shape.size();
}

}  // namespace

void Schedule::on_reported(const std::string& tensor, TicksMs now) {
  reported_.try_emplace(tensor, Report{++moment_, now}).first->second.last_at = now;
}

void Schedule::on_decreed(Seq seq, const std::vector<DescriptorPtr>& batch) {
  for (const DescriptorPtr& tensor : batch) {
    const size_t bytes = bytes_in_a_plan(*tensor);
    if (names_.contains(tensor->name) || step_bytes_ + bytes > kMostPlanBytes) finish_step();
    step_bytes_ += bytes;
    names_.insert(tensor->name);
    Occurrence occurrence;
    occurrence.descriptor = tensor;
    if (const auto it = reported_.find(tensor->name); it != reported_.end()) {
      occurrence.report = it->second;
      reported_.erase(it);
    }
    open_[seq].push_back(step_.size());
    step_.push_back(std::move(occurrence));
  }
}

void Schedule::on_ended(Seq seq) {
  const auto it = open_.find(seq);
  if (it == open_.end()) return;
  ++moment_;
  for (const size_t place : it->second) step_[place].ended = moment_;
  open_.erase(it);
}

// A tensor has come again: what came before it was a step.
void Schedule::finish_step() {
  std::map<std::string, DescriptorPtr> finished;
  for (const Occurrence& occurrence : step_) {
    finished.emplace(occurrence.descriptor->name, occurrence.descriptor);
  }
  const bool same = std::equal(
      finished.begin(), finished.end(), previous_.begin(), previous_.end(),
      [](const auto& a, const auto& b) { return a.first == b.first && *a.second == *b.second; });
  repeated_ = same ? repeated_ + 1 : 1;
  previous_ = std::move(finished);
  step_.clear();
  step_bytes_ = 0;
  names_.clear();
  open_.clear();
}

bool Schedule::has_repeated(int steps) const {
  if (step_.empty()) return false;
  if (steps <= 1 && previous_.empty()) return false;
  if (repeated_ + 1 < steps || step_.size() != previous_.size()) return false;
  return std::all_of(step_.begin(), step_.end(), [&](const Occurrence& occurrence) {
    const auto it = previous_.find(occurrence.descriptor->name);
    return it != previous_.end() && *it->second == *occurrence.descriptor;
  });
}

std::vector<Schedule::Unit> Schedule::units() const {
  std::vector<Unit> units;
  for (size_t place = 0; place < step_.size(); ++place) {
    const TensorDescriptor& tensor = *step_[place].descriptor;
    const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
      const TensorDescriptor& first = *unit.tensors.front()->descriptor;
      return !tensor.group.empty() && first.group == tensor.group && can_fuse(first, tensor);
    });
    Unit& unit = found == units.end() ? units.emplace_back() : *found;
    unit.tensors.push_back(&step_[place]);
    unit.last_place = place;
  }
  return units;
}

bool Schedule::may_join(const Batch& batch, const Unit& unit) const {
  int64_t bytes = batch.bytes;
  for (const Occurrence* tensor : unit.tensors) {
    if (!can_fuse(*batch.tensors.front(), *tensor->descriptor)) return false;
    if (tensor->report.first > batch.first_ended) return false;
    if (tensor->report.last_at - batch.first_ready > options_.fusion_window_ms) return false;
    bytes += tensor->descriptor->bytes();
  }
  return bytes <= options_.fusion.threshold_bytes;
}

Plan Schedule::make_plan() const {
  std::vector<Batch> batches;
  std::vector<size_t> open;  // the last batch of each kind that can be fused
  for (const Unit& unit : units()) {
    const auto joined = std::find_if(open.begin(), open.end(),
                                     [&](size_t index) { return may_join(batches[index], unit); });
    size_t index = joined == open.end() ? batches.size() : *joined;
    if (index == batches.size()) {
      std::erase_if(open, [&](size_t other) {
        return can_fuse(*batches[other].tensors.front(), *unit.tensors.front()->descriptor);
      });
      open.push_back(index);
      batches.emplace_back().first_ready = unit.tensors.front()->report.last_at;
    }
    Batch& batch = batches[index];
    for (const Occurrence* tensor : unit.tensors) {
      batch.tensors.push_back(tensor->descriptor);
      batch.bytes += tensor->descriptor->bytes();
      batch.first_ended = std::min(batch.first_ended, tensor->ended);
    }
    batch.last_place = std::max(batch.last_place, unit.last_place);
  }
  // Launched in this order: no batch waits behind one that is ready later.
  std::stable_sort(batches.begin(), batches.end(),
                   [](const Batch& a, const Batch& b) { return a.last_place < b.last_place; });
  Plan plan;
  for (Batch& batch : batches) plan.batches.push_back(std::move(batch.tensors));
  return plan;
}

void Schedule::clear() {
  reported_.clear();
  step_.clear();
  step_bytes_ = 0;
  names_.clear();
  open_.clear();
  previous_.clear();
  repeated_ = 0;
}

}  // namespace rueda::core
