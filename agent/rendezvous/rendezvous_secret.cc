#include "agent/rendezvous/rendezvous_secret.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "agent/base/text.h"
#include "daemon/base/check.h"

namespace rueda::agent {
namespace {

constexpr int kIvBytes = 12;
constexpr int kTagBytes = 16;

std::string hmac_sha256(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  const unsigned char* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &bytes);
  RUEDA_CHECK(done != nullptr && bytes == 32);
  return {reinterpret_cast<const char*>(digest), bytes};
}

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

std::string sealing_key(const std::string& secret, const Nonces& nonces) {
  return hmac_sha256(secret, "rueda rendezvous seal\n" + nonces.server + nonces.client);
}

}  // namespace

std::string prove_secret(const std::string& secret, const Nonces& nonces,
                         const std::string& request) {
  // The nonces have a fixed length, so no bytes can be moved from one field to another.
  return hmac_sha256(secret, "rueda rendezvous enter\n" + nonces.server + nonces.client + request);
}

bool is_same_proof(const std::string& expected, const std::string& given) {
  return expected.size() == given.size() &&
         CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

Result<std::string> seal(const std::string& secret, const Nonces& nonces, const std::string& text,
                         const std::string& beside) {
  const Result<std::string> iv = random_bytes(kIvBytes);
  if (!iv.is_ok()) return iv;
  const std::string key = sealing_key(secret, nonces);
  const Cipher cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::string sealed(text.size(), '\0');
  std::string tag(kTagBytes, '\0');
  int count = 0;
  const bool is_done =
      cipher != nullptr &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key),
                         bytes_of(iv.value())) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &count, bytes_of(beside),
                        static_cast<int>(beside.size())) == 1 &&
      EVP_EncryptUpdate(cipher.get(), bytes_of(sealed), &count, bytes_of(text),
                        static_cast<int>(text.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), nullptr, &count) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1;
  if (!is_done) return Status(Code::kInternal, "the job's token could not be sealed");
  return iv.value() + tag + sealed;
}

Result<std::string> unseal(const std::string& secret, const Nonces& nonces,
                           const std::string& sealed, const std::string& beside) {
  const Status wrong(Code::kPermission,
                     "the rendezvous does not know this node's secret: give all nodes the same "
                     "--rdzv-secret-file");
  if (sealed.size() < kIvBytes + kTagBytes) return wrong;
  const std::string key = sealing_key(secret, nonces);
  std::string tag = sealed.substr(kIvBytes, kTagBytes);
  const std::string text = sealed.substr(kIvBytes + kTagBytes);
  const Cipher cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::string out(text.size(), '\0');
  int count = 0;
  const bool is_right =
      cipher != nullptr &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key),
                         bytes_of(sealed)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &count, bytes_of(beside),
                        static_cast<int>(beside.size())) == 1 &&
      EVP_DecryptUpdate(cipher.get(), bytes_of(out), &count, bytes_of(text),
                        static_cast<int>(text.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), nullptr, &count) == 1;
  if (!is_right) return wrong;
  return out;
}

Result<std::string> read_secret(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(Code::kNotFound,
                  "--rdzv-secret-file " + path + " cannot be read: " + std::strerror(errno));
  }
  std::string text;
  char buffer[kMaxSecretBytes + 1];
  file.read(buffer, sizeof(buffer));
  text.assign(buffer, static_cast<size_t>(file.gcount()));
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const size_t end = text.find_last_not_of(" \t\r\n");
  text = begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
  if (Status status = check_secret(text, "--rdzv-secret-file " + path); !status.is_ok()) {
    return status;
  }
  return text;
}

Status check_secret(const std::string& secret, const std::string& where) {
  if (secret.size() >= kMinSecretBytes && secret.size() <= kMaxSecretBytes) return Status::ok();
  return Status(Code::kInvalidArgument,
                where + " has " + std::to_string(secret.size()) + " bytes, and a secret has " +
                    std::to_string(kMinSecretBytes) + " to " + std::to_string(kMaxSecretBytes) +
                    ": \"openssl rand -hex 32\" makes one");
}

}  // namespace rueda::agent
