// The messages by which the two ends of a channel make a queue pair of it, over their TCP
// connection and after its hello (docs/protocol.md, "RDMA"). All numbers are little-endian.
//
//   writer -> reader: Offer    how the writer's queue pair is reached, or why there is none
//   reader -> writer: Offer    the same of the reader's, and where its slots and headers are
//   writer -> reader: Go       only if both have one: whether the writer could connect
//
// The connection stays open: its end is the channel's end. Frames go over it if they cannot go over
// RDMA.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/transport/frame.h"

namespace rueda::transport::rdma {

inline constexpr uint32_t kOfferMagic = 0x4f445552;  // "RUDO"
inline constexpr uint32_t kGoMagic = 0x47445552;     // "RUDG"
inline constexpr uint32_t kByeMagic = 0x42445552;    // "RUDB"
inline constexpr uint8_t kExchangeVersion = 1;

struct Offer {
  uint32_t magic = kOfferMagic;
  uint8_t version = kExchangeVersion;
  uint8_t is_able = 0;  // 0: `reason` says why this end cannot use RDMA.
  uint8_t is_infiniband = 0;
  uint8_t mtu = 0;  // The port's, as enum ibv_mtu.
  uint32_t pair = 0;
  uint32_t first_packet = 0;
  std::array<uint8_t, 16> gid{};
  uint16_t lid = 0;
  uint16_t rails = 0;  // How many devices the streams use in turn; 0: the address chooses one.
  uint32_t slots_key = 0;
  uint64_t slots_address = 0;
  uint64_t headers_address = 0;
  uint32_t headers_key = 0;
  std::array<char, 196> reason{};  // It is printable, and ends with a 0.
};
static_assert(sizeof(Offer) == 256 && offsetof(Offer, slots_address) == 40);

struct Go {
  uint32_t magic = kGoMagic;
  uint32_t is_connected = 0;  // 0: frames go over TCP.
};
static_assert(sizeof(Go) == 8);

// The writer's last message: so many of its frames have reached the reader's memory.
struct Bye {
  uint32_t magic = kByeMagic;
  uint32_t reserved = 0;
  uint64_t frames = 0;
};
static_assert(sizeof(Bye) == 16);

// Returns the number of a channel's stream, whose remainder by the number of rails is the stream's
// rail: streams of a channel have one after the other, and channels between a pair of nodes begin
// at different ones.
uint32_t rail_number(const ChannelId& id);

void set_reason(Offer& offer, const std::string& reason);
// Returns the peer's reason, with everything that does not belong into a log replaced.
std::string reason_of(const Offer& offer);
// Returns true if the peer speaks this version of the exchange.
bool is_valid(const Offer& offer);

}  // namespace rueda::transport::rdma
