// Cuts the byte stream of a connection into frames, and puts payloads straight into their slots, or
// where they are wanted.
//
// It has no socket: the caller reads into space(), says how much came, and takes frames until
// there is none. Behind the payload that is awaited, space() has room for the next header and a
// little more: so a stream of large frames costs one system call each, and small frames come many
// to a call, at the price of copying that little.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/tcp/asio_types.h"

namespace rueda::transport::tcp {

class FrameReader {
 public:
  struct Frame {
    FrameHeader header;
    std::span<std::byte> payload;
  };

  // `states` has one entry a slot and outlives the reader; `peer` names the other end in errors.
  // `placer` is asked where payloads belong, in next(); null: in their slots.
  FrameReader(const ChannelId& id, const SlotRegion& slots, SlotStates& states, std::string peer,
              ReceiveEvents* placer = nullptr);

  // Where the next bytes of the stream belong. Never empty as a whole.
  std::array<asio::mutable_buffer, 2> space();
  // `bytes` of the space, from its start, hold data now.
  void filled(size_t bytes);
  // The next frame, its slot now held; or nothing until more bytes have come; or the violation that
  // ends the stream. Must have returned nothing before space() is asked for.
  Result<std::optional<Frame>> next();
  // Whether the stream stands between two frames.
  bool at_boundary() const { return !arriving_ && ahead_begin_ == ahead_end_; }

 private:
  static constexpr size_t kAheadBytes = 4096;

  std::span<std::byte> payload_memory() const;

  const ChannelId id_;
  const SlotRegion slots_;
  SlotStates& states_;
  const std::string peer_;
  ReceiveEvents* const placer_;
  FrameHeader header_;
  bool arriving_ = false;  // header_ is valid, its payload is not whole
  std::span<std::byte> payload_;
  size_t payload_have_bytes_ = 0;
  std::array<std::byte, kAheadBytes> ahead_;  // bytes behind the payload in the stream
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace rueda::transport::tcp
