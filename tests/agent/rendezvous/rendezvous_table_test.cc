#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/rendezvous/rendezvous.h"

namespace rueda::agent {
namespace {

using testing::HasSubstr;

std::string launcher_of(int number) {
  return std::string(kLauncherBytes - 1, 'x') + static_cast<char>('0' + number);
}

Arrival node(int number, int nproc = 1) {
  const std::string name = "n" + std::to_string(number);
  return {number, 3, nproc, name, name + ":1", "id", launcher_of(number), false};
}

TEST(RendezvousTable, LaysOutByNodeNumberNotByArrival) {
  RendezvousTable table(3, "id");
  EXPECT_EQ(table.missing(), "0, 1, 2");
  EXPECT_TRUE(table.arrive(node(2, 1)).is_ok());
  EXPECT_TRUE(table.arrive(node(0, 2)).is_ok());
  EXPECT_EQ(table.missing(), "1");
  EXPECT_FALSE(table.is_complete());
  EXPECT_TRUE(table.arrive(node(1, 3)).is_ok());
  ASSERT_TRUE(table.is_complete());
  const auto nodes = table.lay_out();
  ASSERT_TRUE(nodes.is_ok());
  const std::vector<NodeLayout> expected{{"n0", "n0:1", {Rank(0), Rank(1)}},
                                         {"n1", "n1:1", {Rank(2), Rank(3), Rank(4)}},
                                         {"n2", "n2:1", {Rank(5)}}};
  EXPECT_EQ(nodes.value(), expected);
}

TEST(RendezvousTable, ForgetsWhoLeavesBeforeTheStart) {
  RendezvousTable table(3, "id");
  EXPECT_TRUE(table.arrive(node(1)).is_ok());
  table.depart(1);
  Arrival restarted = node(1);
  restarted.launcher = launcher_of(7);
  EXPECT_TRUE(table.arrive(restarted).is_ok());
}

class ElasticRendezvousTable : public ::testing::Test {
 protected:
  // One node is enough to begin; up to three may take part.
  explicit ElasticRendezvousTable(bool admits_late = true)
      : table_(3, "id", Meeting::kNodes, 1, admits_late) {
    EXPECT_TRUE(table_.arrive(elastic_node(0)).is_ok());
    EXPECT_TRUE(table_.is_complete());
    EXPECT_TRUE(table_.lay_out().is_ok());
  }
  static Arrival elastic_node(int number) {
    Arrival arrival = node(number);
    arrival.min_nodes = 1;
    arrival.incarnation = 10 + static_cast<uint64_t>(number);
    return arrival;
  }

