// Frames on their way out of a connection: a ring of fixed size, gathered many to a system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <boost/asio/buffer.hpp>

#include "daemon/transport/frame.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

class SendQueue {
 public:
  struct Sent {
    uint64_t cookie = 0;
    uint32_t slot = 0;
  };

  // A frame needs a free slot until it is sent, so as many entries as slots are enough.
  explicit SendQueue(uint32_t capacity) : frames_(capacity) {}

  bool is_empty() const { return count_ == 0; }
  // More frames than the capacity are a bug.
  void push(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  // Fills `parts` with what comes next on the wire; returns how many it filled. Stops behind the
  // frame that brings it to max_bytes. They stay valid until the frames are popped.
  size_t gather(std::span<boost::asio::const_buffer> parts, size_t max_bytes) const;
  // `bytes` of what was gathered have been taken.
  void sent(size_t bytes) { sent_bytes_ += bytes; }
  // Takes off the first frame if all of it was sent.
  bool pop_sent(Sent& done);

 private:
  struct Frame {
    FrameHeader header;
    uint64_t cookie = 0;
    size_t part_count = 0;
    std::array<boost::asio::const_buffer, kMaxBuffersPerWrite> parts;
  };

  std::vector<Frame> frames_;
  size_t head_ = 0;
  size_t count_ = 0;
  size_t sent_bytes_ = 0;  // of the frames from head_ on
};

}  // namespace rueda::transport::tcp
