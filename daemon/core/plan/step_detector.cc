#include "daemon/core/plan/step_detector.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::core {
namespace {

constexpr size_t kMaxKinds = 8;
// An alternative is forgotten if a lock of at least so many rounds ends and had no use for it.
constexpr uint64_t kRoundsToForget = 100;
// The tensors that ended a lock are in the step that has begun by then, or in the next one.
constexpr int kStepsThatEndALock = 2;

size_t bytes_of(const Plan& plan) {
  size_t bytes = 0;
  for (const PlanBatch& batch : plan.batches) {
    for (const DescriptorPtr& tensor : batch.tensors) bytes += bytes_in_a_plan(*tensor);
  }
  return bytes;
}

// Compares tensors by name and value, whatever their order.
bool have_same_tensors(const StepRecord& a, const StepRecord& b) {
  if (a.size() != b.size()) return false;
  std::unordered_map<std::string_view, const TensorDescriptor*> tensors;
  for (const Occurrence& item : a) tensors.emplace(item.descriptor->name, item.descriptor.get());
  return std::all_of(b.begin(), b.end(), [&](const Occurrence& item) {
    const auto it = tensors.find(item.descriptor->name);
    return it != tensors.end() && *it->second == *item.descriptor;
  });
}

}  // namespace

void StepDetector::on_reported(const std::string& tensor, TicksMs now) {
  reported_.try_emplace(tensor, Report{++moment_, now}).first->second.last_at = now;
}

void StepDetector::on_decreed(Seq seq, const std::vector<DescriptorPtr>& batch,
                              bool is_within_group) {
  const bool was_within_group = std::exchange(is_within_group_, is_within_group);
  if (cuts_group_ && !was_within_group) begin_step(false);
  StepRecord before;  // The tensors of the batch before this one.
  for (const DescriptorPtr& tensor : batch) {
    const size_t bytes = bytes_in_a_plan(*tensor);
    // A step that is too long makes no plan; and what never repeats must not be remembered for
    // ever.
    const bool is_too_long = step_bytes_ + bytes > kMaxPlanBytes;
    is_spoiled_ = is_spoiled_ || is_too_long;
    const bool is_out_of_phase =
        leads(*tensor) && !has_leader_ && !was_within_group && step_.size() > before.size();
    if (is_out_of_phase) drop_part();
    if (names_.contains(tensor->name) || is_too_long) {
      // If the step has a part of a group, it must have all of it.
      is_spoiled_ = is_spoiled_ || was_within_group || (is_within_group && !before.empty());
      finish_step(was_within_group);
    }
    if (step_.empty()) {
      // A step that ended within a batch would do so for ever, and a lock begins between batches.
      // So the next step begins with all of the batch.
      for (const Occurrence& earlier : before) add(seq, earlier);
    }
    Occurrence occurrence;
    occurrence.descriptor = tensor;
    if (const auto it = reported_.find(tensor->name); it != reported_.end()) {
      occurrence.first_reported = it->second.first;
      occurrence.ready_at = it->second.last_at;
      reported_.erase(it);
    }
    add(seq, occurrence);
    before.push_back(std::move(occurrence));
  }
}

// The stretch began within a step, as it does after a lock. Drops it, so that the next step begins
// where steps did when there was a plan. But if the same part has come before, it is a step of its
// own.
void StepDetector::drop_part() {
  std::map<std::string, DescriptorPtr> part;
  for (const Occurrence& occurrence : step_) {
    part.emplace(occurrence.descriptor->name, occurrence.descriptor);
  }
  const bool came_before =
      part.size() == dropped_.size() &&
      std::equal(part.begin(), part.end(), dropped_.begin(), [](const auto& a, const auto& b) {
        return a.first == b.first && *a.second == *b.second;
      });
  dropped_ = std::move(part);
  if (came_before) {
    finish_step(false);
  } else {
    begin_step(false);
  }
}

bool StepDetector::leads(const TensorDescriptor& tensor) const {
  return leader_ && (tensor.name == leader_->name ||
                     (!tensor.group.empty() && tensor.group == leader_->group));
}

