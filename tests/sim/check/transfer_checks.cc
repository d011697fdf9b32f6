#include "tests/sim/check/transfer_checks.h"

#include <algorithm>
#include <iterator>

namespace rueda::sim {
namespace {

Rank rank_of(const core::LayoutNode& node, LocalRank local) {
  return node.ranks[static_cast<size_t>(local.value)];
}

}  // namespace

bool TransferChecks::before_step(const core::LayoutNode& node, const core::Event& event) {
  const auto* submitted = std::get_if<core::Submitted>(&event);
  if (!submitted || !is_transfer(submitted->submission.descriptor->kind)) return false;
  const core::LocalSubmission& submission = submitted->submission;
  open_.emplace(rank_of(node, submission.rank), submission.ticket.value);
  return true;
}

std::vector<core::Delivery> TransferChecks::take_deliveries(const core::LayoutNode& node,
                                                            core::Output& output) {
  std::vector<core::Delivery> taken;
  if (open_.empty()) return taken;
  std::vector<core::Delivery> others;
  for (core::Delivery& delivery : output.deliveries) {
    const bool is_ours = open_.erase({rank_of(node, delivery.rank), delivery.ticket.value}) > 0;
    (is_ours ? taken : others).push_back(std::move(delivery));
  }
  output.deliveries = std::move(others);
  return taken;
}

std::string TransferChecks::check_launches(const core::LayoutNode& node,
                                           const core::Output& output) const {
  for (const core::TransferLaunch& launch : output.transfers) {
    if (!launch.destination) continue;
    const Rank rank = rank_of(node, launch.destination->rank);
    if (open_.contains({rank, launch.destination->ticket.value})) continue;
    // Nobody hears of a dead rank's submissions, but its node may not know yet that it is dead.
    if (dead_.contains(rank)) continue;
    return "transfers: a message goes to a receive of rank " + std::to_string(rank.value) +
           " that has ended";
  }
  return {};
}

void TransferChecks::on_rank_died(Rank rank) {
  dead_.insert(rank);
  std::erase_if(open_, [&](const auto& item) { return item.first == rank; });
}

}  // namespace rueda::sim
