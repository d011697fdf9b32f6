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
TEST(Proof, IsHmacSha256) {
  const std::string key = make_proof_key(kToken, "job-1");
  EXPECT_EQ(to_hex(key), "fc96411b7d01db39a95c311291a73d2697916c56d051e34362c223637d619586");
  EXPECT_EQ(to_hex(make_proof(key, std::string(32, 'd'))),
            "3581bc906e2a0c399831a29159c37848b28e638885806bd3242e7f265c043019");
}

TEST(Proof, TheJobTheTokenAndTheDigestCount) {
  const std::string other(limits::kTokenBytes, 'x');
  const Proof proof{{}, "digest", make_proof(make_proof_key(kToken, "job"), "digest")};
  EXPECT_TRUE(holds(proof, make_proof_key(kToken, "job")));
  EXPECT_FALSE(holds(proof, make_proof_key(other, "job")));
  EXPECT_FALSE(holds(proof, make_proof_key(kToken, "job2")));
  EXPECT_FALSE(holds({{}, "digesT", proof.value}, make_proof_key(kToken, "job")));
  EXPECT_FALSE(holds({{}, "digest", ""}, make_proof_key(kToken, "job")));
  EXPECT_FALSE(holds({}, make_proof_key(kToken, "job"))) << "none came";
}

TEST(Proof, MatchesItselfAlone) {
  const std::string proof = make_proof(kToken, "digest");
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

TEST(Proof, AJobKeyIsOfOneJobAndOneToken) {
  const std::string other(limits::kTokenBytes, 'x');
  EXPECT_EQ(make_job_key(kToken, "job"), make_job_key(kToken, "job"));
  EXPECT_NE(make_job_key(kToken, "job"), make_job_key(kToken, "job2"));
  EXPECT_NE(make_job_key(kToken, "job"), make_job_key(other, "job"));
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
