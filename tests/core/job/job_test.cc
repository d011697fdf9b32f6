// Tests a running job: from submissions through decrees and launches to deliveries.

#include "daemon/core/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AgreementMessage decree_of(const std::string& tensor, uint64_t plan_hash) {
  OrderedOperation operation;
  operation.seq = Seq{1};
  operation.plan_hash = plan_hash;
  operation.tensors = {tensor};
  return Decree{{operation}};
}

JobOptions one_tensor_an_operation(int window) {
  JobOptions options;
  options.max_launched_operations = window;
  options.agreement.max_open_operations = 100;
  options.agreement.fusion.threshold_bytes = 0;
  return options;
}

TEST(Job, OneTensorFromSubmissionToDelivery) {
  Cluster job({2, 1});
  job.start();
  std::vector<Ticket> tickets;
  for (int rank = 0; rank < 3; ++rank) tickets.push_back(job.submit(rank, tensor("a", 8)));
  job.settle();
  for (int node = 0; node < 2; ++node) {
    ASSERT_EQ(job.node(node).launches.size(), 1u);
    const Launch& launch = job.node(node).launches[0];
    EXPECT_EQ(launch.epoch, Epoch{1});
    EXPECT_EQ(launch.seq, Seq{1});
    EXPECT_EQ(launch.plan_hash, plan_hash({tensor("a", 8)}));
    ASSERT_EQ(launch.tensors->size(), 1u);
    EXPECT_EQ(*launch.tensors->front().descriptor, *tensor("a", 8));
  }
  EXPECT_THAT(job.node(0).launches[0].tickets, ElementsAre(tickets[0], tickets[1]));
  EXPECT_THAT(job.node(0).deliveries, IsEmpty()) << "not before the data plane is done";

  job.done_everywhere(1);
  ASSERT_EQ(job.node(0).deliveries.size(), 2u);
  const Delivery& delivery = job.node(0).deliveries[0];
  EXPECT_TRUE(delivery.status.is_ok());
  EXPECT_EQ(delivery.epoch, Epoch{1});
  EXPECT_EQ(delivery.seq, Seq{1});
  EXPECT_EQ(delivery.contributors, 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(job.end_of(rank, tickets[static_cast<size_t>(rank)]).is_ok());
  }
  EXPECT_EQ(job.node(0).core->submissions_in_flight(), 0u);
}

TEST(Job, RanksMaySubmitInAnyOrder) {
  Cluster job({1, 1, 1});
  job.start();
  const char* orders[3][3] = {{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}};
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* name : orders[rank]) job.submit(rank, tensor(name));
  }
  job.settle();
  for (int node = 0; node < 3; ++node) {
    ASSERT_EQ(job.launched(node), job.launched(0));
    for (size_t i = 0; i < job.node(0).launches.size(); ++i) {
      EXPECT_EQ(job.node(node).launches[i].plan_hash, job.node(0).launches[i].plan_hash);
    }
  }
}

// --- The window ----------------------------------------------------------------------------------