void StepDetector::add(Seq seq, const Occurrence& occurrence) {
  step_bytes_ += bytes_in_a_plan(*occurrence.descriptor);
  names_.insert(occurrence.descriptor->name);
  has_leader_ = has_leader_ || leads(*occurrence.descriptor);
  open_[seq].push_back(step_.size());
  step_.push_back(occurrence);
}

void StepDetector::on_ended(Seq seq) {
  const auto it = open_.find(seq);
  if (it == open_.end()) return;
  ++moment_;
  for (const size_t place : it->second) step_[place].ended = moment_;
  open_.erase(it);
}

void StepDetector::spoil() {
  reported_.clear();
  is_spoiled_ = true;
}

// A tensor has come again, so what came before it was a step.
void StepDetector::finish_step(bool is_within_group) {
  if (is_spoiled_) {
    steady_ = 0;
  } else if (!step_.empty()) {
    remember(std::move(step_));
  }
  begin_step(is_within_group);
}

void StepDetector::begin_step(bool is_within_group) {
  step_.clear();
  step_bytes_ = 0;
  names_.clear();
  has_leader_ = false;
  open_.clear();
  is_spoiled_ = cuts_group_ = is_within_group;
}

void StepDetector::remember(StepRecord step) {
  ++steps_;
  Kind kind;
  for (const Occurrence& occurrence : step) {
    kind.tensors.emplace(occurrence.descriptor->name, occurrence.descriptor);
  }
  const auto is_same = [&](const Kind& other) {
    return kind.tensors.size() == other.tensors.size() &&
           std::equal(kind.tensors.begin(), kind.tensors.end(), other.tensors.begin(),
                      [](const auto& a, const auto& b) {
                        return a.first == b.first && *a.second == *b.second;
                      });
  };
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), is_same);
  if (found != kinds_.end()) {
    ++steady_;
    kinds_.splice(kinds_.begin(), kinds_, found);
  } else {
    // Tensors that have changed do not change back, so kinds with the old tensors are over.
    kinds_.remove_if([&](const Kind& other) {
      return std::any_of(other.tensors.begin(), other.tensors.end(), [&](const auto& tensor) {
        const auto it = kind.tensors.find(tensor.first);
        return it != kind.tensors.end() && *it->second != *tensor.second;
      });
    });
    steady_ = 1;
    kinds_.push_front(std::move(kind));
    if (kinds_.size() > kMaxKinds) kinds_.pop_back();
  }
  Kind& last = kinds_.front();
  last.last = std::move(step);
  last.last_step = steps_;
  last.ended_a_lock = last.ended_a_lock || after_a_lock_ > 0;
  after_a_lock_ = std::max(after_a_lock_ - 1, 0);
  ++last.seen;
}

const StepDetector::Kind* StepDetector::find_current() const {
  if (step_.empty() || is_spoiled_) return nullptr;
  const auto is_same = [&](const Kind& kind) {
    return step_.size() == kind.tensors.size() &&
           std::all_of(step_.begin(), step_.end(), [&](const Occurrence& occurrence) {
             const auto it = kind.tensors.find(occurrence.descriptor->name);
             return it != kind.tensors.end() && *it->second == *occurrence.descriptor;
           });
  };
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), is_same);
  return found == kinds_.end() ? nullptr : &*found;
}

bool StepDetector::has_repeated(int steps) const { return steady_ + 1 >= steps && find_current(); }

StepDetector::Proposal StepDetector::make_plan(int steps) {
  const Kind* current = find_current();
  made_of_ = {step_};
  made_within_ms_ = options_.fusion_window_ms;
  std::optional<PlanTree> tree = make_tree();
  for (const Kind& kind : kinds_) {
    if (&kind == current) continue;
    if (kind.seen < 2 && !kind.ended_a_lock && steps_ - kind.last_step + 1 >= steps) continue;
    made_of_.push_back(kind.last);
    std::optional<PlanTree> grown = make_tree();
    if (grown && bytes_of(grown->plan) <= kMaxPlanBytes) {
      tree = std::move(grown);
    } else {
      made_of_.pop_back();
    }
  }
  take_over(*tree);
  return {std::move(tree->plan), tree->ends.front()};
}

