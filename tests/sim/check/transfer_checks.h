// Judges the transfers of a run: each ends once. That it meets the right one is seen by the sizes,
// which differ (world/training.h), and that none is lost by those who wait for it without end.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job/job.h"

namespace rueda::sim {

class TransferChecks {
 public:
  // Must be called before the node's core sees the event. Returns whether a transfer is submitted.
  bool before_step(const core::LayoutNode& node, const core::Event& event);
  // Takes the ends of transfers out of what the node's core has said to that. The end of one that
  // has ended before is left there, for the checkers of collectives to find.
  std::vector<core::Delivery> take_deliveries(const core::LayoutNode& node, core::Output& output);
  // Returns what is wrong with the transfers that the node launches, or "": a receive that has
  // ended gets no message. Must be called before take_deliveries().
  std::string check_launches(const core::LayoutNode& node, const core::Output& output) const;
  void on_rank_died(Rank rank);
  // Returns whether a rank that lives waits for a transfer.
  bool anything_open() const { return !open_.empty(); }

 private:
  std::set<std::pair<Rank, uint64_t>> open_;  // By rank and ticket.
  std::set<Rank> dead_;
};

}  // namespace rueda::sim
