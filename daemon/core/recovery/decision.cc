#include "daemon/core/recovery/decision.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace rueda::core {
namespace {

using Reports = std::vector<std::pair<NodeIndex, const Report*>>;  // The reports are of one track.

const Holding& holding_of(const Report& report, Seq seq) {
  return report.operations[seq.value - report.freed.value - 1];
}

// The holdings of one operation by all those that go on.
class JointHolding {
 public:
  JointHolding(const Reports& reports, Seq seq) {
    for (const auto& [node, report] : reports) {
      if (seq <= report->freed) {
        delivered_ = true;
        all_partial_ = false;
        continue;
      }
      const Holding& holding = holding_of(*report, seq);
      delivered_ |= holding.delivered;
      all_partial_ &= holding.partial;
      if (holders_.size() < holding.chunks.size()) holders_.resize(holding.chunks.size());
      for (size_t chunk = 0; chunk < holding.chunks.size(); ++chunk) {
        if (holding.chunks[chunk]) holders_[chunk].push_back(node);
      }
    }
  }

  std::optional<OperationVerdict> verdict(Track track) const {
    const bool covered =
        !holders_.empty() && std::none_of(holders_.begin(), holders_.end(),
                                          [](const auto& holders) { return holders.empty(); });
    if (covered) return OperationVerdict{Verdict::kComplete, servers()};
    if (delivered_) return std::nullopt;
    // Only the root of a broadcast has something to begin again with, and that is all of F.
    if (track == Track::kDecreed) return OperationVerdict{Verdict::kVoid, {}};
    if (all_partial_) return OperationVerdict{Verdict::kRedo, {}};
    return std::nullopt;
  }

 private:
  // Returns, by chunk, who serves it. The chunks are spread over the nodes that have them, so that
  // no node serves everything.
  std::vector<NodeIndex> servers() const {
    std::vector<NodeIndex> servers;
    for (size_t chunk = 0; chunk < holders_.size(); ++chunk) {
      servers.push_back(holders_[chunk][chunk % holders_[chunk].size()]);
    }
    return servers;
  }

  std::vector<std::vector<NodeIndex>> holders_;  // The index is the chunk.
  bool delivered_ = false;
  bool all_partial_ = true;
};

// Returns whether all have launched the same operation under this number, or were told of it by the
// decision before.
bool launched_by_all(const Reports& reports, Seq seq) {
  std::optional<LaunchName> name;
  bool all_have_freed = true;
  for (const auto& [node, report] : reports) {
    if (seq <= report->freed) continue;
    if (seq.value > report->freed.value + report->operations.size()) return false;
    all_have_freed = false;
    const Holding& holding = holding_of(*report, seq);
    // The node was told of the operation, and has not launched it.
    if (holding.chunks.empty()) continue;
    if (name && *name != holding.name) return false;
    name = holding.name;
  }
  return !all_have_freed;
}

void decide_track(Track track, const Reports& reports, Decision& decision) {
  TrackDecision& decided = decision.tracks[index_of(track)];
  Seq seq = reports.front().second->freed;
  for (const auto& [node, report] : reports) seq = std::min(seq, report->freed);
  decided.first = Seq{seq.value + 1};
  for (seq = decided.first; !decision.ends_job && launched_by_all(reports, seq); ++seq.value) {
    if (auto verdict = JointHolding(reports, seq).verdict(track)) {
      decided.operations.push_back(std::move(*verdict));
    } else {
      decision.irrecoverable = seq;
      decision.ends_job = true;
    }
  }
  // An operation that ended as an error where it was decreed must end so everywhere.
  std::set<std::pair<Seq, uint32_t>> seen;
  for (const auto& [node, report] : reports) {
    seq = std::max(decided.returned(), Seq{report->freed.value + 1});
    for (; seq.value <= report->freed.value + report->operations.size(); ++seq.value) {
      const Holding& holding = holding_of(*report, seq);
      if (!holding.refused || !seen.emplace(seq, holding.name.generation).second) continue;
      decision.refused.push_back({seq, holding.name.generation, holding.refused});
    }
  }
}

}  // namespace

Decision decide(Epoch next, const std::vector<NodeIndex>& before,
                const std::map<NodeIndex, NodeReport>& reports, DeathPolicy policy) {
  Decision decision;
  decision.epoch = next;
  ByTrack<Reports> by_track;
  std::set<Rank> left;
  for (const NodeIndex node : before) {
    const auto it = reports.find(node);
    if (it == reports.end() || it->second.withdraws) {
      decision.lost.push_back(node);
      if (it != reports.end()) decision.withdrew.push_back(node);
      continue;
    }
    decision.members.push_back(node);
    left.insert(it->second.left.begin(), it->second.left.end());
    for (size_t track = 0; track < kTracks; ++track) {
      by_track[track].emplace_back(node, &it->second.tracks[track]);
    }
  }
  for (const auto& [node, report] : reports) {
    if (decision.reason.empty()) decision.reason = report.reason;
  }
  decision.left.assign(left.begin(), left.end());
  decision.ends_job = policy == DeathPolicy::kFail || decision.members.empty();
  if (decision.ends_job) return decision;
  for (const Track track : {Track::kLockable, Track::kDecreed}) {
    decide_track(track, by_track[index_of(track)], decision);
  }
  return decision;
}

}  // namespace rueda::core
