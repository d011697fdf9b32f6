#include "daemon/core/recovery/ballots.h"

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

void hash_acceptor(const Acceptor& acceptor, Fnv1a& hash) {
  hash_ballot(acceptor.promised(), hash);
  hash_ballot(acceptor.accepted_in(), hash);
  hash_pointer(acceptor.accepted(), hash);
}

void hash_proposer(const Proposer& proposer, Fnv1a& hash) {
  hash.add(static_cast<uint64_t>(proposer.phase()));
  if (proposer.phase() == Proposer::Phase::kIdle) return;
  hash_ballot(proposer.ballot(), hash);
  hash_ballot(proposer.bound_in(), hash);
  hash_pointer(proposer.bound_to(), hash);
  hash_pointer(proposer.proposal(), hash);
  // A node's report does not change once the node is sealed, so it is enough to hash who has
  // reported.
  for (const auto& [node, report] : proposer.reports()) {
    hash.add(static_cast<uint64_t>(node.value));
  }
  hash.add(UINT64_MAX);
  for (const NodeIndex node : proposer.accepted_by()) hash.add(static_cast<uint64_t>(node.value));
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
