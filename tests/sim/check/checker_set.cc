#include "tests/sim/check/checker_set.h"

#include <algorithm>

namespace rueda::sim {

CheckerSet::CheckerSet(const RunSetup& setup) {
  for (uint32_t id = 0; id <= setup.sets.size(); ++id) {
    sets_.push_back(std::make_unique<Set>(setup, id));
  }
}

Rank CheckerSet::rank_of(NodeIndex node, LocalRank local) const {
  return sets_.front()->layout.node(node).ranks[static_cast<size_t>(local.value)];
}

LocalRank CheckerSet::place_in(const Set& set, NodeIndex node, Rank rank) {
  const std::vector<Rank>& ranks = set.layout.node(node).ranks;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return LocalRank{static_cast<int32_t>(at - ranks.begin())};
}

void CheckerSet::before_step(NodeIndex node, const core::JobCore& core, const core::Event& event) {
  if (sets_.size() == 1) return sets_.front()->checkers.before_step(node, core, event);
  for (const auto& set : sets_) {
    core::Event seen = event;
    if (auto* submitted = std::get_if<core::Submitted>(&seen)) {
      core::LocalSubmission& submission = submitted->submission;
      const core::TensorDescriptor& tensor = *submission.descriptor;
      if (set->id != (moves_data(tensor.kind) ? tensor.process_set : 0)) seen = core::TimePassed{};
      if (std::holds_alternative<core::Submitted>(seen)) {
        submission.rank = place_in(*set, node, rank_of(node, submission.rank));
      }
    } else if (const auto* done = std::get_if<core::OperationDone>(&seen)) {
      if (done->process_set != set->id) seen = core::TimePassed{};
    }
    set->checkers.before_step(node, core, seen);
    set->checkers.set_joined(sets_.front()->checkers.joined());
  }
}

const CheckerSet::Set& CheckerSet::owner_of(Rank rank, Ticket ticket) const {
  for (const auto& set : sets_) {
    if (set->checkers.is_open(rank, ticket)) return *set;
  }
  return *sets_.front();
}

core::Output CheckerSet::part_of(const Set& set, NodeIndex node, const core::Output& output) const {
  core::Output part;
  part.started = output.started;
  part.finished = output.finished;
  part.failed = output.failed;
  for (const auto& send : output.sends) {
    if (send.second.process_set == set.id) part.sends.push_back(send);
  }
  for (const core::Cancel& cancel : output.cancels) {
    if (cancel.process_set == set.id) part.cancels.push_back(cancel);
  }
  for (const core::Launch& launch : output.launches) {
    if (launch.process_set == set.id) part.launches.push_back(launch);
  }
  for (core::Delivery delivery : output.deliveries) {
    const Rank rank = rank_of(node, delivery.rank);
    if (&owner_of(rank, delivery.ticket) != &set) continue;
    delivery.rank = place_in(set, node, rank);
    part.deliveries.push_back(std::move(delivery));
  }
  return part;
}

void CheckerSet::after_step(NodeIndex node, const core::JobCore& core, const core::Output& output) {
  if (sets_.size() == 1) return sets_.front()->checkers.after_step(node, core, output);
  // The owner of each delivery is found before any checker has seen it.
  std::vector<core::Output> parts;
  for (const auto& set : sets_) parts.push_back(part_of(*set, node, output));
  for (size_t i = 0; i < sets_.size(); ++i) sets_[i]->checkers.after_step(node, core, parts[i]);
}

void CheckerSet::on_node_died(NodeIndex node) {
  for (const auto& set : sets_) set->checkers.on_node_died(node);
}

void CheckerSet::on_rank_died(Rank rank) {
  for (const auto& set : sets_) set->checkers.on_rank_died(rank);
}

void CheckerSet::at_end() {
  for (const auto& set : sets_) set->checkers.at_end();
}

std::string CheckerSet::violation() const {
  for (const auto& set : sets_) {
    if (!set->checkers.violation().empty()) return set->checkers.violation();
  }
  return {};
}

bool CheckerSet::anything_open() const {
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const auto& set) { return set->checkers.anything_open(); });
}

uint64_t CheckerSet::sum(uint64_t (Checkers::*count)() const) const {
  uint64_t total = 0;
  for (const auto& set : sets_) total += (set->checkers.*count)();
  return total;
}

}  // namespace rueda::sim
