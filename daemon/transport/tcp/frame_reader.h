// Cuts the byte stream of a connection into frames, and puts each payload straight into its slot,
// or where the placer wants it.
//
// The reader has no socket: the caller reads into space(), says how many bytes came, and takes
// frames until there is none. Behind the payload that is awaited, space() has room for the next
// header and a little more. So a stream of large frames costs one system call for each frame, and
// small frames come many to a call, at the price of copying those few bytes.
//
// On a protected connection header and payload are a block each (seal.h), with a tag behind it.
// Nothing that a header says is believed, and no byte goes to where it says, before it has opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/seal.h"
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
              ReceiveEvents* placer = nullptr, const ChannelKeys& keys = {});

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
  // A frame of 4 KiB, its header and its tags come in one call.
  static constexpr size_t kAheadBytes = 4096 + 256;

  std::span<std::byte> payload_memory() const;
  size_t ahead_bytes() const { return ahead_end_ - ahead_begin_; }
  // Moves what is ahead to its buffer's beginning, so that more can come.
  void make_room();
  // Takes the next header, if all of it has come.
  Status begin_frame();
  // Takes the payload's tag, and opens it. Returns what is wrong with it.
  Status open_payload();
  Status changed() const;

  const ChannelId id_;
  const SlotRegion slots_;
  SlotStates& states_;
  const std::string peer_;
  ReceiveEvents* const placer_;
  std::optional<Opener> opener_;  // None: the connection is not protected.
  const std::shared_ptr<uint64_t> forged_;
  FrameHeader header_;
  bool arriving_ = false;  // header_ is valid, and its payload is not whole
  std::span<std::byte> payload_;
  size_t payload_have_bytes_ = 0;
  size_t tag_bytes_ = 0;                      // Of the tag that follows the payload.
  std::array<std::byte, kAheadBytes> ahead_;  // Bytes that follow the payload in the stream.
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace rueda::transport::tcp
