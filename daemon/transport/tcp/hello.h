// The first bytes on a connection, and the answer to them. The format is in docs/protocol.md,
// "Hello".
//
// The connecting side sends a Hello; the accepting side answers with a HelloReply, or hangs up.
// Both carry an HMAC-SHA256 under the job's token. The reply's HMAC also covers the hello with its
// nonce, so that each side knows that the other one has the token. Content is not encrypted.
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
  uint8_t offers_upgrade = 0;  // 1 if the sender can make more of the connection (upgrade.h).
  uint16_t streams = 1;        // The number of the channel's streams.
  ChannelId id;
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  Nonce nonce{};
  Mac mac{};  // It covers everything before it.
};
static_assert(sizeof(Hello) == 96 && offsetof(Hello, mac) == 64);

enum class HelloAnswer : uint8_t {
  kWelcome = 0,
  kOtherGeometry = 1,  // The reply has the geometry of the accepting side.
  kUpgrade = 2,        // The peer is welcome, and its offer of an upgrade is taken up.
};

struct HelloReply {
  uint32_t magic = kHelloReplyMagic;
  uint8_t version = kWireVersion;
  HelloAnswer answer = HelloAnswer::kWelcome;
  uint16_t streams = 1;
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  Mac mac{};  // It covers everything before it, and the whole hello.
};
static_assert(sizeof(HelloReply) == 48 && offsetof(HelloReply, mac) == 16);

// Returns the geometry that the sender of the hello or of the reply has.
inline Geometry geometry_of(const Hello& hello) {
  return {hello.slot_count, hello.slot_bytes, hello.streams};
}
inline Geometry geometry_of(const HelloReply& reply) {
  return {reply.slot_count, reply.slot_bytes, reply.streams};
}

// The first bytes of a hello, which are enough to tell a peer of this version from a stranger.
inline constexpr size_t kHelloPrefixBytes = 8;

// Fills in the MAC and, for a hello, a fresh nonce.
void seal(Hello& hello, const JobToken& token);
void seal(HelloReply& reply, const Hello& hello, const JobToken& token);

// Compares the MAC, in constant time, and returns whether it is right.
bool is_authentic(const Hello& hello, const JobToken& token);
bool is_authentic(const HelloReply& reply, const Hello& hello, const JobToken& token);

// Returns an error if the first kHelloPrefixBytes of a hello are wrong: kPermission if they are no
// hello at all, kVersion if the hello is of another version.
Status check_hello_prefix(std::span<const std::byte> prefix);
// Checks magic, version and answer of a whole reply with the same errors, and not its MAC.
Status check_reply(const HelloReply& reply);

}  // namespace rueda::transport::tcp
