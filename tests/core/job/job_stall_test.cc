// Tests the stall inspector (stall_test.cc) inside of a job's core.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

JobOptions with_stalls(TicksMs check_ms, TicksMs shutdown_ms = 0) {
  JobOptions options;
  options.stall = {check_ms, shutdown_ms};
  return options;
}

// Sets up ranks 0 and 1 on node 0, 2 and 3 on node 1.
class JobStall : public testing::Test {
 protected:
  void pass(Cluster& job, int seconds) {
    for (int i = 0; i < seconds; ++i) {
      job.pass(1000);
      job.settle();
    }
  }
  std::string sentence(Cluster& job, int node) {
    const std::vector<StallLine>& lines = job.node(node).stall_lines;
    return lines.empty() ? "" : lines.back().text;
  }
};

TEST_F(JobStall, IsSeenOnEveryNodeAndEndsWithTheOperation) {
  Cluster job({2, 2}, with_stalls(10'000));
  job.start();
  job.submit_everywhere(tensor("before"));
  job.settle();
  job.done_everywhere(1);
  EXPECT_FALSE(job.node(0).core->wakes_at()) << "an idle job costs nothing";
  for (int rank : {0, 1, 3}) job.submit(rank, tensor("grad"));
  EXPECT_EQ(job.node(0).core->wakes_at(), job.now() + 1000);
  pass(job, 10);
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(job.node(node).core->stalls().count(), 1u);
    EXPECT_THAT(sentence(job, node),
                HasSubstr("not by rank 2 on node n1 (last submitted \"before\" 10 s ago, last "
                          "completed \"before\" 10 s ago)"));
  }
  job.submit(2, tensor("grad"));
  job.settle();
  job.done_everywhere(2);
  pass(job, 1);
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(job.node(node).core->stalls().count(), 0u);
    EXPECT_THAT(sentence(job, node), HasSubstr("waits no longer"));
    EXPECT_FALSE(job.node(node).core->wakes_at());
  }
}

