#include "daemon/transport/seal.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "daemon/base/check.h"

namespace rueda::transport {

namespace {

constexpr size_t kKeyBytes = 16;

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

// No salt is one of zeros (RFC 5869, section 2.2); OpenSSL 3.0 does not take an empty one.
constexpr std::array<std::byte, 32> kNoSalt{};

// Writes so many bytes of HKDF-SHA256 to `out`.
void hkdf(std::span<const std::byte> key, std::span<const std::byte> salt, std::string_view info,
          std::span<std::byte> out) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  RUEDA_CHECK(kdf != nullptr);
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(EVP_KDF_CTX_new(kdf.get()));
  RUEDA_CHECK(context != nullptr);
  const auto octets = [](const char* name, const void* data, size_t bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), bytes);
  };
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      octets(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      octets(OSSL_KDF_PARAM_INFO, info.data(), info.size()), OSSL_PARAM_construct_end()};
  RUEDA_CHECK(EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()),
                             out.size(), parameters.data()) == 1);
}

const unsigned char* uchars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* uchars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

const char* to_string(Protection protection) {
  switch (protection) {
    case Protection::kNone: return "none";
    case Protection::kAuthenticate: return "authenticate";
    case Protection::kEncrypt: return "encrypt";
  }
  return "unknown";
}

std::optional<Protection> parse_protection(std::string_view text) {
  for (const Protection known :
       {Protection::kNone, Protection::kAuthenticate, Protection::kEncrypt}) {
    if (text == to_string(known)) return known;
  }
  return std::nullopt;
}

ChannelKeys derive_keys(Protection protection, const JobToken& token,
                        std::span<const std::byte> salt, const ChannelId& id) {
  ChannelKeys keys;
  keys.protection = protection;
  if (!keys.is_on()) return keys;
  std::string info = "rueda data 6 ";
  info.append(reinterpret_cast<const char*>(&id), sizeof(id));
  info.push_back(static_cast<char>(protection));
  std::array<std::byte, 2 * sizeof(Secret)> both;
  hkdf(token, salt, info, both);
  std::memcpy(keys.to_reader.data(), both.data(), sizeof(Secret));
  std::memcpy(keys.to_writer.data(), both.data() + sizeof(Secret), sizeof(Secret));
  OPENSSL_cleanse(both.data(), both.size());
  return keys;
}

void BlockCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

BlockCipher::BlockCipher(bool seals, Protection protection, const Secret& secret)
    : seals_(seals),
      encrypts_(protection == Protection::kEncrypt),
      secret_(secret),
      context_(EVP_CIPHER_CTX_new()) {
  RUEDA_CHECK(protection != Protection::kNone && context_ != nullptr);
  RUEDA_CHECK(EVP_CipherInit_ex(context(), EVP_aes_128_gcm(), nullptr, nullptr, nullptr,
                                seals_ ? 1 : 0) == 1);
  set_key();
}

void BlockCipher::set_key() {
  std::array<std::byte, kKeyBytes + std::tuple_size_v<decltype(nonce_)>> made;
  hkdf(secret_, kNoSalt, "key and nonce", made);
  std::memcpy(nonce_.data(), made.data() + kKeyBytes, nonce_.size());
  RUEDA_CHECK(EVP_CipherInit_ex(context(), nullptr, nullptr, uchars(made.data()), nullptr, -1) ==
              1);
  OPENSSL_cleanse(made.data(), made.size());
  Secret next;
  hkdf(secret_, kNoSalt, "next", next);
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  blocks_ = 0;
}

void BlockCipher::begin() {
  if (blocks_ == kBlocksPerKey) set_key();
  std::array<std::byte, 12> nonce = nonce_;
  for (size_t i = 0; i < sizeof(blocks_); ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(blocks_ >> (8 * i));
  }
  ++blocks_;
  RUEDA_CHECK(EVP_CipherInit_ex(context(), nullptr, nullptr, nullptr, uchars(nonce.data()), -1) ==
              1);
}

void BlockCipher::pass(const std::byte* from, std::byte* to, size_t bytes) {
  if (bytes == 0) return;
  int done = 0;
  unsigned char* const out = encrypts_ ? uchars(to) : nullptr;  // To null: the bytes are only read.
  RUEDA_CHECK(EVP_CipherUpdate(context(), out, &done, uchars(from), static_cast<int>(bytes)) == 1);
  if (!encrypts_ && to != from) std::memcpy(to, from, bytes);
}

void Sealer::seal(std::span<const std::span<const std::byte>> parts, std::byte* to) {
  begin();
  for (const std::span<const std::byte> part : parts) {
    pass(part.data(), to, part.size());
    to += part.size();
  }
  int none = 0;
  RUEDA_CHECK(EVP_CipherFinal_ex(context(), uchars(to), &none) == 1 && none == 0);
  RUEDA_CHECK(EVP_CIPHER_CTX_ctrl(context(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, to) == 1);
}

bool Opener::open(std::span<std::byte> block, std::span<const std::byte, kTagBytes> tag) {
  begin();
  pass(block.data(), block.data(), block.size());
  std::array<std::byte, kTagBytes> expected;
  std::copy(tag.begin(), tag.end(), expected.begin());
  RUEDA_CHECK(EVP_CIPHER_CTX_ctrl(context(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) ==
              1);
  int none = 0;
  std::array<unsigned char, kTagBytes> nothing;
  return EVP_CipherFinal_ex(context(), nothing.data(), &none) == 1;
}

}  // namespace rueda::transport
