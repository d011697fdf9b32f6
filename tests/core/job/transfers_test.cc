// Tests sends and receives between ranks: how they meet, what keeps them apart, and what becomes of
// them when somebody is missing.
#include "daemon/core/job/transfers.h"

#include <map>
#include <random>

#include <gmock/gmock.h>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DescriptorPtr transfer(CollectiveKind kind, int peer, int64_t elements = 4, int64_t tag = 0,
                       DType dtype = DType::kFloat32, uint32_t process_set = 0) {
  return tensor(kind == CollectiveKind::kSend ? "send" : "receive", elements,
                [&](TensorDescriptor& t) {
                  t.kind = kind;
                  t.peer = Rank{peer};
                  t.tag = tag;
                  t.dtype = dtype;
                  t.process_set = process_set;
                });
}
DescriptorPtr send(int peer, int64_t elements = 4, int64_t tag = 0, DType dtype = DType::kFloat32) {
  return transfer(CollectiveKind::kSend, peer, elements, tag, dtype);
}
DescriptorPtr receive(int peer, int64_t elements = 4, int64_t tag = 0,
                      DType dtype = DType::kFloat32) {
  return transfer(CollectiveKind::kReceive, peer, elements, tag, dtype);
}

class TransfersTest : public testing::Test {
 protected:
  void start(const std::vector<int>& ranks, JobOptions options = {}) {
    job_ = std::make_unique<Cluster>(ranks, options);
    job_->start();
  }
  // Lets the data planes do what they were told.
  void move_data() {
    job_->settle();
    for (int i = 0; i < job_->layout().node_count(); ++i) {
      for (const TransferLaunch& launch : std::exchange(job_->node(i).transfers, {})) {
        job_->step(i, TransferDone{launch.key});
      }
    }
  }
  void cancel(int rank, Ticket ticket) {
    job_->step(job_->home(rank), TransferCancelled{job_->local(rank), ticket});
  }
  uint32_t value_of(int rank, Ticket ticket) {
    for (const Delivery& delivery : job_->node(job_->home(rank)).deliveries) {
      if (delivery.rank == job_->local(rank) && delivery.ticket == ticket) return delivery.value;
    }
    return UINT32_MAX;
  }

  std::unique_ptr<Cluster> job_;
};

TEST_F(TransfersTest, ASendAndItsReceiveMeetWhicheverComesFirst) {
  for (const auto& ranks : {std::vector{2}, std::vector{1, 1}, std::vector{1, 1, 1}}) {
    start(ranks);
    const int last = job_->layout().world_size() - 1;
    const Ticket early = job_->submit(0, send(last));
    move_data();
    EXPECT_FALSE(job_->has_ended(0, early)) << "nobody receives";
    const Ticket got = job_->submit(last, receive(0));
    move_data();
    EXPECT_TRUE(job_->end_of(0, early).is_ok());
    EXPECT_TRUE(job_->end_of(last, got).is_ok());
    EXPECT_EQ(value_of(0, early), static_cast<uint32_t>(last));
    EXPECT_EQ(value_of(last, got), 0u);
    const Ticket waits = job_->submit(0, receive(last, 0));
    const Ticket sent = job_->submit(last, send(0, 0));
    move_data();
    EXPECT_TRUE(job_->end_of(0, waits).is_ok());
    EXPECT_TRUE(job_->end_of(last, sent).is_ok());
    EXPECT_EQ(job_->node(0).core->submissions_in_flight(), 0u);
  }
}

TEST_F(TransfersTest, AReceiveIsNotOfAnotherTagOrSource) {
  start({1, 1, 1});
  const Ticket one = job_->submit(2, receive(0, 4, 5));
  const Ticket other = job_->submit(2, receive(1, 4, 6));
  job_->submit(0, send(2, 4, 6));
  job_->submit(1, send(2, 4, 5));
  move_data();
  EXPECT_FALSE(job_->has_ended(2, one));
  EXPECT_FALSE(job_->has_ended(2, other));
}

