#include "daemon/engine/node/ended_jobs.h"

#include <gtest/gtest.h>

#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

const std::string kJobToken(limits::kTokenBytes, 't');
const Status kWhy(Code::kRankLost, "rank 3 was killed", Origin{"n0", Rank{3}});
constexpr Epoch kEpoch{2};
constexpr NodeIndex kLate{5};

core::Join waiting() {
  core::Join join;
  join.attached = {Rank{9}};
  return join;
}

// Stands for what the control plane hashes.
const std::string kJoinDigest = "a Join over this link";

Envelope join_to(const JobId& job, const std::string& token, core::Join join = waiting()) {
  return {job,
          {kLate, kEpoch, 0, std::move(join)},
          {{}, kJoinDigest, make_proof(make_proof_key(token, job), kJoinDigest)}};
}

TEST(EndedJobs, WhoComesLateIsToldWhy) {
  EndedJobs ended;
  ended.add(1000, "job", kJobToken, NodeIndex{1}, kWhy);
  const auto answer = ended.answer(1000, join_to("job", kJobToken));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->is_first);
  EXPECT_EQ(answer->envelope.job, "job");
  EXPECT_EQ(answer->envelope.message.from, NodeIndex{1});
  EXPECT_EQ(answer->envelope.message.epoch, kEpoch) << "of another one it would be ignored";
  EXPECT_EQ(std::get<core::Fail>(answer->envelope.message.body).status, kWhy);
  const auto again = ended.answer(1000, join_to("job", kJobToken));
  ASSERT_TRUE(again) << "the first answer may have been lost";
  EXPECT_FALSE(again->is_first);
}

TEST(EndedJobs, WhoHasRanksBelowThatWaitIsToldToo) {
  EndedJobs ended;
  ended.add(0, "job", kJobToken, NodeIndex{0}, kWhy);
  core::Join join;
  join.below = {{NodeIndex{7}, "n7:1", {}}};
  EXPECT_FALSE(ended.answer(0, join_to("job", kJobToken, join))) << "nobody waits";
  join.below.push_back({NodeIndex{8}, "n8:1", {Rank{8}}});
  EXPECT_TRUE(ended.answer(0, join_to("job", kJobToken, join)));
}

// The rank said goodbye before the job had begun; an answer would turn that into a failure.
TEST(EndedJobs, WhoDoesNotWaitHearsNothing) {
  EndedJobs ended;
  ended.add(0, "job", kJobToken, NodeIndex{0}, kWhy);
  EXPECT_FALSE(ended.answer(0, join_to("job", kJobToken, {})));
}

TEST(EndedJobs, ARestartedJobHearsNothingOfTheRunBefore) {
  EndedJobs ended;
  ended.add(0, "job", kJobToken, NodeIndex{0}, kWhy);
  const std::string other(limits::kTokenBytes, 'o');
  EXPECT_FALSE(ended.answer(0, join_to("job", other)));
  const Status later(Code::kNodeLost, "node n4 is lost");
  ended.add(0, "job", other, NodeIndex{2}, later);
  EXPECT_EQ(
      std::get<core::Fail>(ended.answer(0, join_to("job", other))->envelope.message.body).status,
      later);
  EXPECT_EQ(std::get<core::Fail>(ended.answer(0, join_to("job", kJobToken))->envelope.message.body)
                .status,
            kWhy);
}

TEST(EndedJobs, AJobThatBeginsOnceMoreIsNotOver) {
  EndedJobs ended;
  const std::string other(limits::kTokenBytes, 'o');
  ended.add(0, "job", kJobToken, NodeIndex{0}, kWhy);
  ended.add(0, "job", other, NodeIndex{0}, kWhy);
  ended.remove("job", kJobToken);
  EXPECT_FALSE(ended.answer(0, join_to("job", kJobToken)));
  EXPECT_TRUE(ended.answer(0, join_to("job", other)));
}

TEST(EndedJobs, StrangersHearNothing) {
  EndedJobs ended;
  ended.add(0, "job", kJobToken, NodeIndex{0}, kWhy);
  EXPECT_FALSE(ended.answer(0, join_to("other", kJobToken)));
  Envelope played_back = join_to("job", kJobToken);
  played_back.proof.digest = "a Join over another link";
  EXPECT_FALSE(ended.answer(0, played_back));
  Envelope unproven = join_to("job", kJobToken);
  unproven.proof.value.clear();
  EXPECT_FALSE(ended.answer(0, unproven));
  Envelope no_join = join_to("job", kJobToken);
  no_join.message.body = core::Leave{Rank{9}, {}};
  EXPECT_FALSE(ended.answer(0, no_join));
}

TEST(EndedJobs, WhatIsOldOrTooMuchIsForgotten) {
  EndedJobs ended;
  ended.add(0, "old", kJobToken, NodeIndex{0}, kWhy);
  EXPECT_TRUE(ended.answer(EndedJobs::kKeptMs - 1, join_to("old", kJobToken)));
  EXPECT_FALSE(ended.answer(EndedJobs::kKeptMs, join_to("old", kJobToken)));
  EXPECT_EQ(ended.count(), 0u);
  for (size_t i = 0; i <= limits::kMaxJobs; ++i) {
    ended.add(EndedJobs::kKeptMs, "job" + std::to_string(i), kJobToken, NodeIndex{0}, kWhy);
  }
  EXPECT_EQ(ended.count(), limits::kMaxJobs);
  EXPECT_FALSE(ended.answer(EndedJobs::kKeptMs, join_to("job0", kJobToken)));
  EXPECT_TRUE(ended.answer(EndedJobs::kKeptMs, join_to("job1", kJobToken)));
}

}  // namespace
}  // namespace rueda::engine
