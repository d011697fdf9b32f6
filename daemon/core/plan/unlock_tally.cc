#include "daemon/core/plan/unlock_tally.h"

#include <algorithm>
#include <optional>

#include "daemon/base/check.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

// Returns the first operation of which the node has said which batch it was.
uint64_t first_told(const Frozen& frozen) {
  return frozen.launched.value + 1 - frozen.walked.size();
}

// Returns the batch that the operation was on the node, or none if the node has not said.
std::optional<uint32_t> batch_of(const Frozen& frozen, uint64_t seq) {
  const uint64_t place = seq - first_told(frozen);
  if (place >= frozen.walked.size()) return std::nullopt;
  return frozen.walked[place];
}

}  // namespace

Seq UnlockTally::first_not_common(Seq lock_first) const {
  RUEDA_CHECK(!nodes_.empty());
  const auto by_seq = [](const auto& a, const auto& b) {
    return a.second.launched < b.second.launched;
  };
  const auto bound = RUEDA_MUTANT(kResumeFromMaximum)
                         ? std::max_element(nodes_.begin(), nodes_.end(), by_seq)
                         : std::min_element(nodes_.begin(), nodes_.end(), by_seq);
  const uint64_t end = bound->second.launched.value + 1;
  const bool has_alternatives = std::any_of(
      nodes_.begin(), nodes_.end(), [](const auto& node) { return !node.second.walked.empty(); });
  if (!has_alternatives || RUEDA_MUTANT(kDivergenceIgnored)) return Seq{end};
  uint64_t seq = lock_first.value;
  for (const auto& [node, frozen] : nodes_) seq = std::max(seq, first_told(frozen));
  const auto is_common = [&] {
    const std::optional<uint32_t> batch = batch_of(nodes_.begin()->second, seq);
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& node) { return batch_of(node.second, seq) == batch; });
  };
  while (seq < end && is_common()) ++seq;
  return Seq{std::min(seq, end)};
}

}  // namespace rueda::core