TEST_F(TransfersTest, TheFirstThatWasSubmittedIsTheFirstThatIsMatched) {
  start({1, 1});
  const Ticket specific = job_->submit(1, receive(0, 1));
  const Ticket any = job_->submit(1, receive(-1, 2));
  const Ticket last = job_->submit(1, receive(0, 3));
  for (const int64_t elements : {1, 2, 3}) job_->submit(0, send(1, elements));
  move_data();
  for (const Ticket ticket : {specific, any, last}) {
    EXPECT_TRUE(job_->end_of(1, ticket).is_ok()) << "sizes would not fit in another order";
    EXPECT_EQ(value_of(1, ticket), 0u);
  }
}

TEST_F(TransfersTest, UnlikeOnesEndBothRanksWithTheNamesOfBoth) {
  for (const auto& ranks : {std::vector{2}, std::vector{1, 1}}) {
    start(ranks);
    const Ticket sent = job_->submit(0, send(1, 4));
    const Ticket got = job_->submit(1, receive(0, 4, 0, DType::kFloat64));
    move_data();
    for (const Status& end : {job_->end_of(0, sent), job_->end_of(1, got)}) {
      EXPECT_EQ(end.code(), Code::kMismatch);
      EXPECT_THAT(end.message(), AllOf(HasSubstr("rank 0 sends 4 float32 (16 bytes) to rank 1"),
                                       HasSubstr("receives 4 float64 (32 bytes)")));
    }
    EXPECT_EQ(job_->state(0), JobState::kRunning);
    EXPECT_TRUE(job_->node(job_->home(1)).transfers.empty());
  }
}

TEST_F(TransfersTest, ARankThatHasLeftIsNotWaitedFor) {
  start({1, 1, 1});
  const Ticket sent = job_->submit(0, send(2));
  const Ticket got = job_->submit(1, receive(2));
  const Ticket any = job_->submit(1, receive(-1));
  job_->settle();
  job_->detach(2);
  job_->settle();
  EXPECT_EQ(job_->end_of(0, sent).code(), Code::kShutDown);
  EXPECT_THAT(job_->end_of(1, got).message(), HasSubstr("rank 2 has left"));
  EXPECT_FALSE(job_->has_ended(1, any)) << "rank 0 may still send";
  EXPECT_EQ(job_->end_of(0, job_->submit(0, send(2))).code(), Code::kShutDown);
  job_->submit(0, send(1));
  move_data();
  EXPECT_TRUE(job_->end_of(1, any).is_ok());
}

TEST_F(TransfersTest, ADeathEndsTransfersUnderWay) {
  start({1, 1});
  const Ticket got = job_->submit(0, receive(1));
  job_->settle();
  const Status died(Code::kRankLost, "rank 1 died", Origin{"n1", Rank{1}});
  job_->step(1, RankLost{LocalRank{0}, died});
  job_->settle();
  EXPECT_EQ(job_->end_of(0, got), died);
}

TEST_F(TransfersTest, ARankMayNotLeaveWithATransferUnderWay) {
  start({1, 1});
  job_->submit(0, send(1));
  job_->detach(0);
  EXPECT_EQ(job_->state(0), JobState::kFailed);
}

