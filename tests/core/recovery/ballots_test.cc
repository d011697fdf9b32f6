#include "daemon/core/recovery/ballots.h"

#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

DecisionPtr decision_with(NodeIndex member) {
  Decision decision;
  decision.members = {member};
  return std::make_shared<const Decision>(decision);
}

TEST(Acceptor, PromisesOnlyUpwards) {
  Acceptor acceptor;
  EXPECT_TRUE(acceptor.promise({1, n2}));
  EXPECT_TRUE(acceptor.promise({1, n2})) << "the same again";
  EXPECT_FALSE(acceptor.promise({1, n1})) << "of one round the higher node's is above";
  EXPECT_TRUE(acceptor.promise({2, n0}));
  EXPECT_EQ(acceptor.promised(), (Ballot{2, n0}));
}

TEST(Acceptor, AcceptsNothingBelowItsPromise) {
  Acceptor acceptor;
  EXPECT_TRUE(acceptor.promise({2, n0}));
  EXPECT_FALSE(acceptor.accept({1, n2}, decision_with(n2)));
  EXPECT_EQ(acceptor.accepted(), nullptr);
  EXPECT_TRUE(acceptor.accept({2, n0}, decision_with(n0)));
  EXPECT_TRUE(acceptor.accept({3, n1}, decision_with(n1))) << "without having been asked before";
  EXPECT_EQ(acceptor.accepted_in(), (Ballot{3, n1}));
  EXPECT_FALSE(acceptor.promise({2, n2}));
}

TEST(Proposer, IsBoundToTheHighestBallotThatWasAccepted) {
  Proposer proposer;
  proposer.prepare({5, n0});
  proposer.on_promise(n0, {{5, n0}, {}, nullptr, {}});
  EXPECT_EQ(proposer.bound_to(), nullptr);
  const DecisionPtr later = decision_with(n1);
  proposer.on_promise(n1, {{5, n0}, {4, n1}, later, {}});
  proposer.on_promise(n2, {{5, n0}, {3, n2}, decision_with(n2), {}});
  EXPECT_EQ(proposer.bound_to(), later);
}

TEST(Proposer, CountsVotesOfItsBallotAndPhaseAlone) {
  Proposer proposer;
  proposer.on_promise(n1, {{1, n0}, {}, nullptr, {}});
  EXPECT_TRUE(proposer.reports().empty()) << "idle";
  proposer.prepare({1, n0});
  proposer.on_promise(n1, {{2, n1}, {}, nullptr, {}});
  EXPECT_FALSE(proposer.has_vote(n1));
  proposer.on_accepted(n1, {1, n0});
  proposer.on_promise(n2, {{1, n0}, {}, nullptr, {}});
  EXPECT_TRUE(proposer.has_vote(n2));
  proposer.propose(decision_with(n0));
  EXPECT_FALSE(proposer.has_vote(n1)) << "that vote came too early to be one";
  EXPECT_FALSE(proposer.has_vote(n2)) << "a promise is no acceptance";
  proposer.on_accepted(n2, {1, n0});
  EXPECT_TRUE(proposer.has_vote(n2));
}

TEST(Proposer, ANewBallotStartsFromNothing) {
  Proposer proposer;
  proposer.prepare({1, n0});
  proposer.on_promise(n1, {{1, n0}, {1, n1}, decision_with(n1), {}});
  proposer.give_up();
  proposer.prepare({2, n0});
  EXPECT_EQ(proposer.bound_to(), nullptr);
  EXPECT_TRUE(proposer.reports().empty());
}

}  // namespace
}  // namespace rueda::core
