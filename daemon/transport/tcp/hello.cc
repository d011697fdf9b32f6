#include "daemon/transport/tcp/hello.h"

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "daemon/base/check.h"

namespace rueda::transport::tcp {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

namespace {

// One label for each message, so that none can be played back as another.
constexpr std::string_view kHelloLabel = "rueda/hello";
constexpr std::string_view kReplyLabel = "rueda/reply";
constexpr std::string_view kConfirmLabel = "rueda/confirm";

std::span<const std::byte> bytes_of(const void* data, size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

Mac compute_mac(const JobToken& token, std::string_view label, std::span<const std::byte> first,
                std::span<const std::byte> second = {}, std::span<const std::byte> third = {}) {
  std::array<std::byte, 320> input;
  RUEDA_CHECK(label.size() + first.size() + second.size() + third.size() <= input.size());
  std::byte* end = input.data();
  const auto append = [&end](const void* data, size_t bytes) {
    if (bytes != 0) std::memcpy(end, data, bytes);
    end += bytes;
  };
  append(label.data(), label.size());
  append(first.data(), first.size());
  append(second.data(), second.size());
  append(third.data(), third.size());
  Mac mac;
  unsigned int mac_bytes = 0;
  const unsigned char* done = HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                   reinterpret_cast<const unsigned char*>(input.data()),
                                   static_cast<size_t>(end - input.data()),
                                   reinterpret_cast<unsigned char*>(mac.data()), &mac_bytes);
  RUEDA_CHECK(done != nullptr && mac_bytes == kMacBytes);
  return mac;
}

Mac mac_of(const Hello& hello, const JobToken& token) {
  return compute_mac(token, kHelloLabel, bytes_of(&hello, offsetof(Hello, mac)));
}

Mac mac_of(const HelloReply& reply, const Hello& hello, const JobToken& token) {
  return compute_mac(token, kReplyLabel, bytes_of(&reply, offsetof(HelloReply, mac)),
                     bytes_of(&hello, sizeof(hello)));
}

Mac mac_of(const HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
           const JobToken& token) {
  return compute_mac(token, kConfirmLabel, bytes_of(&confirm, offsetof(HelloConfirm, mac)),
                     bytes_of(&hello, sizeof(hello)), bytes_of(&reply, sizeof(reply)));
}

void fill(Nonce& nonce) {
  RUEDA_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                         static_cast<int>(nonce.size())) == 1);
}

Status other_version(uint8_t version) {
  return {Code::kVersion, "it speaks wire version " + std::to_string(version) +
                              ", this daemon speaks " + std::to_string(kWireVersion)};
}

}  // namespace

void sign(Hello& hello, const JobToken& token) {
  fill(hello.nonce);
  hello.mac = mac_of(hello, token);
}

void sign(HelloReply& reply, const Hello& hello, const JobToken& token) {
  fill(reply.nonce);
  reply.mac = mac_of(reply, hello, token);
}

void sign(HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
          const JobToken& token) {
  confirm.mac = mac_of(confirm, hello, reply, token);
}

bool is_authentic(const Hello& hello, const JobToken& token) {
  const Mac expected = mac_of(hello, token);
  return CRYPTO_memcmp(expected.data(), hello.mac.data(), kMacBytes) == 0;
}

bool is_authentic(const HelloReply& reply, const Hello& hello, const JobToken& token) {
  const Mac expected = mac_of(reply, hello, token);
  return CRYPTO_memcmp(expected.data(), reply.mac.data(), kMacBytes) == 0;
}

bool is_authentic(const HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
                  const JobToken& token) {
  const Mac expected = mac_of(confirm, hello, reply, token);
  return CRYPTO_memcmp(expected.data(), confirm.mac.data(), kMacBytes) == 0;
}

ChannelKeys make_keys(const Hello& hello, const HelloReply& reply, const JobToken& token) {
  std::array<std::byte, 2 * sizeof(Nonce)> salt;
  std::memcpy(salt.data(), hello.nonce.data(), sizeof(Nonce));
  std::memcpy(salt.data() + sizeof(Nonce), reply.nonce.data(), sizeof(Nonce));
  return derive_keys(reply.protection, token, salt, hello.id);
}

Status check_hello_prefix(std::span<const std::byte> prefix) {
  RUEDA_CHECK(prefix.size() >= kHelloPrefixBytes);
  uint32_t magic = 0;
  std::memcpy(&magic, prefix.data(), sizeof(magic));
  if (magic != kHelloMagic) return {Code::kPermission, "it does not speak Rueda's data protocol"};
  const auto version = static_cast<uint8_t>(prefix[offsetof(Hello, version)]);
  if (version != kWireVersion) return other_version(version);
  return Status::ok();
}

Status check_reply(const HelloReply& reply) {
  if (reply.magic != kHelloReplyMagic) {
    return {Code::kPermission, "it does not speak Rueda's data protocol"};
  }
  if (reply.version != kWireVersion) return other_version(reply.version);
  if (reply.answer > HelloAnswer::kUpgrade) {
    return {Code::kPermission, "it gave an answer that this daemon does not know"};
  }
  return Status::ok();
}

Status check_confirm(const HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
                     const JobToken& token) {
  if (confirm.magic != kHelloConfirmMagic) {
    return {Code::kPermission, "it does not speak Rueda's data protocol"};
  }
  if (confirm.version != kWireVersion) return other_version(confirm.version);
  if (!is_authentic(confirm, hello, reply, token)) {
    return {Code::kPermission,
            "it played back the hello of another, most likely: it did not "
            "confirm the answer"};
  }
  return Status::ok();
}

}  // namespace rueda::transport::tcp
