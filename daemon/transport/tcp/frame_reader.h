// Cuts the byte stream of a connection into frames, and puts each payload straight into its slot,
// or where the placer wants it.
//
// The reader has no socket: the caller reads into space(), says how many bytes came, and takes
// frames until there is none. Behind the payload that is awaited, space() has room for the next
// header and a little more. So a stream of large frames costs one system call for each frame, and
// small frames come many to a call, at the price of copying those few bytes.
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

  // `states` has one entry for each slot and outlives the reader; `peer` names the other end in
  // errors. next() asks `placer` where a payload belongs; without a placer, payloads go into their
  // slots.
  FrameReader(const ChannelId& id, const SlotRegion& slots, SlotStates& states, std::string peer,
              ReceiveEvents* placer = nullptr);

  // Returns the memory that the next bytes of the stream belong in. At least one of the two buffers
  // has room.
  std::array<asio::mutable_buffer, 2> space();
  // Says that `bytes` bytes of the space, from its start, hold data now.
  void filled(size_t bytes);
  // Returns the next frame, whose slot is then held; or nothing until more bytes have come; or the
  // violation that ends the stream. It must have returned nothing before space() is called.
  Result<std::optional<Frame>> next();
  // Returns true if the stream stands between two frames.
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
  bool arriving_ = false;  // header_ is valid, and its payload is not whole
  std::span<std::byte> payload_;
  size_t payload_have_bytes_ = 0;
  std::array<std::byte, kAheadBytes> ahead_;  // Bytes that follow the payload in the stream.
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace rueda::transport::tcp
