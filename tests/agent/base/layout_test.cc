#include "agent/base/layout.h"

#include <map>

#include <gtest/gtest.h>

#include "agent/base/text.h"
#include "daemon/base/rank_token.h"

namespace rueda::agent {
namespace {

std::vector<std::vector<int>> numbers(const Result<std::vector<std::vector<Rank>>>& blocks) {
  std::vector<std::vector<int>> out;
  if (!blocks.is_ok()) return out;
  for (const auto& block : blocks.value()) {
    out.emplace_back();
    for (Rank rank : block) out.back().push_back(rank.value);
  }
  return out;
}

using Blocks = std::vector<std::vector<int>>;

TEST(Layout, DealsEvenlyAndTheFirstNodesGetOneMore) {
  EXPECT_EQ(numbers(deal_evenly(5, 2)), (Blocks{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(numbers(deal_evenly(4, 2)), (Blocks{{0, 1}, {2, 3}}));
  EXPECT_EQ(numbers(deal_evenly(8, 3)), (Blocks{{0, 1, 2}, {3, 4, 5}, {6, 7}}));
  EXPECT_EQ(numbers(deal_evenly(1, 1)), (Blocks{{0}}));
}

TEST(Layout, DealsByCounts) {
  EXPECT_EQ(numbers(deal_by_counts({1, 3, 2})), (Blocks{{0}, {1, 2, 3}, {4, 5}}));
}

TEST(Layout, RefusesEmptyAndOverfullNodes) {
  const auto empty = deal_evenly(2, 3);
  ASSERT_FALSE(empty.is_ok());
  EXPECT_EQ(empty.status().code(), Code::kInvalidArgument);
  EXPECT_NE(empty.status().message().find("3 nodes"), std::string::npos);
  EXPECT_FALSE(deal_evenly(65, 1).is_ok());
  EXPECT_TRUE(deal_evenly(64, 1).is_ok());
  EXPECT_FALSE(deal_by_counts({2, 0}).is_ok());
  EXPECT_FALSE(deal_by_counts(std::vector<int>(4097, 1)).is_ok());
}

TEST(Layout, TellsARankWhereItIs) {
  JobLayout job{"job-1", std::string(32, '\xab'), {}, "10.0.0.1", 1234};
  job.nodes.push_back({"a", "10.0.0.1:5", {Rank(0), Rank(1), Rank(2)}});
  job.nodes.push_back({"b", "10.0.0.2:5", {Rank(3), Rank(4)}});
  const Environment list =
      rank_environment(job, 1, job.nodes.at(1).ranks.at(1), 1, "@sock", {"h:1", "h:2"});
  const std::map<std::string, std::string> got(list.begin(), list.end());
  const std::map<std::string, std::string> expected{
      {"RANK", "4"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "5"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"NODE_RANK", "1"},
      {"GROUP_RANK", "1"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "1234"},
      {"TORCHELASTIC_RUN_ID", "job-1"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "4"},
      {"ROLE_WORLD_SIZE", "5"},
      {"RUEDA_SOCKET", "@sock"},
      {"RUEDA_JOB_ID", "job-1"},
      {"RUEDA_NODE_RANK", "1"},
      {"RUEDA_NNODES", "2"},
      {"RUEDA_HTTP_ADDRESSES", "h:1,h:2"},
      {"HOROVOD_RANK", "4"},
      {"HOROVOD_SIZE", "5"},
      {"HOROVOD_LOCAL_RANK", "1"},
      {"HOROVOD_LOCAL_SIZE", "2"},
      {"HOROVOD_CROSS_RANK", "1"},
      {"HOROVOD_CROSS_SIZE", "2"},
  };
  EXPECT_EQ(got, expected);
}

TEST(RankEnvironment, HasNoTokenAndARankIsToldItsOwn) {
  JobLayout job{"job-1", std::string(32, '\xab'), {}, "10.0.0.1", 1234};
  job.nodes.push_back({"a", "10.0.0.1:5", {Rank(0), Rank(1)}});
  for (const auto& [name, value] : rank_environment(job, 0, Rank(1), 1, "@sock", {})) {
    EXPECT_EQ(value.find(to_hex(job.token)), std::string::npos) << name;
    EXPECT_NE(name, kTokenVariable);
  }
  EXPECT_EQ(token_text(job, "a", Rank(1), 0, false),
            to_hex(rank_token(job.token, "job-1", Rank(1))));
  EXPECT_EQ(token_text(job, "a", Rank(1), 0, true),
            to_hex(slot_token(job.token, "job-1", "a", LocalRank(0))));
}

TEST(Text, RandomBytesDiffer) {
  const auto one = random_bytes(32);
  const auto other = random_bytes(32);
  ASSERT_TRUE(one.is_ok() && other.is_ok());
  EXPECT_EQ(one.value().size(), 32u);
  EXPECT_NE(one.value(), other.value());
  EXPECT_EQ(to_hex(std::string("\x00\xff", 2)), "00ff");
}

}  // namespace
}  // namespace rueda::agent
