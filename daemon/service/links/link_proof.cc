#include "daemon/service/links/link_proof.h"

#include <cstdint>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "daemon/base/check.h"

namespace rueda::service {
namespace {

// Appends a text so that its end cannot be taken for the beginning of the next one.
void append(const std::string& text, std::string& to) {
  for (int shift = 0; shift < 32; shift += 8) {
    to.push_back(static_cast<char>(static_cast<uint32_t>(text.size()) >> shift));
  }
  to += text;
}

}  // namespace

std::string make_nonce() {
  std::string nonce(kNonceBytes, '\0');
  RUEDA_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                         static_cast<int>(nonce.size())) == 1);
  return nonce;
}

std::string digest_of(const LinkEnd& sender, const LinkEnd& receiver, v1::LinkMessage message) {
  message.clear_proof();
  std::string text = "rueda control link\n";
  for (const LinkEnd* end : {&sender, &receiver}) {
    append(end->node_id, text);
    append(end->nonce, text);
  }
  text += message.SerializeAsString();
  std::string digest(32, '\0');
  unsigned int bytes = 0;
  RUEDA_CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()),
                         &bytes, EVP_sha256(), nullptr) == 1 &&
              bytes == digest.size());
  return digest;
}

}  // namespace rueda::service
