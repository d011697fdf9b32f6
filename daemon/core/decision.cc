#include "daemon/core/decision.h"

#include <algorithm>
#include <optional>

namespace rueda::core {
namespace {

// One operation as those that go on hold it.
class JointHolding {
 public:
  JointHolding(const std::map<NodeIndex, Report>& reports, Seq seq) {
    for (const auto& [node, report] : reports) {
      if (seq <= report.freed) {
        delivered_ = true;
        all_partial_ = false;
        continue;
      }
      const Holding& holding = report.operations[seq.value - report.freed.value - 1];
      delivered_ |= holding.delivered;
      all_partial_ &= holding.partial;
      if (holders_.size() < holding.chunks.size()) holders_.resize(holding.chunks.size());
      for (size_t chunk = 0; chunk < holding.chunks.size(); ++chunk) {
        if (holding.chunks[chunk]) holders_[chunk].push_back(node);
      }
    }
  }

  std::optional<OperationVerdict> verdict() const {
    const bool covered =
        !holders_.empty() && std::none_of(holders_.begin(), holders_.end(),
                                          [](const auto& holders) { return holders.empty(); });
    if (covered) return OperationVerdict{Verdict::kComplete, servers()};
    if (all_partial_ && !delivered_) return OperationVerdict{Verdict::kRedo, {}};
    return std::nullopt;
  }

 private:
  // Spread over those that have a chunk, so that no node serves everything.
  std::vector<NodeIndex> servers() const {
    std::vector<NodeIndex> servers;
    for (size_t chunk = 0; chunk < holders_.size(); ++chunk) {
      servers.push_back(holders_[chunk][chunk % holders_[chunk].size()]);
    }
    return servers;
  }

  std::vector<std::vector<NodeIndex>> holders_;  // by chunk
  bool delivered_ = false;
  bool all_partial_ = true;
};

}  // namespace

Decision decide(Epoch next, const std::vector<NodeIndex>& before,
                const std::map<NodeIndex, Report>& reports, DeathPolicy policy) {
  Decision decision;
  decision.epoch = next;
  for (const NodeIndex node : before) {
    (reports.contains(node) ? decision.members : decision.lost).push_back(node);
  }
  uint64_t first = UINT64_MAX;
  uint64_t end = UINT64_MAX;  // launched by all up to before here
  for (const auto& [node, report] : reports) {
    first = std::min(first, report.freed.value + 1);
    end = std::min(end, report.freed.value + report.operations.size() + 1);
  }
  decision.first = Seq{first};
  decision.ends_job = policy == DeathPolicy::kFail;
  for (uint64_t seq = first; !decision.ends_job && seq < end; ++seq) {
    if (auto verdict = JointHolding(reports, Seq{seq}).verdict()) {
      decision.operations.push_back(std::move(*verdict));
    } else {
      decision.irrecoverable = Seq{seq};
      decision.ends_job = true;
    }
  }
  return decision;
}

void extend_to_last_launched(std::map<NodeIndex, Report>& reports) {
  uint64_t last = 0;
  for (const auto& [node, report] : reports) {
    last = std::max(last, report.freed.value + report.operations.size());
  }
  for (auto& [node, report] : reports) {
    report.operations.resize(last - report.freed.value, Holding{{}, true, false});
  }
}

}  // namespace rueda::core