  RendezvousTable table_;
};

TEST_F(ElasticRendezvousTable, ANodeMayComeWhenTheOthersHaveMet) {
  EXPECT_TRUE(table_.arrive(elastic_node(2)).is_ok());
  EXPECT_TRUE(table_.is_late(2));
  EXPECT_FALSE(table_.is_late(0));
  JobLayout late;
  table_.lay_out_late(2, late);
  ASSERT_EQ(late.nodes.size(), 1u);
  EXPECT_EQ(late.nodes[0], (NodeLayout{"n2", "n2:1", {Rank(2)}, 12}));
  EXPECT_EQ(late.contacts, std::vector<std::string>{"n0:1"});
  EXPECT_EQ(late.world_size(), 3);
  // Those who have met keep what they were told.
  EXPECT_EQ(table_.lay_out().value().size(), 1u);
}

TEST_F(ElasticRendezvousTable, ANumberIsItsLaunchersAsLongAsThatLives) {
  EXPECT_TRUE(table_.arrive(elastic_node(1)).is_ok());
  Arrival other = elastic_node(1);
  other.launcher = launcher_of(7);
  const Status taken = table_.arrive(other);
  EXPECT_TRUE(taken.is_retryable());
  EXPECT_THAT(taken.message(), HasSubstr("is still there: end it first"));
  EXPECT_TRUE(table_.arrive(elastic_node(1)).is_ok()) << "its answer was lost";
  table_.depart(1);
  EXPECT_TRUE(table_.arrive(other).is_ok());
}

TEST_F(ElasticRendezvousTable, WhoComesLateMustBeOfTheSameJob) {
  Arrival other = elastic_node(1);
  other.min_nodes = 2;
  EXPECT_THAT(table_.arrive(other).message(), HasSubstr("give all the same --nnodes and --min-np"));
  other = elastic_node(3);
  EXPECT_THAT(table_.arrive(other).message(), HasSubstr("--node-rank 3 is not one of 3 nodes"));
  other = elastic_node(1);
  other.node_id = "n0";
  EXPECT_THAT(table_.arrive(other).message(), HasSubstr("both use the daemon \"n0\""));
}

// It read behind the blocks of ranks when the first to come were not the first in number.
TEST(RendezvousTable, AnElasticJobBeginsWithWhicheverNodesCome) {
  RendezvousTable table(4, "id", Meeting::kNodes, 2, true);
  for (const int number : {0, 3}) {
    Arrival arrival = node(number);
    arrival.nnodes = 4;
    arrival.min_nodes = 2;
    EXPECT_TRUE(table.arrive(arrival).is_ok());
  }
  ASSERT_TRUE(table.is_complete());
  const std::vector<NodeLayout> expected{{"n0", "n0:1", {Rank(0)}}, {"n3", "n3:1", {Rank(1)}}};
  EXPECT_EQ(table.lay_out().value(), expected);
}

TEST(RendezvousTable, DaemonsHaveCertificatesIfAllOfThemAwaitOne) {
  for (const bool all_do : {true, false}) {
    RendezvousTable table(3, "id");
    for (const int number : {0, 1, 2}) {
      Arrival arrival = node(number);
      arrival.awaits_certificate = number != 1 || all_do;
      EXPECT_TRUE(table.arrive(arrival).is_ok());
    }
    EXPECT_TRUE(table.lay_out().is_ok());
    EXPECT_EQ(table.has_certificates(), all_do);
  }
}

TEST(RendezvousTable, WhoComesLateHasACertificateAsTheOthersHave) {
  for (const bool others_have : {true, false}) {
    RendezvousTable table(3, "id", Meeting::kNodes, 1, true);
    Arrival arrival = node(0);
    arrival.min_nodes = 1;
    arrival.awaits_certificate = others_have;
    EXPECT_TRUE(table.arrive(arrival).is_ok());
    EXPECT_TRUE(table.lay_out().is_ok());
    // A node with a daemon of its own cannot have one, and cannot link with those that do.
    Arrival own = node(1);
    own.min_nodes = 1;
    const Status status = table.arrive(own);
    EXPECT_EQ(status.is_ok(), !others_have);
    EXPECT_THAT(status.message(), HasSubstr(others_have ? "leave out --socket" : ""));
    Arrival awaiting = node(2);
    awaiting.min_nodes = 1;
    awaiting.awaits_certificate = true;
    EXPECT_TRUE(table.arrive(awaiting).is_ok());
    JobLayout late;
    table.lay_out_late(2, late);
    EXPECT_EQ(late.has_certificates, others_have);
  }
}

class ClosedRendezvousTable : public ElasticRendezvousTable {
 protected:
  ClosedRendezvousTable() : ElasticRendezvousTable(false) {}
};

TEST_F(ClosedRendezvousTable, WithoutASecretNobodyComesLate) {
  const Status refused = table_.arrive(elastic_node(1));
  EXPECT_TRUE(refused.is_retryable());
  EXPECT_THAT(refused.message(), HasSubstr("give all the same --rdzv-secret-file"));
}

TEST(RendezvousTable, KeepsStrangersAway) {
  RendezvousTable table(3, "id");
  EXPECT_TRUE(table.arrive(node(0)).is_ok());
  Arrival other_id = node(1);
  other_id.rdzv_id = "other";
  EXPECT_TRUE(table.arrive(other_id).is_retryable());

  Arrival other_size = node(1);
  other_size.nnodes = 4;
  const Status size_status = table.arrive(other_size);
  EXPECT_EQ(size_status.code(), Code::kInvalidArgument);
  EXPECT_THAT(size_status.message(), HasSubstr("--nnodes 4"));

  EXPECT_THAT(table.arrive(node(3)).message(), HasSubstr("--node-rank 3"));
  EXPECT_THAT(table.arrive(node(-1)).message(), HasSubstr("--node-rank -1"));

  Arrival twin = node(0);
  twin.control_address = "elsewhere:1";
  twin.launcher = launcher_of(7);
  EXPECT_THAT(table.arrive(twin).message(), HasSubstr("elsewhere:1"));

  Arrival same_daemon = node(1);
  same_daemon.node_id = "n0";
  EXPECT_THAT(table.arrive(same_daemon).message(), HasSubstr("\"n0\""));
  EXPECT_EQ(table.missing(), "1, 2");
}

TEST(RendezvousTable, ANumberThatHasComeIsNotGivenAgain) {
  RendezvousTable table(3, "id");
  EXPECT_TRUE(table.arrive(node(1)).is_ok());
  EXPECT_TRUE(table.arrive(node(1)).is_ok()) << "its connection was lost";
  Arrival other = node(1);  // equal except for the process
  other.launcher = launcher_of(7);
  const Status status = table.arrive(other);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("two nodes say --node-rank 1"));
}

TEST(RendezvousTable, WhatWouldHurtTheOthersIsRefusedAtTheDoor) {
  const auto refused = [](const std::function<void(Arrival&)>& change) {
    RendezvousTable table(3, "id");
    Arrival arrival = node(1);
    change(arrival);
    const Status status = table.arrive(arrival);
    EXPECT_EQ(table.missing(), "0, 1, 2");
    return status.is_ok() ? "" : status.message();
  };
  EXPECT_THAT(refused([](Arrival& one) { one.nproc = 0; }), HasSubstr("node 1 has 0 ranks"));
  EXPECT_THAT(refused([](Arrival& one) { one.nproc = 1'000'000; }), HasSubstr("1000000 ranks"));
  EXPECT_THAT(refused([](Arrival& one) { one.node_id = "a\nb"; }), HasSubstr("a\\nb"));
  EXPECT_THAT(refused([](Arrival& one) { one.node_id = std::string(64, 'a'); }),
              HasSubstr("a name that is none"));
  EXPECT_THAT(refused([](Arrival& one) { one.control_address = "unix:/run/x.sock"; }),
              HasSubstr("is not HOST:PORT"));
  EXPECT_THAT(refused([](Arrival& one) { one.launcher = ""; }), HasSubstr("another version"));
}

TEST(RendezvousTable, AnswersTheSameNodeAgainButNoLatecomer) {
  RendezvousTable table(1, "");
  Arrival only{0, 1, 2, "n0", "n0:1", "", launcher_of(0)};
  EXPECT_TRUE(table.arrive(only).is_ok());
  ASSERT_TRUE(table.lay_out().is_ok());
  table.depart(0);
  EXPECT_TRUE(table.arrive(only).is_ok());
  EXPECT_TRUE(table.is_complete());
  only.launcher = launcher_of(1);
  EXPECT_TRUE(table.arrive(only).is_retryable());
}

TEST(RendezvousTable, RanksThatUseOneDaemonAreOnOneNode) {
  RendezvousTable table(4, "id", Meeting::kRanks);
  for (int rank = 3; rank >= 0; --rank) {
    const std::string daemon = rank % 2 == 0 ? "even" : "odd";
    EXPECT_TRUE(table.arrive({rank, 4, 1, daemon, daemon + ":1", "id", launcher_of(rank)}).is_ok());
  }
  const auto nodes = table.lay_out();
  ASSERT_TRUE(nodes.is_ok());
  const std::vector<NodeLayout> expected{{"even", "even:1", {Rank(0), Rank(2)}},
                                         {"odd", "odd:1", {Rank(1), Rank(3)}}};
  EXPECT_EQ(nodes.value(), expected);
}

TEST(RendezvousTable, RanksAreCountedAlike) {
  RendezvousTable table(4, "id", Meeting::kRanks);
  EXPECT_THAT(table.arrive({1, 3, 1, "a", "a:1", "id", launcher_of(1)}).message(),
              HasSubstr("rank 1 counts ranks: 3, rank 0 says 4"));
}

}  // namespace
}  // namespace rueda::agent
