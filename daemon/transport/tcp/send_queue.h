// The frames on their way out of a connection: a ring of fixed size, from which one system call
// sends many. On a protected connection they are sealed first, a few at a time, into a buffer that
// leaves while it is still in the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/buffer.hpp>

#include "daemon/transport/frame.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

class SendQueue {
 public:
  struct Sent {
    uint64_t cookie = 0;
    uint32_t slot = 0;
  };

  // `capacity` is the number of slots: a frame needs a free slot until it is sent, so there are
  // never more frames than slots.
  SendQueue(uint32_t capacity, uint32_t slot_bytes, const ChannelKeys& keys = {});

  bool is_empty() const { return count_ == 0; }
  // Adds a frame. More frames than the capacity are a bug.
  void push(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  // Fills `parts` with the bytes that come next on the wire, and returns the number of parts
  // filled. It stops behind the frame that brings the total to max_bytes. The parts stay valid
  // until their frames are popped.
  size_t gather(std::span<boost::asio::const_buffer> parts, size_t max_bytes);
  // Says that `bytes` of the gathered bytes have been sent.
  void sent(size_t bytes);
  // Removes the first frame and returns true, if all of the frame has been sent.
  bool pop_sent(Sent& done);

 private:
  struct Frame {
    FrameHeader header;
    uint64_t cookie = 0;
    size_t part_count = 0;
    std::array<boost::asio::const_buffer, kMaxBuffersPerWrite> parts;
  };

  // Frames that are sealed, and what is left to send of them.
  struct Sealed {
    explicit Sealed(const ChannelKeys& keys) : sealer(keys.protection, keys.to_reader) {}
    Sealer sealer;
    std::unique_ptr<std::byte[]> bytes;  // Null until there is something to send.
    size_t begin = 0;
    size_t end = 0;
    size_t frames = 0;  // How many of the queue are sealed.
  };

  boost::asio::const_buffer gather_sealed(size_t max_bytes);
  void seal(const Frame& frame);
  size_t bytes_of(const Frame& frame) const;

  const uint32_t slot_bytes_;
  std::unique_ptr<Sealed> sealed_;  // Null: the connection is not protected.
  std::vector<Frame> frames_;
  size_t head_ = 0;
  size_t count_ = 0;
  size_t sent_bytes_ = 0;  // Bytes already sent of the frames from head_ on.
};

}  // namespace rueda::transport::tcp
