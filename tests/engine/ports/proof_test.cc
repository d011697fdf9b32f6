#include "daemon/engine/ports/proof.h"

#include <set>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

const std::string kToken(limits::kTokenBytes, 'k');

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[(static_cast<unsigned char>(byte) >> 4) & 15];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

// Another implementation must compute these values, which are from Python's hmac.new(key, text,
// "sha256").
TEST(Proof, IsHmacSha256OfTheFieldsByLine) {
  EXPECT_EQ(to_hex(make_proof(kToken, "join", "job-1", Epoch{3}, NodeIndex{2})),
            "66aaed58a67bf893d0a5e9e9b524f2a95ee4fcdb68a46b0bd0467809f3b66bfb");
}

TEST(Proof, EveryFieldAndTheTokenCount) {
  const std::string other(limits::kTokenBytes, 'x');
  const std::set<std::string> proofs{
      make_proof(kToken, "join", "job", Epoch{1}, NodeIndex{1}),
      make_proof(other, "join", "job", Epoch{1}, NodeIndex{1}),
      make_proof(kToken, "start", "job", Epoch{1}, NodeIndex{1}),
      make_proof(kToken, "join", "job2", Epoch{1}, NodeIndex{1}),
      make_proof(kToken, "join", "job", Epoch{2}, NodeIndex{1}),
      make_proof(kToken, "join", "job", Epoch{1}, NodeIndex{2}),
      // The end of one field cannot be taken for the beginning of the next.
      make_proof(kToken, "join", "job", Epoch{11}, NodeIndex{1}),
      make_proof(kToken, "join", "job", Epoch{1}, NodeIndex{11}),
      make_proof(kToken, "join", "job1", Epoch{1}, NodeIndex{1}),
  };
  EXPECT_EQ(proofs.size(), 9u);
}

TEST(Proof, MatchesItselfAlone) {
  const std::string proof = make_proof(kToken, "join", "job", Epoch{1}, NodeIndex{1});
  EXPECT_TRUE(proof_matches(proof, proof));
  EXPECT_FALSE(proof_matches(proof, ""));
  EXPECT_FALSE(proof_matches(proof, proof.substr(1)));
  EXPECT_FALSE(proof_matches(proof, proof + 'x'));
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string wrong = proof;
    wrong[i] = static_cast<char>(wrong[i] ^ 1);
    EXPECT_FALSE(proof_matches(proof, wrong)) << "byte " << i;
  }
}

TEST(Proof, ADataTokenIsOfOneJobAndOneEpoch) {
  const transport::JobToken token = make_data_token(kToken, "job", Epoch{1});
  EXPECT_EQ(token, make_data_token(kToken, "job", Epoch{1}));
  EXPECT_NE(token, make_data_token(kToken, "job", Epoch{2}));
  EXPECT_NE(token, make_data_token(kToken, "job2", Epoch{1}));
  EXPECT_NE(token, make_data_token(std::string(limits::kTokenBytes, 'x'), "job", Epoch{1}));
}

}  // namespace
}  // namespace rueda::engine
