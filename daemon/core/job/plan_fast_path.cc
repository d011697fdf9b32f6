#include "daemon/core/job/plan_fast_path.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
PlanFastPath::PlanFastPath(const Plan& plan, size_t ranks) : ranks_(ranks) {
  for (const PlanBatch& planned : plan.batches) {
    Batch batch;
    batch.first = static_cast<uint32_t>(planned_.size());
    batch.tensors = static_cast<uint32_t>(planned.tensors.size());
    batch.missing = batch.tensors * static_cast<uint32_t>(ranks);
    batch.by_rank.resize(ranks);
    batch.after = planned.after;
    batch.ends = planned.ends;
    std::vector<LaunchTensor> to_launch;
    for (const DescriptorPtr& tensor : planned.tensors) {
      const auto place = static_cast<uint32_t>(planned_.size());
      const auto [it, is_new] = by_name_.emplace(tensor->name, place);
      if (!is_new) it->second = kNoPlace;
      planned_.push_back(tensor);
      to_launch.push_back({tensor, tensor->elements()});
      batch_of_.push_back(static_cast<uint32_t>(batches_.size()));
    }
    batch.to_launch = std::make_shared<const std::vector<LaunchTensor>>(std::move(to_launch));
    batches_.push_back(std::move(batch));
  }
  known_.resize(planned_.size() * ranks);
  rows_.resize(planned_.size() * ranks);
  memory_.resize(ranks);
  for (RankMemory& memory : memory_) {
    memory.after.resize(planned_.size());
    for (uint32_t place = 0; place + 1 < planned_.size(); ++place) memory.after[place] = place + 1;
    memory.last = static_cast<uint32_t>(planned_.size()) - 1;
  }
}

bool PlanFastPath::take(TicksMs now, LocalRank rank, Ticket ticket,
                        const DescriptorPtr& descriptor) {
  const uint32_t place = find(rank, descriptor);
  if (place == kNoPlace) return false;
  Batch& batch = batches_[batch_of_[place]];
  Row& row = rows_[row_index(place, rank)];
  if (row.round == batch.round) return false;
  row = {ticket, now, batch.round};
  uint32_t& of_rank = batch.by_rank[static_cast<size_t>(rank.value)];
  if (batch.missing == batch.tensors * ranks_) batch.since_ms = now;
  ++of_rank;
  if (--batch.missing == 0) batch.ready_moment = ++moment_;
  ++submissions_;
  return true;
}

uint32_t PlanFastPath::find(LocalRank rank, const DescriptorPtr& descriptor) {
  RankMemory& memory = memory_[static_cast<size_t>(rank.value)];
  uint32_t& guess = memory.after[memory.last];
  DescriptorPtr* known = &known_[known_index(guess, rank)];
  if (*known != descriptor) {
    uint32_t place = 0;
    if (const auto it = memory.places.find(descriptor.get()); it != memory.places.end()) {
      place = it->second;
    } else {
      const auto named = by_name_.find(descriptor->name);
      if (named == by_name_.end() || named->second == kNoPlace ||
          (*planned_[named->second] != *descriptor && !RUEDA_MUTANT(kFastByName))) {
        return kNoPlace;
      }
      place = named->second;
      known = &known_[known_index(place, rank)];
      memory.places.erase(known->get());
      memory.places.emplace(descriptor.get(), place);
      *known = descriptor;
    }
    guess = place;
  }
  memory.last = guess;
  return guess;
}

std::optional<uint32_t> PlanFastPath::first_ready(std::span<const uint32_t> batches) const {
  std::optional<uint32_t> first;
  for (const uint32_t index : batches) {
    const Batch& batch = batches_[index];
    if (batch.missing > 0 || batch.is_under_way) continue;
    if (!first || batch.ready_moment < batches_[*first].ready_moment) first = index;
  }
  return first;
}

bool PlanFastPath::repeats(PlanPlace at) const {
  if (at == kPlanStart || batches_[static_cast<size_t>(at)].ends) return false;
  for (PlanPlace place = at; place != kPlanStart;) {
    const Batch& batch = batches_[static_cast<size_t>(place)];
    if (is_gathered(batch)) return true;
    place = batch.after;
  }
  return false;
}

bool PlanFastPath::gathers(LocalRank rank, Ticket ticket) const {
  for (uint32_t place = 0; place < batch_of_.size(); ++place) {
    const Row& row = rows_[row_index(place, rank)];
    const Batch& batch = batches_[batch_of_[place]];
    if (row.round == batch.round && row.ticket == ticket) return !batch.is_under_way;
  }
  return false;
}

void PlanFastPath::end(uint32_t index) {
  Batch& batch = batches_[index];
  RUEDA_CHECK(batch.is_under_way);
  batch.is_under_way = false;
  remove(batch);
}

void PlanFastPath::remove(Batch& batch) {
  const auto all = static_cast<uint32_t>(batch.tensors * ranks_);
  submissions_ -= all - batch.missing;
  batch.missing = all;
  std::fill(batch.by_rank.begin(), batch.by_rank.end(), 0);
  ++batch.round;
}

LocalSubmission PlanFastPath::submission(uint32_t batch, size_t tensor, LocalRank rank) const {
  const Row& row = rows_[row_index(place_of(batch, tensor), rank)];
  return {rank, row.ticket, descriptor(batch, tensor, rank), row.submitted_ms, {}};
}

std::vector<LocalSubmission> PlanFastPath::take_gathered() {
  std::vector<LocalSubmission> gathered;
  for (size_t local = 0; local < ranks_; ++local) {
    const LocalRank rank{static_cast<int32_t>(local)};
    const auto first = static_cast<ptrdiff_t>(gathered.size());
    for (uint32_t index = 0; index < batches_.size(); ++index) {
      const Batch& batch = batches_[index];
      for (size_t tensor = 0; !batch.is_under_way && tensor < batch.tensors; ++tensor) {
        if (rows_[row_index(place_of(index, tensor), rank)].round != batch.round) continue;
        gathered.push_back(submission(index, tensor, rank));
      }
    }
    std::sort(
        gathered.begin() + first, gathered.end(),
        [](const LocalSubmission& a, const LocalSubmission& b) { return a.ticket < b.ticket; });
  }
  for (Batch& batch : batches_) {
    if (!batch.is_under_way) remove(batch);
  }
  return gathered;
}

size_t PlanFastPath::submissions_of(LocalRank rank) const {
  size_t count = 0;
  for (const Batch& batch : batches_) count += batch.by_rank[static_cast<size_t>(rank.value)];
  return count;
}

std::optional<TicksMs> PlanFastPath::since() const {
  std::optional<TicksMs> oldest;
  for (const Batch& batch : batches_) {
    if (batch.missing == batch.tensors * ranks_) continue;
    if (!oldest || batch.since_ms < *oldest) oldest = batch.since_ms;
  }
  return oldest;
}

}  // namespace rueda::core
