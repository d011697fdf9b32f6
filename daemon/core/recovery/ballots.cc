#include "daemon/core/recovery/ballots.h"

#include <utility>

namespace rueda::core {
namespace {

void hash_ballot(Ballot ballot, Fnv1a& hash) {
  hash.add(ballot.round).add(static_cast<uint64_t>(ballot.node.value));
}

void hash_pointer(const DecisionPtr& decision, Fnv1a& hash) {
  hash.add(uint64_t{decision != nullptr});
  if (decision) hash_decision(*decision, hash);
}

}  // namespace

bool Acceptor::promise(Ballot ballot) {
  if (ballot < promised_) return false;
  promised_ = ballot;
  return true;
}

bool Acceptor::accept(Ballot ballot, DecisionPtr decision) {
  if (!promise(ballot)) return false;
  accepted_in_ = ballot;
  accepted_ = std::move(decision);
  return true;
}

void Acceptor::hash(Fnv1a& hash) const {
  hash_ballot(promised_, hash);
  hash_ballot(accepted_in_, hash);
  hash_pointer(accepted_, hash);
}

void Proposer::prepare(Ballot ballot) {
  *this = Proposer();
  phase_ = Phase::kPreparing;
  ballot_ = ballot;
}

void Proposer::propose(DecisionPtr decision) {
  phase_ = Phase::kAccepting;
  proposal_ = std::move(decision);
}

void Proposer::on_promise(NodeIndex from, const Promise& promise) {
  if (phase_ != Phase::kPreparing || promise.ballot != ballot_) return;
  reports_[from] = promise.report;
  if (promise.accepted && promise.accepted_in > bound_in_) {
    bound_in_ = promise.accepted_in;
    bound_to_ = promise.accepted;
  }
}

void Proposer::on_accepted(NodeIndex from, Ballot ballot) {
  if (phase_ == Phase::kAccepting && ballot == ballot_) accepted_by_.insert(from);
}

void Proposer::hash(Fnv1a& hash) const {
  hash.add(static_cast<uint64_t>(phase_));
  if (phase_ == Phase::kIdle) return;
  hash_ballot(ballot_, hash);
  hash_ballot(bound_in_, hash);
  hash_pointer(bound_to_, hash);
  hash_pointer(proposal_, hash);
  // A node's report does not change once the node is sealed, so it is enough to hash who has
  // reported.
  for (const auto& [node, report] : reports_) hash.add(static_cast<uint64_t>(node.value));
  hash.add(UINT64_MAX);
  for (const NodeIndex node : accepted_by_) hash.add(static_cast<uint64_t>(node.value));
}

void hash_decision(const Decision& decision, Fnv1a& hash) {
  hash.add(decision.epoch.value).add(decision.members.size());
  for (const NodeIndex node : decision.members) hash.add(static_cast<uint64_t>(node.value));
  for (const NodeIndex node : decision.lost) hash.add(static_cast<uint64_t>(node.value));
  for (const NodeIndex node : decision.withdrew) hash.add(static_cast<uint64_t>(node.value));
  hash.add(uint64_t{decision.ends_job}).add(decision.irrecoverable.value);
  for (const TrackDecision& track : decision.tracks) {
    hash.add(track.first.value);
    for (const OperationVerdict& operation : track.operations) {
      hash.add(static_cast<uint64_t>(operation.verdict));
      for (const NodeIndex node : operation.servers) hash.add(static_cast<uint64_t>(node.value));
      hash.add(UINT64_MAX);
    }
  }
  for (const RefusedAt& refused : decision.refused) {
    hash.add(refused.seq.value).add(uint64_t{refused.generation});
  }
  for (const Rank rank : decision.left) hash.add(static_cast<uint64_t>(rank.value));
}

}  // namespace rueda::core