TEST(Job, OperationSWaitsUntilOperationSMinusWIsComplete) {
  Cluster job({1, 1}, one_tensor_an_operation(2));
  job.start();
  for (const char* name : {"a", "b", "c", "d", "e"}) job.submit_everywhere(tensor(name));
  job.settle();
  EXPECT_THAT(job.launched(1), ElementsAre(1, 2));
  // Number 2 is complete, and number 1 is not, so its lane is still taken.
  job.step(1, OperationDone{Seq{2}});
  job.settle();
  EXPECT_THAT(job.launched(1), ElementsAre(1, 2));
  job.step(1, OperationDone{Seq{1}});
  EXPECT_THAT(job.launched(1), ElementsAre(1, 2, 3, 4));
  job.step(1, OperationDone{Seq{3}});
  EXPECT_THAT(job.launched(1), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(job.launched(0), ElementsAre(1, 2)) << "each node has a window of its own";
}

TEST(Job, AnErrorBehindTheWindowKeepsItsPlace) {
  Cluster job({1, 1}, one_tensor_an_operation(1));
  job.start();
  job.submit_everywhere(tensor("a"));
  job.submit_everywhere(tensor("b"));
  job.settle();
  const Ticket bad = job.submit(1, tensor("bad", 1));
  job.submit(0, tensor("bad", 2));
  job.settle();
  EXPECT_THAT(job.launched(1), ElementsAre(1));
  EXPECT_FALSE(job.has_ended(1, bad)) << "behind operation 2, which waits for 1";
  job.done_everywhere(1);
  EXPECT_THAT(job.launched(1), ElementsAre(1, 2));
  EXPECT_EQ(job.end_of(1, bad).code(), Code::kMismatch);
}

TEST(Job, TheCoordinatorsOpenOperationsMakeRoomAsTheyEnd) {
  JobOptions options;
  options.agreement.max_open_operations = 1;
  Cluster job({1, 1}, options);
  job.start();
  job.submit_everywhere(tensor("a"));
  job.settle();
  for (const char* name : {"b", "c", "d"}) job.submit_everywhere(tensor(name));
  job.settle();
  EXPECT_THAT(job.launched(0), ElementsAre(1));
  job.done_everywhere(1);
  job.settle();
  ASSERT_THAT(job.launched(0), ElementsAre(1, 2));
  EXPECT_EQ(job.node(0).launches[1].tensors->size(), 3u) << "they were fused while they waited";
}

// --- Errors of the application -------------------------------------------------------------------

TEST(Job, AMismatchEndsOnlyThatOperationOnEveryRank) {
  Cluster job({2, 1});
  job.start();
  std::vector<Ticket> bad;
  for (int rank = 0; rank < 3; ++rank) bad.push_back(job.submit(rank, tensor("a", 1 + rank / 2)));
  job.submit_everywhere(tensor("b"));
  job.settle();
  for (int rank = 0; rank < 3; ++rank) {
    const Status end = job.end_of(rank, bad[static_cast<size_t>(rank)]);
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_THAT(end.message(), HasSubstr("shape is [1] on rank 0 and [2] on rank 2"));
  }
  EXPECT_EQ(job.state(0), JobState::kRunning);
  for (int node = 0; node < 2; ++node) {
    ASSERT_EQ(job.node(node).launches.size(), 1u);
    EXPECT_EQ(job.node(node).launches[0].tensors->front().descriptor->name, "b");
  }
}

TEST(Job, RanksOfOneNodeThatDisagreeFailTheTensorEverywhere) {
  Cluster job({1, 2});
  job.start();
  const Ticket elsewhere = job.submit(0, tensor("a", 1));
  job.submit(1, tensor("a", 1));
  job.submit(2, tensor("a", 9));
  job.settle();
  EXPECT_THAT(job.end_of(0, elsewhere).message(), HasSubstr("[1] on rank 1 and [9] on rank 2"));
}

TEST(Job, ANameTwiceIsRefusedToThatRankAlone) {
  Cluster job({2});
  job.start();
  const Ticket first = job.submit(0, tensor("a"));
  const Ticket second = job.submit(0, tensor("a"));
  EXPECT_EQ(job.end_of(0, second).code(), Code::kDuplicateName);
  const Ticket others = job.submit(1, tensor("a"));
  job.settle();
  job.done_everywhere(1);
  EXPECT_TRUE(job.end_of(0, first).is_ok());
  EXPECT_TRUE(job.end_of(1, others).is_ok());
  // The name is free again.
  const Ticket third = job.submit(0, tensor("a"));
  EXPECT_FALSE(job.has_ended(0, third));
}

TEST(Job, SubmissionsBeforeTheStartAreRefused) {
  Cluster job({1, 1});
  job.attach(0);
  const Ticket early = job.submit(0, tensor("a"));
  EXPECT_EQ(job.end_of(0, early).code(), Code::kUnavailable);
  EXPECT_THAT(job.end_of(0, early).message(), HasSubstr("job train has not started"));
}

// --- Messages ------------------------------------------------------------------------------------

TEST(Job, RepeatedMessagesAreDropped) {
  Cluster job({1, 1});
  job.start();
  job.submit_everywhere(tensor("a"));
  job.end_turns();
  const Message ready = job.stream(1, 0).front();
  job.settle();
  job.step(0, MessageArrived{ready});
  EXPECT_EQ(job.state(0), JobState::kRunning) << "a second report would be an error";
  job.done_everywhere(1);
  job.step(0, MessageArrived{ready});
  job.settle();
  EXPECT_THAT(job.launched(0), ElementsAre(1));
}

TEST(Job, ARepeatedDecreeLaunchesNothing) {
  Cluster job({1, 1});
  job.start();
  job.submit_everywhere(tensor("a"));
  job.end_turns();
  job.deliver(1, 0);
  job.end_turns();
  const Message decree = job.stream(0, 1).front();
  job.settle();
  job.step(1, MessageArrived{decree});
  job.settle();
  EXPECT_THAT(job.launched(1), ElementsAre(1));
  EXPECT_EQ(job.state(1), JobState::kRunning);
}

TEST(Job, AMissingMessageFailsTheJob) {
  Cluster job({1, 1});
  job.start();
  const Ticket waiting = job.submit(1, tensor("a"));
  job.end_turns();
  job.stream(1, 0).pop_front();
  job.submit(1, tensor("b"));
  job.end_turns();
  job.deliver(1, 0);
  EXPECT_EQ(job.state(0), JobState::kFailed);
  EXPECT_EQ(job.node(0).failed.at(0),
            Status(Code::kInternal, "messages 1 to 1 of node n1 are missing", Origin{"n1", {}}));
  job.settle();
  EXPECT_EQ(job.end_of(1, waiting), job.node(0).failed[0]);
}

TEST(Job, MessagesOfAnotherEpochAreIgnored) {
  Cluster job({1, 1});
  job.start();
  job.step(1, MessageArrived{{NodeIndex{0}, Epoch{2}, 1, Fail{Status(Code::kInternal, "x")}}});
  job.step(1, MessageArrived{{NodeIndex{0}, Epoch{2}, 1, Left{Rank{0}}}});
  job.step(1, MessageArrived{{NodeIndex{0}, Epoch{2}, 7, Decree{}}});
  EXPECT_EQ(job.state(1), JobState::kRunning);
}

TEST(Job, APeerThatBreaksTheProtocolEndsTheJob) {
  Cluster job({1, 1});
  job.start();
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 1, Decree{}}});
  EXPECT_EQ(job.state(0), JobState::kFailed);
  EXPECT_EQ(job.node(0).failed.at(0).code(), Code::kInternal);
}

