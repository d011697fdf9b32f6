#include "daemon/transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::transport::tcp {

FrameReader::FrameReader(const ChannelId& id, const SlotRegion& slots, SlotStates& states,
                         std::string peer, ReceiveEvents* placer)
    : id_(id), slots_(slots), states_(states), peer_(std::move(peer)), placer_(placer) {
  RUEDA_CHECK(states.size() == slots.count);
}

std::span<std::byte> FrameReader::payload_memory() const {
  std::byte* const place = placer_ ? placer_->place(header_) : nullptr;
  std::byte* const slot = slots_.base + size_t{header_.slot} * slots_.slot_bytes;
  return {place ? place : slot, header_.payload_bytes};
}

std::array<asio::mutable_buffer, 2> FrameReader::space() {
  asio::mutable_buffer payload;
  if (arriving_) {
    const std::span<std::byte> rest = payload_.subspan(payload_have_bytes_);
    payload = asio::buffer(rest.data(), rest.size());
  }
  return {payload, asio::buffer(ahead_.data() + ahead_end_, kAheadBytes - ahead_end_)};
}

void FrameReader::filled(size_t bytes) {
  if (arriving_) {
    const size_t to_payload = std::min(bytes, header_.payload_bytes - payload_have_bytes_);
    payload_have_bytes_ += to_payload;
    bytes -= to_payload;
  }
  RUEDA_CHECK(bytes <= kAheadBytes - ahead_end_);
  ahead_end_ += bytes;
}

Result<std::optional<FrameReader::Frame>> FrameReader::next() {
  if (!arriving_) {
    const size_t ahead_bytes = ahead_end_ - ahead_begin_;
    if (ahead_bytes < sizeof(FrameHeader)) {
      std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, ahead_bytes);
      ahead_begin_ = 0;
      ahead_end_ = ahead_bytes;
      return std::optional<Frame>();
    }
    std::memcpy(&header_, ahead_.data() + ahead_begin_, sizeof(header_));
    ahead_begin_ += sizeof(header_);
    Status status = check_frame(header_, id_, slots_.slot_bytes, states_, peer_);
    if (!status.is_ok()) return status;
    states_[header_.slot] = SlotState::kArriving;
    arriving_ = true;
    payload_ = payload_memory();
    payload_have_bytes_ = std::min<size_t>(header_.payload_bytes, ahead_end_ - ahead_begin_);
    if (payload_have_bytes_ != 0) {
      std::memcpy(payload_.data(), ahead_.data() + ahead_begin_, payload_have_bytes_);
      ahead_begin_ += payload_have_bytes_;
    }
  }
  if (payload_have_bytes_ < header_.payload_bytes) {
    RUEDA_CHECK(ahead_begin_ == ahead_end_);
    ahead_begin_ = ahead_end_ = 0;
    return std::optional<Frame>();
  }
  arriving_ = false;
  states_[header_.slot] = SlotState::kHeld;
  return std::optional<Frame>({header_, payload_});
}

}  // namespace rueda::transport::tcp
