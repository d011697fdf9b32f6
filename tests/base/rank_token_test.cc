#include "daemon/base/rank_token.h"

#include <set>

#include <gtest/gtest.h>

#include "daemon/base/limits.h"

namespace rueda {
namespace {

const std::string kJobToken(limits::kTokenBytes, 'k');

std::string to_hex(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) {
    for (const int nibble : {(byte >> 4) & 15, byte & 15}) out += "0123456789abcdef"[nibble];
  }
  return out;
}

// The values come from Python: hmac.new(b"k" * 32, b"rueda rank\njob-1\n3", "sha256"), and the same
// of b"rueda slot\njob-1\nn0\n3".
TEST(RankToken, IsTheHmacOfThePlace) {
  EXPECT_EQ(to_hex(rank_token(kJobToken, "job-1", Rank{3})),
            "3579be2dbe827bdeb24ad949d49929ccf38a41f48ecc00488b62b1b676662831");
  EXPECT_EQ(to_hex(slot_token(kJobToken, "job-1", "n0", LocalRank{3})),
            "d6f51ef4814e07836ec5f8983db2c2ff4fd7ed6a21301a8b364620569b72b680");
}

TEST(RankToken, EveryFieldCounts) {
  const std::string other(limits::kTokenBytes, 'x');
  const std::set<std::string> all{
      kJobToken,
      rank_token(kJobToken, "job", Rank{1}),
      rank_token(other, "job", Rank{1}),
      rank_token(kJobToken, "job1", Rank{1}),
      rank_token(kJobToken, "job", Rank{11}),
      slot_token(kJobToken, "job", "n", LocalRank{1}),
      slot_token(other, "job", "n", LocalRank{1}),
      slot_token(kJobToken, "job1", "n", LocalRank{1}),
      slot_token(kJobToken, "job", "n1", LocalRank{1}),
      slot_token(kJobToken, "job", "n", LocalRank{11}),
  };
  EXPECT_EQ(all.size(), 10u);
}

TEST(RankToken, IsComparedInFull) {
  const std::string token = rank_token(kJobToken, "job", Rank{1});
  EXPECT_TRUE(is_same_token(token, token));
  EXPECT_FALSE(is_same_token(token, ""));
  EXPECT_FALSE(is_same_token(token, token.substr(1)));
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(is_same_token(token, changed)) << i;
  }
}

}  // namespace
}  // namespace rueda