// --- Plans ---------------------------------------------------------------------------------------

TEST(Job, ADecreeThatMeansAnotherBatchIsNeverLaunched) {
  Cluster job({1, 1});
  job.start();
  const Ticket ticket = job.submit(1, tensor("a"));
  job.end_turns();
  job.step(1, MessageArrived{{NodeIndex{0}, Epoch{1}, 1, decree_of("a", 12345)}});
  job.step(1, TurnEnded{});
  EXPECT_THAT(job.node(1).launches, IsEmpty());
  EXPECT_EQ(job.node(1).failed.at(0).code(), Code::kMismatch);
  EXPECT_EQ(job.end_of(1, ticket).message(),
            "operation 1 means another batch on the coordinator than on node n1");
}

TEST(Job, ADecreeOfATensorThisNodeDidNotReportIsNeverLaunched) {
  Cluster job({1, 2});
  job.start();
  job.submit(1, tensor("a"));  // rank 2 has not submitted it
  job.step(1,
           MessageArrived{{NodeIndex{0}, Epoch{1}, 1, decree_of("a", plan_hash({tensor("a")}))}});
  job.step(1, TurnEnded{});
  EXPECT_THAT(job.node(1).launches, IsEmpty());
  EXPECT_EQ(job.node(1).failed.at(0).message(),
            "operation 1 has tensor \"a\", which this node did not report: the coordinator on n0 "
            "ordered what cannot be");
}

// A node that reports fewer launches than it made lets others cancel operations that are complete.
TEST(Job, AnOperationThatEndsWithoutALaunchEndsTheJob) {
  Cluster job({1});
  job.start();
  job.step(0, OperationDone{Seq{1}});
  EXPECT_EQ(job.node(0).failed.at(0).message(),
            "operation 1 is complete here and was cancelled: a node misreported how far it was");
}

// An operation that is repeated among fewer ranks would have other parts.
TEST(JobCoreLimits, AJobThatShrinksHasNoPartsOfItsRanks) {
  JobOptions options;
  options.recovery.policy = DeathPolicy::kShrink;
  Cluster job({1, 1, 1}, options);
  job.start();
  for (const CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kReduce, CollectiveKind::kReduceScatter,
        CollectiveKind::kAlltoall, CollectiveKind::kGather, CollectiveKind::kScatter}) {
    const DescriptorPtr asked = tensor("x", 3, [&](TensorDescriptor& t) { t.kind = kind; });
    const Status end = job.end_of(0, job.submit(0, asked));
    EXPECT_EQ(end.code(), Code::kInvalidArgument) << to_string(kind);
    EXPECT_THAT(end.message(), HasSubstr("policy shrink")) << to_string(kind);
  }
}

}  // namespace
}  // namespace rueda::core
