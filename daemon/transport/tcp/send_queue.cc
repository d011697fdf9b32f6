#include "daemon/transport/tcp/send_queue.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace rueda::transport::tcp {

namespace asio = boost::asio;

namespace {

// Frames are sealed until there is as much as this, and one may go beyond it.
constexpr size_t kSealedBytes = 256u << 10;

}  // namespace

SendQueue::SendQueue(uint32_t capacity, uint32_t slot_bytes, const ChannelKeys& keys)
    : slot_bytes_(slot_bytes), frames_(capacity) {
  if (keys.is_on()) sealed_ = std::make_unique<Sealed>(keys);
}

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

size_t SendQueue::bytes_of(const Frame& frame) const {
  const size_t payload = frame.header.payload_bytes;
  const size_t tags = sealed_ == nullptr ? 0 : payload == 0 ? kTagBytes : 2 * kTagBytes;
  return sizeof(FrameHeader) + payload + tags;
}

void SendQueue::seal(const Frame& frame) {
  Sealed& sealed = *sealed_;
  std::byte* const to = sealed.bytes.get() + sealed.end;
  sealed.sealer.seal(std::as_bytes(std::span(&frame.header, 1)), to);
  if (frame.header.payload_bytes != 0) {
    std::array<std::span<const std::byte>, kMaxBuffersPerWrite> parts;
    for (size_t i = 0; i < frame.part_count; ++i) {
      parts[i] = {static_cast<const std::byte*>(frame.parts[i].data()), frame.parts[i].size()};
    }
    sealed.sealer.seal({parts.data(), frame.part_count}, to + sizeof(FrameHeader) + kTagBytes);
  }
  sealed.end += bytes_of(frame);
  ++sealed.frames;
}

asio::const_buffer SendQueue::gather_sealed(size_t max_bytes) {
  Sealed& sealed = *sealed_;
  if (sealed.begin == sealed.end) {
    if (sealed.bytes == nullptr) {
      const size_t largest = sizeof(FrameHeader) + slot_bytes_ + 2 * kTagBytes;
      sealed.bytes = std::make_unique_for_overwrite<std::byte[]>(kSealedBytes + largest);
    }
    sealed.begin = sealed.end = 0;
    const size_t enough = std::min(max_bytes, kSealedBytes);
    while (sealed.frames < count_ && sealed.end < enough) {
      seal(frames_[(head_ + sealed.frames) % frames_.size()]);
    }
  }
  return {sealed.bytes.get() + sealed.begin, sealed.end - sealed.begin};
}

void SendQueue::sent(size_t bytes) {
  sent_bytes_ += bytes;
  if (sealed_ != nullptr) sealed_->begin += bytes;
}

size_t SendQueue::gather(std::span<asio::const_buffer> parts, size_t max_bytes) {
  if (sealed_ != nullptr) {
    parts[0] = gather_sealed(max_bytes);
    return 1;
  }
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
  const size_t frame_bytes = bytes_of(frame);
  if (sent_bytes_ < frame_bytes) return false;
  sent_bytes_ -= frame_bytes;
  done = {frame.cookie, frame.header.slot};
  head_ = (head_ + 1) % frames_.size();
  --count_;
  if (sealed_ != nullptr) --sealed_->frames;
  return true;
}

}  // namespace rueda::transport::tcp
