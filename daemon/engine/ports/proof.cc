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

std::string make_proof(const std::string& token, const std::string& purpose, const JobId& job,
                       Epoch epoch, NodeIndex from) {
  return hmac(token, "rueda " + purpose + '\n' + job + '\n' + std::to_string(epoch.value) + '\n' +
                         std::to_string(from.value));
}

std::string make_packet_proof(const std::string& token, const JobId& job, const std::string& body) {
  return hmac(token, "rueda generation\n" + job + '\n' + body);
}

bool proof_matches(const std::string& expected, const std::string& given) {
  return expected.size() == given.size() &&
         CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

transport::JobToken make_data_token(const std::string& token, const JobId& job, Epoch epoch) {
  const std::string key = make_proof(token, "data", job, epoch, NodeIndex{-1});
  transport::JobToken out;
  RUEDA_CHECK(key.size() == out.size());
  std::memcpy(out.data(), key.data(), out.size());
  return out;
}

}  // namespace rueda::engine
