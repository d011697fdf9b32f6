#include "daemon/base/rank_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "daemon/base/check.h"
#include "daemon/base/limits.h"

namespace rueda {
namespace {

// The fields of `text` are separated by a line end, which no job and no node has in its name.
std::string hmac(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  const unsigned char* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &bytes);
  RUEDA_CHECK(done != nullptr && bytes == limits::kTokenBytes);
  return {reinterpret_cast<const char*>(digest), bytes};
}

}  // namespace

std::string rank_token(const std::string& job_token, const JobId& job, Rank rank) {
  return hmac(job_token, "rueda rank\n" + job + '\n' + std::to_string(rank.value));
}

std::string slot_token(const std::string& job_token, const JobId& job, const std::string& node_id,
                       LocalRank slot) {
  return hmac(job_token, "rueda slot\n" + job + '\n' + node_id + '\n' + std::to_string(slot.value));
}

bool is_same_token(const std::string& expected, const std::string& given) {
  return expected.size() == given.size() &&
         CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

}  // namespace rueda
