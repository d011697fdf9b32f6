// The first bytes on a connection, and what answers them. Format: docs/protocol.md, "Hello".
//
// Connecting side: Hello. Accepting side: HelloReply, or it hangs up. Both carry an HMAC-SHA256
// under the job's token; that of the reply covers the hello with its nonce, so that each side
// knows that the other one has the token. Content is not encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport::tcp {

inline constexpr uint32_t kHelloMagic = 0x48445552;       // "RUDH"
inline constexpr uint32_t kHelloReplyMagic = 0x52445552;  // "RUDR"
inline constexpr size_t kMacBytes = 32;

using Mac = std::array<std::byte, kMacBytes>;
using Nonce = std::array<std::byte, 16>;

struct Hello {
  uint32_t magic = kHelloMagic;
  uint8_t version = kWireVersion;
  uint8_t reserved = 0;
  uint16_t streams = 1;  // of the channel
  ChannelId id;
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  Nonce nonce{};
  Mac mac{};  // over everything before it
};
static_assert(sizeof(Hello) == 96 && offsetof(Hello, mac) == 64);

enum class HelloAnswer : uint8_t {
  kWelcome = 0,
  kOtherGeometry = 1,  // the reply says what the accepting side has
};

struct HelloReply {
  uint32_t magic = kHelloReplyMagic;
  uint8_t version = kWireVersion;
  HelloAnswer answer = HelloAnswer::kWelcome;
  uint16_t streams = 1;
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  Mac mac{};  // over everything before it and the whole hello
};
static_assert(sizeof(HelloReply) == 48 && offsetof(HelloReply, mac) == 16);

// What the sender of it has.
inline Geometry geometry_of(const Hello& hello) {
  return {hello.slot_count, hello.slot_bytes, hello.streams};
}
inline Geometry geometry_of(const HelloReply& reply) {
  return {reply.slot_count, reply.slot_bytes, reply.streams};
}

// How much of a hello is enough to tell a peer of this version from a stranger.
inline constexpr size_t kHelloPrefixBytes = 8;

// Fills in a fresh nonce and the MAC.
void seal(Hello& hello, const JobToken& token);
void seal(HelloReply& reply, const Hello& hello, const JobToken& token);

// Constant-time comparison of the MAC.
bool is_authentic(const Hello& hello, const JobToken& token);
bool is_authentic(const HelloReply& reply, const Hello& hello, const JobToken& token);

// What is wrong with the first kHelloPrefixBytes of a hello; kPermission for something that is no
// hello at all, kVersion for one of another version.
Status check_hello_prefix(std::span<const std::byte> prefix);
// Likewise for a whole reply. Says nothing about its MAC.
Status check_reply(const HelloReply& reply);

}  // namespace rueda::transport::tcp
