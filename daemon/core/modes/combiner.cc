#include "daemon/core/modes/combiner.h"

#include <algorithm>

#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

bool is_lockable(const ReadyTensor& tensor) {
  return track_of(*tensor.descriptor) == Track::kLockable;
}

}  // namespace

bool Combiner::add(const std::vector<NodeIndex>& from, ReadyTensor tensor) {
  const auto it = entries_.try_emplace(tensor.descriptor->name).first;
  Entry& entry = it->second;
  const size_t before = entry.reported.size();
  entry.reported.insert(from.begin(), from.end());
  if (entry.reported.size() != before + from.size()) return false;
  entry.is_lockable = is_lockable(tensor);
  const bool joins = tensor.descriptor->kind == CollectiveKind::kJoin;
  if (joins) {
    for (const NodeIndex node : from) joined_[node] = tensor.rank;
  }
  entry.parts.emplace_back(from, std::move(tensor));
  if (is_stopped_) {
    pass_on(entry);
    return true;
  }
  if (joins) {  // Tensors that waited for the join go up before it.
    std::erase_if(entries_,
                  [&](const auto& of) { return &of.second != &entry && goes_up(of.second); });
  }
  if (goes_up(entry)) entries_.erase(it);
  return true;
}

// A node that has joined has reported all that it ever will, until the join has ended.
size_t Combiner::missing(const Entry& entry) const {
  const auto absent = std::count_if(joined_.begin(), joined_.end(), [&](const auto& joined) {
    return !entry.reported.contains(joined.first) || RUEDA_MUTANT(kJoinedNodeCountedTwice);
  });
  return nodes_ - std::min(nodes_, entry.reported.size() + static_cast<size_t>(absent));
}

bool Combiner::goes_up(const Entry& entry) {
  if (missing(entry) > (RUEDA_MUTANT(kReportedBeforeAllBelow) ? 1u : 0u)) return false;
  reports_.emplace_back(std::nullopt, combine(entry));
  return true;
}

void Combiner::stop() {
  is_stopped_ = true;
  for (auto& [name, entry] : entries_) {
    if (name != kJoinName) pass_on(entry);
  }
  const auto join = entries_.find(kJoinName);
  if (join != entries_.end()) pass_on(join->second);
}

void Combiner::pass_on(Entry& entry) {
  for (const auto& [from, tensor] : std::exchange(entry.parts, {})) {
    for (const NodeIndex node : from) reports_.emplace_back(node, tensor);
  }
}

ReadyTensor Combiner::combine(const Entry& entry) const {
  ReadyTensor all = entry.parts.front().second;
  for (const auto& [from, tensor] : entry.parts) {
    if (all.mismatch.empty()) all.mismatch = tensor.mismatch;
    if (all.mismatch.empty() && all.descriptor != tensor.descriptor &&
        *all.descriptor != *tensor.descriptor) {
      all.mismatch = describe_mismatch(*all.descriptor, all.rank, *tensor.descriptor, tensor.rank);
    }
    if (tensor.rank < all.rank) {
      all.descriptor = tensor.descriptor;
      all.rank = tensor.rank;
    }
    if (tensor.absent.value >= 0) all.absent = tensor.absent;
  }
  for (const auto& [node, rank] : joined_) {
    if (!entry.reported.contains(node)) all.absent = rank;
  }
  if (all.descriptor->kind == CollectiveKind::kJoin) all.rank = entry.parts.back().second.rank;
  return all;
}

void Combiner::forget_lockable() {
  std::erase_if(reports_, [](const TensorReport& report) { return is_lockable(report.second); });
  std::erase_if(entries_, [](const auto& entry) { return entry.second.is_lockable; });
  joined_.clear();
}

void Combiner::forget(const std::string& tensor) {
  entries_.erase(tensor);
  if (tensor == kJoinName) joined_.clear();
}

}  // namespace rueda::core
