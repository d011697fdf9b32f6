// The two roles of single-decree Paxos (Lamport 2001, "Paxos Made Simple", section 2.2) for the one
// decision that ends an epoch (R4). They keep the promises; recovery.cc decides who sends what, and
// when. What they hold is lost with the process: a daemon that starts again is another member, and
// never votes in an epoch of before.
#pragma once

#include <map>
#include <set>

#include "daemon/base/hash.h"
#include "daemon/core/messages/recovery_messages.h"

namespace rueda::core {

class Acceptor {
 public:
  // Phase 1b. Returns false if a higher ballot has a promise.
  bool promise(Ballot ballot);
  // Phase 2b. Returns false if a higher ballot has a promise.
  bool accept(Ballot ballot, DecisionPtr decision);

  Ballot promised() const { return promised_; }
  Ballot accepted_in() const { return accepted_in_; }
  const DecisionPtr& accepted() const { return accepted_; }
  void hash(Fnv1a& hash) const;

 private:
  Ballot promised_;
  Ballot accepted_in_;
  DecisionPtr accepted_;
};

class Proposer {
 public:
  enum class Phase : uint8_t { kIdle, kPreparing, kAccepting };

  void prepare(Ballot ballot);
  void give_up() { phase_ = Phase::kIdle; }
  // Phase 2a, which begins once a quorum has promised.
  void propose(DecisionPtr decision);

  // These two take in a vote. A vote of another ballot or phase changes nothing.
  void on_promise(NodeIndex from, const Promise& promise);
  void on_accepted(NodeIndex from, Ballot ballot);

  Phase phase() const { return phase_; }
  Ballot ballot() const { return ballot_; }
  // Returns what was proposed, in the phase kAccepting.
  const DecisionPtr& proposal() const { return proposal_; }
  // Returns, in the phase kPreparing, who has promised, and what they hold.
  const std::map<NodeIndex, NodeReport>& reports() const { return reports_; }
  // Returns what may have been chosen already, and must be proposed again; null if the proposer is
  // free to choose.
  const DecisionPtr& bound_to() const { return bound_to_; }
  // Returns whether the node's vote of this phase has come.
  bool has_vote(NodeIndex node) const {
    return phase_ == Phase::kPreparing ? reports_.contains(node) : accepted_by_.contains(node);
  }
  void hash(Fnv1a& hash) const;

 private:
  Phase phase_ = Phase::kIdle;
  Ballot ballot_;
  std::map<NodeIndex, NodeReport> reports_;
  Ballot bound_in_;
  DecisionPtr bound_to_;
  DecisionPtr proposal_;
  std::set<NodeIndex> accepted_by_;
};

// Adds to `hash` what makes two decisions different.
void hash_decision(const Decision& decision, Fnv1a& hash);

}  // namespace rueda::core