std::optional<StepDetector::Proposal> StepDetector::remake_plan() {
  if (is_spoiled_) return std::nullopt;
  const auto ended = std::find_if(made_of_.begin(), made_of_.end(), [&](const StepRecord& step) {
    return have_same_tensors(step, step_);
  });
  if (ended == made_of_.end()) return std::nullopt;
  std::optional<PlanTree> tree = make_tree();
  // Steps that can be told apart with one threshold may not be with another.
  if (!tree || bytes_of(tree->plan) > kMaxPlanBytes) return std::nullopt;
  take_over(*tree);
  return Proposal{std::move(tree->plan), tree->ends[static_cast<size_t>(ended - made_of_.begin())]};
}

Plan StepDetector::plan_ahead(StepRecord step) {
  made_of_.clear();
  made_of_.push_back(std::move(step));
  made_within_ms_ = 0;
  std::optional<PlanTree> tree = make_tree();
  // A single step has no alternatives, so a tree can always be made.
  RUEDA_CHECK(tree.has_value());
  take_over(*tree);
  return std::move(tree->plan);
}

std::optional<PlanTree> StepDetector::make_tree() const {
  std::vector<const StepRecord*> records;
  for (const StepRecord& step : made_of_) records.push_back(&step);
  return make_plan_tree(records, fusion_, made_within_ms_);
}

void StepDetector::take_over(const PlanTree& tree) {
  note_leader(tree.plan);
  for (Kind& kind : kinds_) {
    const auto found = std::find_if(made_of_.begin(), made_of_.end(), [&](const StepRecord& step) {
      return have_same_tensors(step, kind.last);
    });
    kind.ends_at = found == made_of_.end()
                       ? kPlanStart
                       : tree.ends[static_cast<size_t>(found - made_of_.begin())];
  }
}

void StepDetector::follow(const Plan& plan) {
  made_of_.clear();
  for (Kind& kind : kinds_) kind.ends_at = kPlanStart;
  note_leader(plan);
}

void StepDetector::note_leader(const Plan& plan) {
  const std::vector<PlanBatch>& batches = plan.batches;
  const bool has_leader = std::any_of(batches.begin(), batches.end(), [&](const PlanBatch& batch) {
    return std::any_of(batch.tensors.begin(), batch.tensors.end(),
                       [&](const DescriptorPtr& tensor) { return leads(*tensor); });
  });
  if (!has_leader) leader_ = batches.front().tensors.front();
}

void StepDetector::on_locked() {
  reported_.clear();
  begin_step(false);
}

void StepDetector::on_unlocked(const Unlocked& unlocked, TicksMs now) {
  uint64_t rounds = 0;
  for (const auto& [place, times] : unlocked.ended) rounds += times;
  if (!unlocked.is_to_be_remade) learn_from(unlocked, rounds);
  steady_ = 0;
  // The unfinished step goes on as if all of it had been decreed until now, so that its kind is
  // seen whole.
  Seq seq{0};
  for (const std::vector<DescriptorPtr>& batch : unlocked.round) {
    for (const DescriptorPtr& tensor : batch) on_reported(tensor->name, now);
    on_decreed(seq, batch, false);
    on_ended(seq);
  }
  is_within_group_ = unlocked.is_within_group;
}

void StepDetector::learn_from(const Unlocked& unlocked, uint64_t rounds) {
  kinds_.remove_if([&](const Kind& kind) {
    return rounds >= kRoundsToForget && kind.ends_at != kPlanStart &&
           !unlocked.ended.contains(kind.ends_at);
  });
  // A plan that did not fit is not made again: only kinds that are seen from now on count, and what
  // ended the plan.
  for (Kind& kind : kinds_) {
    if (rounds >= kRoundsOfALockThatHeld) break;
    kind.seen = 0;
    kind.ended_a_lock = false;
  }
  after_a_lock_ = kStepsThatEndALock;
}

}  // namespace rueda::core
