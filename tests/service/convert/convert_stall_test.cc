#include "daemon/service/convert/convert_stall.h"

#include <functional>

#include <gtest/gtest.h>

#include "daemon/service/convert/convert.h"

namespace rueda::service {
namespace {

engine::Envelope envelope_of(core::StallMessage message) {
  return {"job", {NodeIndex{3}, Epoch{5}, 42, std::move(message)}, {}};
}

// Converts a body there and back, through the wire's bytes.
template <class Body>
Body stall_round_trip(const Body& body) {
  v1::JobMessage wire;
  EXPECT_TRUE(wire.ParseFromString(to_proto(envelope_of(body)).SerializeAsString()));
  Result<engine::Envelope> back = from_proto(wire);
  if (!back.is_ok()) {
    ADD_FAILURE() << back.status().message();
    return {};
  }
  return std::get<Body>(std::get<core::StallMessage>(back.value().message.body));
}

core::RankActivity activity(int rank) {
  return {Rank{rank}, true, "last", 4, 1'500, "before", 5, 2'500};
}

core::Stall stall() {
  core::Stall stall;
  stall.tensor = "grad";
  stall.age_ms = 12'345;
  stall.is_news = true;
  stall.submitted = {Rank{0}, Rank{2}};
  stall.missing = {Rank{1}};
  stall.more_submitted = 7;
  stall.more_missing = 9;
  stall.near_misses = {{Rank{1}, "grads", 6}};
  return stall;
}

TEST(ConvertStall, Report) {
  const core::StallReport report{{{"a", 0}, {"b", int64_t{1} << 40}}};
  EXPECT_EQ(stall_round_trip(report).tensors, report.tensors);
  EXPECT_TRUE(stall_round_trip(core::StallReport{}).tensors.empty()) << "nothing waits any more";
}

TEST(ConvertStall, Query) {
  const core::StallQuery back =
      stall_round_trip(core::StallQuery{uint64_t{1} << 63, true, {"a", "b"}});
  EXPECT_EQ(back.round, uint64_t{1} << 63);
  EXPECT_TRUE(back.wants_near_misses);
  EXPECT_EQ(back.names, (std::vector<std::string>{"a", "b"}));
}

TEST(ConvertStall, Answer) {
  core::StallAnswer answer;
  answer.round = 3;
  answer.tensors = {{{Rank{4}, Rank{5}}, {}}, {{}, {{Rank{4}, "b2", 0}}}};
  answer.ranks = {activity(4), {}};
  const core::StallAnswer back = stall_round_trip(answer);
  EXPECT_EQ(back.round, 3u);
  EXPECT_EQ(back.tensors, answer.tensors);
  EXPECT_EQ(back.ranks, answer.ranks);
}

TEST(ConvertStall, Notice) {
  const core::StallNotice notice{{stall()}, {activity(1)}};
  const core::StallNotice back = stall_round_trip(notice);
  EXPECT_EQ(back.stalls, notice.stalls);
  EXPECT_EQ(back.ranks, notice.ranks);
  EXPECT_TRUE(stall_round_trip(core::StallNotice{}).stalls.empty()) << "all goes on";
}

// --- What a peer must not say

struct RejectedStall {
  const char* what;
  std::function<void(v1::JobMessage&)> change;
};

class ConvertStallRejects : public ::testing::TestWithParam<RejectedStall> {};

TEST_P(ConvertStallRejects, TheMessage) {
  v1::JobMessage message = to_proto(envelope_of(core::StallNotice{{stall()}, {activity(1)}}));
  GetParam().change(message);
  const Result<engine::Envelope> converted = from_proto(message);
  ASSERT_FALSE(converted.is_ok());
  EXPECT_EQ(converted.status().code(), Code::kInvalidArgument);
  EXPECT_NE(converted.status().message().find(GetParam().what), std::string::npos)
      << converted.status().message();
}

v1::StallNotice::Stall& stall_in(v1::JobMessage& message) {
  return *message.mutable_stall_notice()->mutable_stalls(0);
}
v1::RankActivity& activity_in(v1::JobMessage& message) {
  return *message.mutable_stall_notice()->mutable_ranks(0);
}
const std::string kTooLong(256, 'x');

INSTANTIATE_TEST_SUITE_P(
    Messages, ConvertStallRejects,
    ::testing::Values(
        RejectedStall{"empty or too long", [](v1::JobMessage& m) { stall_in(m).clear_tensor(); }},
        RejectedStall{"empty or too long", [](v1::JobMessage& m) { stall_in(m).set_tensor(kTooLong); }},
        RejectedStall{"empty or too long",
                 [](v1::JobMessage& m) { stall_in(m).mutable_near_misses(0)->clear_name(); }},
        RejectedStall{"empty or too long",
                 [](v1::JobMessage& m) { activity_in(m).set_last_submitted(kTooLong); }},
        RejectedStall{"empty or too long",
                 [](v1::JobMessage& m) { activity_in(m).set_last_completed(kTooLong); }},
        RejectedStall{"empty or too long",
                 [](v1::JobMessage& m) { m.mutable_stall_report()->add_tensors(); }},
        RejectedStall{"empty or too long",
                 [](v1::JobMessage& m) { m.mutable_stall_query()->add_names(""); }},
        RejectedStall{"impossible age", [](v1::JobMessage& m) { stall_in(m).set_age_ms(-1); }},
        RejectedStall{"impossible age", [](v1::JobMessage& m) { stall_in(m).set_age_ms(INT64_MAX); }},
        RejectedStall{"impossible age",
                 [](v1::JobMessage& m) { activity_in(m).set_submitted_ago_ms(-1); }},
        RejectedStall{"impossible age",
                 [](v1::JobMessage& m) { activity_in(m).set_completed_ago_ms(INT64_MIN); }},
        RejectedStall{"impossible rank", [](v1::JobMessage& m) { stall_in(m).add_missing(-1); }},
        RejectedStall{"impossible rank", [](v1::JobMessage& m) { stall_in(m).add_submitted(65'536); }},
        RejectedStall{"impossible rank", [](v1::JobMessage& m) { activity_in(m).set_rank(INT32_MAX); }},
        RejectedStall{"number of ranks", [](v1::JobMessage& m) { stall_in(m).set_more_missing(-1); }},
        RejectedStall{"number of ranks",
                 [](v1::JobMessage& m) { stall_in(m).set_more_submitted(65'537); }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 64; ++i) stall_in(m).add_missing(i);
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 16; ++i) *stall_in(m).add_near_misses() = {};
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 64; ++i) *m.mutable_stall_notice()->add_stalls() = {};
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 64 * 64; ++i) m.mutable_stall_notice()->add_ranks();
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 65; ++i) m.mutable_stall_report()->add_tensors();
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 65; ++i) m.mutable_stall_query()->add_names("a");
                 }},
        RejectedStall{"too many", [](v1::JobMessage& m) {
                   for (int i = 0; i < 65; ++i) m.mutable_stall_answer()->add_tensors();
                 }}));

}  // namespace
}  // namespace rueda::service
