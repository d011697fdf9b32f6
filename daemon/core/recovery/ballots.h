// The two roles of single-decree Paxos (Lamport 2001, "Paxos Made Simple", section 2.2), for the
// one decision that ends an epoch (R4) and for the one that begins a generation (generations.h).
// They keep the promises; their owner decides who sends what, and when. What they hold is lost with
// the process: a daemon that starts again is another member, and never votes in an epoch of before,
// unless somebody has kept them (GenerationVotes).
#pragma once

#include <map>
#include <set>
#include <utility>

#include "daemon/base/hash.h"
#include "daemon/core/messages/recovery_messages.h"

namespace rueda::core {

// `Value` is a pointer to what is decided; null means nothing.
template <class Value>
class BallotAcceptor {
 public:
  // Phase 1b. Returns false if a higher ballot has a promise.
  bool promise(Ballot ballot) {
    if (ballot < promised_) return false;
    promised_ = ballot;
    return true;
  }
  // Phase 2b. Returns false if a higher ballot has a promise.
  bool accept(Ballot ballot, Value value) {
    if (!promise(ballot)) return false;
    accepted_in_ = ballot;
    accepted_ = std::move(value);
    return true;
  }

  Ballot promised() const { return promised_; }
  Ballot accepted_in() const { return accepted_in_; }
  const Value& accepted() const { return accepted_; }

 private:
  Ballot promised_;
  Ballot accepted_in_;
  Value accepted_;
};

// `Report` is what a voter says beside its promise.
template <class Value, class Report>
class BallotProposer {
 public:
  enum class Phase : uint8_t { kIdle, kPreparing, kAccepting };

  void prepare(Ballot ballot) {
    *this = BallotProposer();
    phase_ = Phase::kPreparing;
    ballot_ = ballot;
  }
  void give_up() { phase_ = Phase::kIdle; }
  // Phase 2a, which begins once a quorum has promised.
  void propose(Value value) {
    phase_ = Phase::kAccepting;
    proposal_ = std::move(value);
  }

  // These two take in a vote. A vote of another ballot or phase changes nothing.
  void on_promise(NodeIndex from, const BallotPromise<Value, Report>& promise) {
    if (phase_ != Phase::kPreparing || promise.ballot != ballot_) return;
    reports_[from] = promise.report;
    if (promise.accepted && promise.accepted_in > bound_in_) {
      bound_in_ = promise.accepted_in;
      bound_to_ = promise.accepted;
    }
  }
  void on_accepted(NodeIndex from, Ballot ballot) {
    if (phase_ == Phase::kAccepting && ballot == ballot_) accepted_by_.insert(from);
  }

  Phase phase() const { return phase_; }
  Ballot ballot() const { return ballot_; }
  // Returns what was proposed, in the phase kAccepting.
  const Value& proposal() const { return proposal_; }
  // Returns, in the phase kPreparing, who has promised, and what they hold.
  const std::map<NodeIndex, Report>& reports() const { return reports_; }
  // Returns what may have been chosen already, and must be proposed again; null if the proposer is
  // free to choose.
  const Value& bound_to() const { return bound_to_; }
  Ballot bound_in() const { return bound_in_; }
  // Returns whether the node's vote of this phase has come.
  bool has_vote(NodeIndex node) const {
    return phase_ == Phase::kPreparing ? reports_.contains(node) : accepted_by_.contains(node);
  }
  const std::set<NodeIndex>& accepted_by() const { return accepted_by_; }

 private:
  Phase phase_ = Phase::kIdle;
  Ballot ballot_;
  std::map<NodeIndex, Report> reports_;
  Ballot bound_in_;
  Value bound_to_;
  Value proposal_;
  std::set<NodeIndex> accepted_by_;
};

// Those of recovery (recovery.h).
using Acceptor = BallotAcceptor<DecisionPtr>;
using Proposer = BallotProposer<DecisionPtr, NodeReport>;

// These add to `hash` what makes two decisions, acceptors or proposers different.
void hash_decision(const Decision& decision, Fnv1a& hash);
void hash_acceptor(const Acceptor& acceptor, Fnv1a& hash);
void hash_proposer(const Proposer& proposer, Fnv1a& hash);

}  // namespace rueda::core
