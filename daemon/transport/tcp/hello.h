// The first bytes on a connection, and the answer to them. The format is in docs/protocol.md,
// "Hello".
//
// The connecting side sends a Hello; the accepting side answers with a HelloReply, or hangs up; and
// the connecting side sends a HelloConfirm. All three carry an HMAC-SHA256 under the job's token,
// and what comes later covers all that came before. Each side has a nonce in it, so each knows that
// the other one has the token and is there now: a hello that is played back is never confirmed.
// Token and nonces then give the connection its keys (transport/seal.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/seal.h"

namespace rueda::transport::tcp {

inline constexpr uint32_t kHelloMagic = 0x48445552;         // "RUDH"
inline constexpr uint32_t kHelloReplyMagic = 0x52445552;    // "RUDR"
inline constexpr uint32_t kHelloConfirmMagic = 0x43445552;  // "RUDC"
inline constexpr size_t kMacBytes = 32;

using Mac = std::array<std::byte, kMacBytes>;
using Nonce = std::array<std::byte, 32>;

struct Hello {
  uint32_t magic = kHelloMagic;
  uint8_t version = kWireVersion;
  uint8_t offers_upgrade = 0;  // 1 if the sender can make more of the connection (upgrade.h).
  uint16_t streams = 1;        // The number of the channel's streams.
  ChannelId id;
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  Protection protection = Protection::kNone;
  std::array<uint8_t, 7> reserved{};
  Nonce nonce{};
  Mac mac{};  // It covers everything before it.
};
static_assert(sizeof(Hello) == 128 && offsetof(Hello, nonce) == 64 && offsetof(Hello, mac) == 96);

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
  Protection protection = Protection::kNone;
  std::array<uint8_t, 7> reserved{};
  Nonce nonce{};
  Mac mac{};  // It covers everything before it, and the whole hello.
};
static_assert(sizeof(HelloReply) == 88 && offsetof(HelloReply, mac) == 56);

struct HelloConfirm {
  uint32_t magic = kHelloConfirmMagic;
  uint8_t version = kWireVersion;
  std::array<uint8_t, 3> reserved{};
  Mac mac{};  // It covers everything before it, the whole hello, and the whole reply.
};
static_assert(sizeof(HelloConfirm) == 40 && offsetof(HelloConfirm, mac) == 8);

// Returns the geometry that the sender of the hello or of the reply has.
inline Geometry geometry_of(const Hello& hello) {
  return {hello.slot_count, hello.slot_bytes, hello.streams, hello.protection};
}
inline Geometry geometry_of(const HelloReply& reply) {
  return {reply.slot_count, reply.slot_bytes, reply.streams, reply.protection};
}

// The first bytes of a hello, which are enough to tell a peer of this version from a stranger.
inline constexpr size_t kHelloPrefixBytes = 8;

// Fills in a fresh nonce, where there is one, and the MAC.
void sign(Hello& hello, const JobToken& token);
void sign(HelloReply& reply, const Hello& hello, const JobToken& token);
void sign(HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
          const JobToken& token);

// Compares the MAC, in constant time, and returns whether it is right.
bool is_authentic(const Hello& hello, const JobToken& token);
bool is_authentic(const HelloReply& reply, const Hello& hello, const JobToken& token);
bool is_authentic(const HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
                  const JobToken& token);

// Returns the keys of the connection that these have opened.
ChannelKeys make_keys(const Hello& hello, const HelloReply& reply, const JobToken& token);

// Returns an error if the first kHelloPrefixBytes of a hello are wrong: kPermission if they are no
// hello at all, kVersion if the hello is of another version.
Status check_hello_prefix(std::span<const std::byte> prefix);
// Checks magic, version and answer of a whole reply with the same errors, and not its MAC.
Status check_reply(const HelloReply& reply);
// Checks magic and version of a confirmation, and its MAC.
Status check_confirm(const HelloConfirm& confirm, const Hello& hello, const HelloReply& reply,
                     const JobToken& token);

}  // namespace rueda::transport::tcp
