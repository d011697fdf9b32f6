#include "daemon/engine/node/pending_job_failures.h"

#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

const std::string kToken(limits::kTokenBytes, 't');
const std::string kOther(limits::kTokenBytes, 'o');

// Stands for what the control plane hashes.
const std::string kFailDigest = "a Fail over this link";

Envelope fail_of(const JobId& job, const std::string& token, const std::string& text = "it died") {
  const NodeIndex from{1};
  return {job,
          {from, Epoch{1}, 0, core::Fail{Status(Code::kRankLost, text)}},
          {{}, kFailDigest, make_proof(make_proof_key(token, job), kFailDigest)}};
}

std::string text_of(const std::optional<Envelope>& envelope) {
  return envelope ? std::get<core::Fail>(envelope->message.body).status.message() : "nothing";
}

TEST(PendingJobFailures, TheFirstIsThereWhenTheJobComes) {
  PendingJobFailures fails;
  fails.add(0, fail_of("job", kToken, "first"));
  fails.add(1, fail_of("job", kToken, "second"));
  fails.add(1, fail_of("other", kToken, "another job's"));
  EXPECT_EQ(text_of(fails.take(2, "job", kToken)), "first");
  EXPECT_EQ(text_of(fails.take(2, "job", kToken)), "nothing") << "it is told once";
  EXPECT_EQ(fails.count(), 1u);
}

TEST(PendingJobFailures, AnotherRunOfTheJobIsNotMeant) {
  PendingJobFailures fails;
  fails.add(0, fail_of("job", kOther));
  Envelope unproven = fail_of("job", kToken);
  unproven.proof.value.clear();
  fails.add(0, unproven);
  Envelope played_back = fail_of("job", kToken);
  played_back.proof.digest = "a Fail over another link";
  fails.add(0, played_back);
  EXPECT_EQ(text_of(fails.take(0, "job", kToken)), "nothing");
}

TEST(PendingJobFailures, WhatIsOldOrTooMuchIsForgotten) {
  PendingJobFailures fails;
  fails.add(0, fail_of("job", kToken));
  EXPECT_EQ(text_of(fails.take(PendingJobFailures::kKeptMs, "job", kToken)), "nothing");
  fails.add(0, fail_of("long", kToken, std::string(PendingJobFailures::kMaxTextBytes + 1, 'x')));
  Envelope no_fail = fail_of("job", kToken);
  no_fail.message.body = core::Left{Rank{0}};
  fails.add(0, no_fail);
  EXPECT_EQ(fails.count(), 0u);
  for (size_t i = 0; i <= PendingJobFailures::kMost; ++i) {
    fails.add(0, fail_of("job" + std::to_string(i), kToken));
  }
  EXPECT_EQ(fails.count(), PendingJobFailures::kMost);
  EXPECT_EQ(text_of(fails.take(0, "job0", kToken)), "nothing");
  EXPECT_EQ(text_of(fails.take(0, "job1", kToken)), "it died");
}

}  // namespace
}  // namespace rueda::engine
