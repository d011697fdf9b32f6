#include "daemon/engine/ports/proof.h"

#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

// Returns the HMAC-SHA256. The fields of `text` are separated by a byte that none of them contains,
// but for the last.
std::string hmac(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &bytes);
  RUEDA_CHECK(done != nullptr && bytes == 32);
  return {reinterpret_cast<const char*>(digest), bytes};
}

}  // namespace

std::string make_proof_key(const std::string& token, const JobId& job) {
  return hmac(token, "rueda control key\n" + job);
}

std::string make_proof(const std::string& key, const std::string& digest) {
  return hmac(key, digest);
}

bool holds(const Proof& proof, const std::string& key) {
  return !proof.digest.empty() && proof_matches(make_proof(key, proof.digest), proof.value);
}

bool proof_matches(const std::string& expected, const std::string& given) {
  return expected.size() == given.size() &&
         CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

transport::JobKey make_job_key(const std::string& token, const JobId& job) {
  const std::string digest = hmac(token, "rueda job key\n" + job);
  transport::JobKey key;
  std::memcpy(&key.first, digest.data(), sizeof(key.first));
  std::memcpy(&key.second, digest.data() + sizeof(key.first), sizeof(key.second));
  return key;
}

transport::JobToken make_data_token(const std::string& token, const JobId& job, Epoch epoch) {
  const std::string key = hmac(token, "rueda data\n" + job + '\n' + std::to_string(epoch.value));
  transport::JobToken out;
  RUEDA_CHECK(key.size() == out.size());
  std::memcpy(out.data(), key.data(), out.size());
  return out;
}

}  // namespace rueda::engine
