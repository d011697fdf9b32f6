#include "daemon/core/combiner.h"

#include "daemon/core/mutants.h"

namespace rueda::core {
namespace {

bool is_lockable(const ReadyTensor& tensor) {
  return track_of(tensor.descriptor->kind) == Track::kLockable;
}

}  // namespace

bool Combiner::add(const std::vector<NodeIndex>& from, ReadyTensor tensor) {
  const auto it = entries_.try_emplace(tensor.descriptor->name).first;
  Entry& entry = it->second;
  const size_t before = entry.reported.size();
  entry.reported.insert(from.begin(), from.end());
  if (entry.reported.size() != before + from.size()) return false;
  entry.is_lockable = is_lockable(tensor);
  entry.parts.emplace_back(from, std::move(tensor));
  if (is_stopped_ || entry.is_passed_on) {
    pass_on(entry);
    return true;
  }
  const size_t missing = nodes_ - entry.reported.size();
  if (missing == 0 || (RUEDA_MUTANT(kReportedBeforeAllBelow) && missing == 1)) {
    reports_.emplace_back(std::nullopt, combine(entry));
    entries_.erase(it);
  }
  return true;
}

void Combiner::stop() {
  is_stopped_ = true;
  for (auto& [name, entry] : entries_) pass_on(entry);
}

void Combiner::pass_on(Entry& entry) {
  entry.is_passed_on = true;
  for (const auto& [from, tensor] : std::exchange(entry.parts, {})) {
    for (const NodeIndex node : from) reports_.emplace_back(node, tensor);
  }
}

ReadyTensor Combiner::combine(const Entry& entry) {
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
  }
  return all;
}

void Combiner::forget_lockable() {
  std::erase_if(reports_, [](const TensorReport& report) { return is_lockable(report.second); });
  std::erase_if(entries_, [](const auto& entry) { return entry.second.is_lockable; });
}

}  // namespace rueda::core
