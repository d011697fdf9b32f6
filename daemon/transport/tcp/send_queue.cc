#include "daemon/transport/tcp/send_queue.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace rueda::transport::tcp {

namespace asio = boost::asio;

void SendQueue::push(const FrameHeader& header, std::span<const SendBuffer> buffers,
                     uint64_t cookie) {
  RUEDA_CHECK(count_ < frames_.size() && buffers.size() <= kMaxBuffersPerWrite);
  Frame& frame = frames_[(head_ + count_) % frames_.size()];
  ++count_;
  frame.header = header;
  frame.cookie = cookie;
  frame.part_count = 0;
  for (const SendBuffer& buffer : buffers) {
    if (buffer.bytes != 0) {
      frame.parts[frame.part_count++] = asio::const_buffer(buffer.data, buffer.bytes);
    }
  }
}

size_t SendQueue::gather(std::span<asio::const_buffer> parts, size_t max_bytes) const {
  size_t filled = 0;
  size_t bytes = 0;
  size_t skip_bytes = sent_bytes_;
  const auto add = [&](asio::const_buffer part) {
    const size_t skipped = std::min(skip_bytes, part.size());
    skip_bytes -= skipped;
    part += skipped;
    if (part.size() == 0) return;
    parts[filled++] = part;
    bytes += part.size();
  };
  for (size_t i = 0; i < count_ && bytes < max_bytes; ++i) {
    const Frame& frame = frames_[(head_ + i) % frames_.size()];
    if (parts.size() - filled < 1 + frame.part_count) break;
    add(asio::const_buffer(&frame.header, sizeof(frame.header)));
    for (size_t p = 0; p < frame.part_count; ++p) add(frame.parts[p]);
  }
  return filled;
}

bool SendQueue::pop_sent(Sent& done) {
  if (count_ == 0) return false;
  const Frame& frame = frames_[head_];
  const size_t frame_bytes = sizeof(FrameHeader) + frame.header.payload_bytes;
  if (sent_bytes_ < frame_bytes) return false;
  sent_bytes_ -= frame_bytes;
  done = {frame.cookie, frame.header.slot};
  head_ = (head_ + 1) % frames_.size();
  --count_;
  return true;
}

}  // namespace rueda::transport::tcp