// Under a lock nodes do not report what is ready, and a node whose own ranks have submitted has
// launched.
TEST_F(JobStall, IsSeenUnderALock) {
  JobOptions options = with_stalls(10'000);
  options.agreement.mode = Coordination::kLocked;
  Cluster job({2, 2}, options);
  job.start();
  const auto run = [&](const char* name) {
    job.submit_everywhere(tensor(name));
    job.settle();
    job.done_everywhere(job.node(0).launches.back().seq.value);
    job.settle();
  };
  for (int step = 0; step < 10; ++step) {
    run("a");
    run("b");
  }
  ASSERT_TRUE(job.node(0).core->is_locked() && job.node(1).core->is_locked());
  const size_t launched = job.node(0).launches.size();
  for (int rank : {0, 1, 3}) job.submit(rank, tensor("a"));
  pass(job, 10);
  EXPECT_EQ(job.node(0).launches.size(), launched + 1);
  EXPECT_TRUE(job.node(0).core->is_locked());
  for (int node = 0; node < 2; ++node) {
    EXPECT_THAT(sentence(job, node),
                HasSubstr("ranks 0-1, 3, and not by rank 2 on node n1 (last submitted \"b\" 10 s "
                          "ago, last completed \"b\" 10 s ago)"));
  }
  job.submit(2, tensor("a"));
  job.settle();
  job.done_everywhere(job.node(0).launches.back().seq.value);
  pass(job, 1);
  EXPECT_THAT(sentence(job, 0), HasSubstr("waits no longer"));
  EXPECT_TRUE(job.node(0).core->is_locked()) << "a stall is no deviation";
}

// A step that repeats as it was is not recorded submission by submission (plan_fast_path.h).
TEST_F(JobStall, WhatRanksDidLastIsKnownAfterManyStepsUnderALock) {
  JobOptions options = with_stalls(10'000);
  options.agreement.mode = Coordination::kLocked;
  Cluster job({2, 2}, options);
  job.start();
  for (int step = 0; step < 20; ++step) {
    job.pass(1'000);
    job.submit_everywhere(tensor("a"));
    job.settle();
    job.done_everywhere(job.node(0).launches.back().seq.value);
    job.settle();
  }
  ASSERT_TRUE(job.node(0).core->is_locked() && job.node(1).core->is_locked());
  for (int rank : {0, 1, 3}) job.submit(rank, tensor("a"));
  pass(job, 11);
  EXPECT_THAT(sentence(job, 0), HasSubstr("(last submitted \"a\" 10 s ago, last completed \"a\" "
                                          "10 s ago)"));
}

// Another rank has its result, and this rank's data is still on its way. "Not submitted by rank 1,
// which last submitted it" would contradict itself.
TEST_F(JobStall, WhatARankHasCompletedMeanwhileMayBeOnItsWay) {
  JobOptions options = with_stalls(10'000);
  options.agreement.mode = Coordination::kLocked;
  Cluster job({1, 1}, options);
  job.start();
  for (int step = 0; step < 20; ++step) {
    job.pass(1'000);
    job.submit_everywhere(tensor("a"));
    job.settle();
    job.done_everywhere(job.node(0).launches.back().seq.value);
    job.settle();
  }
  ASSERT_TRUE(job.node(0).core->is_locked() && job.node(1).core->is_locked());
  job.submit_everywhere(tensor("a"));
  job.settle();
  job.pass(2'000);
  job.step(1, OperationDone{job.node(1).launches.back().seq});
  job.settle();
  pass(job, 10);
  EXPECT_THAT(sentence(job, 0), HasSubstr("perhaps this one: then its data is still on the way)"));
}

TEST_F(JobStall, ARefusedSubmissionIsNotWhatARankDidLast) {
  Cluster job({1, 1}, with_stalls(10'000));
  job.start();
  job.submit(1, tensor("mine"));
  job.submit(1, tensor("mine"));  // is refused, because the name is in flight
  job.submit(0, tensor("grad"));
  pass(job, 10);
  const StallNotice notice = job.node(0).core->stalls().stalls(0);
  ASSERT_THAT(notice.ranks, SizeIs(2));
  EXPECT_EQ(notice.ranks[1].last_submitted, "mine");
  EXPECT_EQ(notice.ranks[1].last_completed, "");
}

TEST_F(JobStall, AShutdownEndsTheJobOnEveryNodeWithOneSentence) {
  Cluster job({2, 2}, with_stalls(1'000, 3'000));
  job.start();
  std::vector<Ticket> tickets;
  for (int rank : {0, 1, 3}) tickets.push_back(job.submit(rank, tensor("grad")));
  pass(job, 3);
  for (int node = 0; node < 2; ++node) {
    ASSERT_EQ(job.state(node), JobState::kFailed);
    EXPECT_EQ(job.node(node).core->failure().code(), Code::kShutDown);
    EXPECT_EQ(job.node(node).core->failure().origin(), (Origin{"n1", Rank{2}}));
    EXPECT_EQ(job.node(node).core->stalls().count(), 0u);
    EXPECT_FALSE(job.node(node).core->wakes_at());
  }
  EXPECT_THAT(job.end_of(3, tickets[2]).message(), HasSubstr("and not by rank 2 on node n1"));
}

TEST_F(JobStall, TheNextEpochKnowsNothingOfTheLast) {
  Cluster job({1, 1}, with_stalls(10'000));
  job.start();
  job.submit_everywhere(tensor("before"));
  job.settle();
  job.done_everywhere(1);
  for (int rank : {0, 1}) job.detach(rank);
  job.settle();
  job.start();
  job.submit(0, tensor("grad"));
  pass(job, 10);
  EXPECT_THAT(sentence(job, 1), HasSubstr("rank 1 on node n1 (it has not submitted any tensor)"));
}

TEST_F(JobStall, APeerThatBreaksTheRulesEndsTheEpoch) {
  Cluster job({1, 1}, with_stalls(10'000));
  job.start();
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 1, StallMessage(StallNotice{})}});
  EXPECT_EQ(job.state(0), JobState::kFailed);
  EXPECT_THAT(job.node(0).core->failure().message(), HasSubstr("which has no use for it"));
}

TEST_F(JobStall, WithoutACheckTimeNothingIsSent) {
  Cluster job({1, 1});
  job.start();
  job.submit(1, tensor("grad"));
  pass(job, 100);
  EXPECT_THAT(job.node(1).stall_lines, IsEmpty());
  EXPECT_FALSE(job.node(1).core->wakes_at());
}

}  // namespace
}  // namespace rueda::core