TEST_F(TransfersTest, AStallNamesBothRanks) {
  JobOptions options;
  options.stall.check_ms = 5'000;
  start({1, 1}, options);
  job_->submit(1, receive(0, 4, 9));
  for (int i = 0; i < 7; ++i) job_->pass(1'000);
  ASSERT_EQ(job_->node(1).stall_lines.size(), 1u);
  EXPECT_THAT(job_->node(1).stall_lines[0].text,
              AllOf(HasSubstr("rank 1 has waited"), HasSubstr("from rank 0 (tag 9")));
  EXPECT_EQ(job_->node(1).core->transfers().stall_count(), 1u);
  const StallNotice stalls = job_->node(1).core->transfers().stalls(0, job_->now());
  ASSERT_EQ(stalls.stalls.size(), 1u);
  EXPECT_THAT(stalls.stalls[0].missing, testing::ElementsAre(Rank{0}));
}

TEST_F(TransfersTest, AStallBeyondTheLimitEndsTheJob) {
  JobOptions options;
  options.stall = {5'000, 8'000};
  start({1, 1}, options);
  const Ticket sent = job_->submit(0, send(1));
  for (int i = 0; i < 10; ++i) job_->pass(1'000);
  EXPECT_EQ(job_->end_of(0, sent).code(), Code::kShutDown);
  EXPECT_EQ(job_->end_of(0, sent).origin().rank, Rank{1});
}

TEST_F(TransfersTest, ARemovedProcessSetMustHaveNothingUnderWay) {
  start({1, 1, 1});
  const auto change = [](CollectiveKind kind, uint32_t set, std::vector<int64_t> ranks) {
    return tensor(kProcessSetsName, 1, [&](TensorDescriptor& t) {
      t.kind = kind;
      t.process_set = set;
      t.shape = std::move(ranks);
    });
  };
  job_->submit_everywhere(change(CollectiveKind::kAddProcessSet, 0, {0, 1}));
  job_->settle();
  const auto in_set = [](CollectiveKind kind, int peer) {
    return transfer(kind, peer, 4, 0, DType::kFloat32, 1);
  };
  const Status wrong = job_->end_of(0, job_->submit(0, in_set(CollectiveKind::kSend, 2)));
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.message(), HasSubstr("not rank 2"));
  const Ticket sent = job_->submit(0, in_set(CollectiveKind::kSend, 1));
  job_->settle();
  std::vector<Ticket> removals;
  for (int rank = 0; rank < 3; ++rank) {
    removals.push_back(job_->submit(rank, change(CollectiveKind::kRemoveProcessSet, 1, {})));
  }
  job_->settle();
  EXPECT_EQ(job_->end_of(0, removals[0]).code(), Code::kMismatch);
  job_->submit(1, in_set(CollectiveKind::kReceive, 0));
  move_data();
  EXPECT_TRUE(job_->end_of(0, sent).is_ok());
}

TEST_F(TransfersTest, WhatAPeerCannotOfferEndsTheEpoch) {
  const TransferOffer good{1, Rank{1}, Rank{0}, 0, DType::kFloat32, 4};
  const auto with = [&](auto change) {
    TransferOffer offer = good;
    change(offer);
    return TransferMessage(offer);
  };
  const std::vector<TransferMessage> wrong = {
      with([](auto& offer) { offer.number = 2; }),
      with([](auto& offer) { offer.number = 0; }),
      with([](auto& offer) { offer.source = Rank{0}; }),
      with([](auto& offer) { offer.source = Rank{-1}; }),
      with([](auto& offer) { offer.destination = Rank{1}; }),
      with([](auto& offer) { offer.destination = Rank{99}; }),
      with([](auto& offer) { offer.elements = -1; }),
      with([](auto& offer) { offer.elements = INT64_MAX; }),
      TransferTake{1},
      TransferRefusal{1, Status(Code::kMismatch, "no")},
  };
  for (const TransferMessage& message : wrong) {
    start({1, 1});
    job_->submit(0, receive(-1));
    job_->step(0, TransferMessageArrived{n1, Epoch{1}, 0, message});
    EXPECT_EQ(job_->state(0), JobState::kFailed) << "message " << message.index();
    EXPECT_TRUE(job_->node(0).transfers.empty());
  }
}

TEST_F(TransfersTest, ChannelsAreAnnouncedOnceForBothWays) {
  start({1, 1, 1});
  std::vector<std::vector<NodeIndex>> opened(3);
  const auto step = [&](int node, Event event) {
    Output output;
    job_->node(node).core->step(0, std::move(event), output);
    auto& peers = opened[static_cast<size_t>(node)];
    peers.insert(peers.end(), output.transfer_peers.begin(), output.transfer_peers.end());
    return output;
  };
  Output first = step(1, Submitted{{LocalRank{0}, Ticket{1}, send(2)}});
  ASSERT_EQ(first.sends.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<TransferOpen>(first.sends[0].second.body));
  ASSERT_EQ(first.transfer_sends.size(), 1u);
  EXPECT_TRUE(step(1, Submitted{{LocalRank{0}, Ticket{2}, send(2)}}).sends.empty());
  // The coordinator's node passes it on.
  Output passed = step(0, MessageArrived{first.sends[0].second});
  ASSERT_EQ(passed.sends.size(), 1u);
  step(2, MessageArrived{passed.sends[0].second});
  EXPECT_TRUE(step(2, Submitted{{LocalRank{0}, Ticket{1}, send(1)}}).sends.empty());
  EXPECT_THAT(opened, testing::ElementsAre(testing::IsEmpty(), testing::ElementsAre(NodeIndex{2}),
                                           testing::ElementsAre(NodeIndex{1})));
}

TEST_F(TransfersTest, AnOfferInAProcessSetThatIsNotKnownYetWaitsForIt) {
  start({1, 1});
  job_->submit_everywhere(tensor(kProcessSetsName, 1, [&](TensorDescriptor& t) {
    t.kind = CollectiveKind::kAddProcessSet;
    t.shape = {1};
  }));
  const TransferOffer outside{1, Rank{1}, Rank{0}, 0, DType::kFloat32, 4};
  job_->step(0, TransferMessageArrived{n1, Epoch{1}, 1, outside});
  EXPECT_EQ(job_->state(0), JobState::kRunning);
  job_->end_turns();
  for (int to : {0, 1}) job_->records(1 - to, to).clear();
  EXPECT_TRUE(job_->records(0, 1).empty()) << "it waits";
  while (!job_->stream(1, 0).empty() || !job_->stream(0, 1).empty()) {
    for (const auto& [from, to] : {std::pair{1, 0}, std::pair{0, 1}}) {
      while (!job_->stream(from, to).empty()) job_->deliver(from, to);
    }
    job_->end_turns();
  }
  ASSERT_EQ(job_->records(0, 1).size(), 1u) << "the set has no rank 0, so the offer is refused";
  EXPECT_TRUE(std::holds_alternative<TransferRefusal>(job_->records(0, 1).front().message));
  EXPECT_EQ(job_->state(0), JobState::kRunning);
}

TEST_F(TransfersTest, WhatHasMetNothingIsTakenBack) {
  for (const auto& ranks : {std::vector{2}, std::vector{1, 1}}) {
    start(ranks);
    const Ticket received = job_->submit(1, receive(0));
    const Ticket sent = job_->submit(0, send(1, 4, 7));
    job_->settle();
    cancel(1, received);
    cancel(0, sent);
    job_->settle();
    EXPECT_EQ(job_->end_of(1, received).code(), Code::kUnavailable);
    EXPECT_EQ(job_->end_of(0, sent).code(), Code::kUnavailable);
    EXPECT_THAT(job_->end_of(0, sent).message(), HasSubstr("taken back"));
    // The next ones do not meet them, but each other.
    const Ticket next_sent = job_->submit(0, send(1));
    const Ticket next_received = job_->submit(1, receive(0, 4, 7));
    job_->settle();
    EXPECT_FALSE(job_->has_ended(0, next_sent));
    EXPECT_FALSE(job_->has_ended(1, next_received));
    const Ticket last = job_->submit(1, receive(-1));
    job_->submit(0, send(1, 4, 7));
    move_data();
    for (const Ticket ticket : {next_received, last}) {
      EXPECT_TRUE(job_->end_of(1, ticket).is_ok());
    }
    EXPECT_TRUE(job_->end_of(0, next_sent).is_ok());
    EXPECT_EQ(job_->node(0).core->submissions_in_flight(), 0u);
  }
}

TEST_F(TransfersTest, WhatHasMetItsOtherHalfIsNotTakenBack) {
  for (const auto& ranks : {std::vector{2}, std::vector{1, 1}}) {
    start(ranks);
    const Ticket received = job_->submit(1, receive(0));
    const Ticket sent = job_->submit(0, send(1));
    if (ranks.size() == 2) job_->deliver_record(0, 1);
    cancel(1, received);
    cancel(0, sent);  // The take is on its way.
    cancel(0, sent);
    move_data();
    EXPECT_TRUE(job_->end_of(1, received).is_ok());
    EXPECT_TRUE(job_->end_of(0, sent).is_ok());
    cancel(1, received);
    cancel(0, Ticket{4711});
    job_->settle();
    EXPECT_EQ(job_->state(0), JobState::kRunning);
  }
}

TEST_F(TransfersTest, AnOfferIsTakenBackBeforeItsProcessSetIsKnown) {
  start({1, 1});
  const TransferOffer offer{1, Rank{1}, Rank{0}, 3, DType::kFloat32, 4};
  job_->step(0, TransferMessageArrived{n1, Epoch{1}, 1, offer});
  const TransferWithdrawal withdrawn{1, Rank{1}, Rank{0}, 3};
  job_->step(0, TransferMessageArrived{n1, Epoch{1}, 1, withdrawn});
  ASSERT_EQ(job_->records(0, 1).size(), 1u);
  EXPECT_TRUE(std::holds_alternative<TransferRefusal>(job_->records(0, 1).front().message));
  // A withdrawal of what was never offered has no effect.
  for (const TransferWithdrawal& other :
       {TransferWithdrawal{9, Rank{1}, Rank{0}, 3}, TransferWithdrawal{1, Rank{-7}, Rank{99}, 0}}) {
    job_->step(0, TransferMessageArrived{n1, Epoch{1}, 0, other});
  }
  EXPECT_EQ(job_->records(0, 1).size(), 1u);
  EXPECT_EQ(job_->state(0), JobState::kRunning);
}

TEST_F(TransfersTest, AMessageOfAnotherEpochHasNoEffect) {
  start({1, 1});
  const TransferOffer offer{1, Rank{1}, Rank{0}, 0, DType::kFloat32, 4};
  const Ticket got = job_->submit(0, receive(1));
  for (const uint32_t epoch : {0u, 2u}) {
    job_->step(0, TransferMessageArrived{n1, Epoch{epoch}, 0, offer});
    job_->step(0, TransferMessageArrived{n1, Epoch{epoch}, 0, TransferTake{1}});
  }
  EXPECT_EQ(job_->state(0), JobState::kRunning);
  job_->submit(1, send(0));
  move_data();
  EXPECT_TRUE(job_->end_of(0, got).is_ok());
}

TEST_F(TransfersTest, OffersToARankThatHasLeftAreAnswered) {
  start({1, 1, 1});
  const Ticket sent = job_->submit(0, send(2));
  job_->settle();
  job_->detach(2);
  for (int i = 0; i < 3; ++i) {
    job_->end_turns();
    while (!job_->stream(2, 0).empty()) job_->deliver(2, 0);
    while (!job_->stream(0, 2).empty()) job_->deliver(0, 2);
  }
  ASSERT_EQ(job_->records(2, 0).size(), 1u) << "node 2 lets go of what came with the offer";
  job_->settle();
  EXPECT_EQ(job_->end_of(0, sent).code(), Code::kShutDown);
  EXPECT_EQ(job_->state(0), JobState::kRunning);
}

TEST_F(TransfersTest, TransfersOfOpenChannelsDoNotNeedTheCoordinator) {
  start({1, 1, 1});
  job_->submit(1, send(2));
  job_->submit(2, receive(1));
  move_data();
  job_->detach(0);
  job_->settle();
  const Ticket waits = job_->submit(2, receive(1));
  job_->step(1, NodeLost{n0, Status(Code::kNodeLost, "it has stopped")});
  job_->step(2, NodeLost{n0, Status(Code::kNodeLost, "it has stopped")});
  const Ticket sent = job_->submit(1, send(2));
  move_data();
  EXPECT_TRUE(job_->end_of(1, sent).is_ok());
  EXPECT_TRUE(job_->end_of(2, waits).is_ok());
}

// Any number of transfers under way, any order of events: what is matched is what the order of
// submissions says, collectives go on beside, and nothing is left over.
TEST_F(TransfersTest, AnyOrderOfEventsGivesTheSameMatches) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int below) {
      return static_cast<int>(random() % static_cast<uint32_t>(below));
    };
    JobOptions options;
    options.agreement.mode = seed % 2 == 0 ? Coordination::kLocked : Coordination::kCached;
    const std::vector<std::vector<int>> layouts = {{3}, {2, 1}, {1, 1, 1}, {1, 2, 1, 2}};
    start(layouts[static_cast<size_t>(draw(4))], options);
    const int ranks = job_->layout().world_size();
    const int nodes = job_->layout().node_count();
    // The k-th send of a lane has k + 1 elements, and so has its receive: a wrong match mismatches.
    using Lane = std::tuple<int, int, int>;  // source, destination, tag
    std::map<Lane, std::pair<int, int>> counts;
    std::vector<std::pair<int, Ticket>> submitted;
    int left = 60;
    const auto is_at_rest = [&] {
      for (int i = 0; i < nodes; ++i) {
        if (!job_->node(i).transfers.empty()) return false;
        for (int to = 0; to < nodes; ++to) {
          if (!job_->stream(i, to).empty() || !job_->records(i, to).empty()) return false;
        }
      }
      return left == 0;
    };
    for (int steps = 0; !is_at_rest(); ++steps) {
      ASSERT_LT(steps, 100'000);
      const int choice = draw(4);
      if (choice == 0 && left > 0) {
        --left;
        const Lane lane{draw(ranks), draw(ranks), draw(2)};
        const auto [source, destination, tag] = lane;
        auto& [sends, receives] = counts[lane];
        if (draw(2) == 0) {
          submitted.emplace_back(source, job_->submit(source, send(destination, ++sends, tag)));
        } else {
          submitted.emplace_back(destination,
                                 job_->submit(destination, receive(source, ++receives, tag)));
        }
      } else if (choice == 1) {
        const int from = draw(nodes);
        const int to = draw(nodes);
        // The links and the channels may overtake each other.
        if (!job_->stream(from, to).empty() && draw(2) == 0) {
          job_->deliver(from, to);
        } else if (!job_->records(from, to).empty()) {
          job_->deliver_record(from, to);
        }
      } else if (choice == 2) {
        const int node = draw(nodes);
        std::vector<TransferLaunch>& launched = job_->node(node).transfers;
        if (launched.empty()) continue;
        const auto at = launched.begin() + draw(static_cast<int>(launched.size()));
        const TransferKey key = at->key;
        launched.erase(at);
        job_->step(node, TransferDone{key});
      } else {
        job_->step(draw(nodes), TurnEnded{});
      }
    }
    // The rest of each lane gets its other halves.
    for (auto& [lane, count] : counts) {
      const auto [source, destination, tag] = lane;
      while (count.first < count.second) {
        submitted.emplace_back(source, job_->submit(source, send(destination, ++count.first, tag)));
      }
      while (count.second < count.first) {
        submitted.emplace_back(destination,
                               job_->submit(destination, receive(source, ++count.second, tag)));
      }
    }
    for (int i = 0; i < 5; ++i) move_data();
    for (const auto& [rank, ticket] : submitted) {
      ASSERT_TRUE(job_->end_of(rank, ticket).is_ok()) << job_->end_of(rank, ticket).message();
    }
    for (int i = 0; i < nodes; ++i) {
      EXPECT_EQ(job_->node(i).core->submissions_in_flight(), 0u);
      EXPECT_EQ(job_->state(i), JobState::kRunning);
    }
  }
}

}  // namespace
}  // namespace rueda::core
