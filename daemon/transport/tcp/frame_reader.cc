#include "daemon/transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::transport::tcp {

FrameReader::FrameReader(const ChannelId& id, const SlotRegion& slots, SlotStates& states,
                         std::string peer, ReceiveEvents* placer, const ChannelKeys& keys)
    : id_(id),
      slots_(slots),
      states_(states),
      peer_(std::move(peer)),
      placer_(placer),
      forged_(keys.forged) {
  RUEDA_CHECK(states.size() == slots.count);
  if (keys.is_on()) opener_.emplace(keys.protection, keys.to_reader);
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

void FrameReader::make_room() {
  const size_t bytes = ahead_bytes();
  std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, bytes);
  ahead_begin_ = 0;
  ahead_end_ = bytes;
}

Status FrameReader::changed() const {
  if (forged_ != nullptr) ++*forged_;
  return changed_on_its_way(peer_, id_);
}

Status FrameReader::begin_frame() {
  const size_t tag = opener_ ? kTagBytes : 0;
  if (ahead_bytes() < sizeof(FrameHeader) + tag) return Status::ok();
  const std::span<std::byte> ahead(ahead_.data() + ahead_begin_, ahead_bytes());
  const std::span<std::byte> block = ahead.first<sizeof(FrameHeader)>();
  if (opener_ && !opener_->open(block, ahead.subspan<sizeof(FrameHeader), kTagBytes>())) {
    return changed();
  }
  std::memcpy(&header_, block.data(), sizeof(header_));
  ahead_begin_ += sizeof(header_) + tag;
  if (Status status = check_frame(header_, id_, slots_.slot_bytes, states_, peer_);
      !status.is_ok()) {
    return status;
  }
  states_[header_.slot] = SlotState::kArriving;
  arriving_ = true;
  tag_bytes_ = header_.payload_bytes == 0 ? 0 : tag;
  payload_ = payload_memory();
  payload_have_bytes_ = std::min<size_t>(header_.payload_bytes, ahead_bytes());
  if (payload_have_bytes_ != 0) {
    std::memcpy(payload_.data(), ahead_.data() + ahead_begin_, payload_have_bytes_);
    ahead_begin_ += payload_have_bytes_;
  }
  return Status::ok();
}

Status FrameReader::open_payload() {
  const std::span<const std::byte> ahead(ahead_.data() + ahead_begin_, ahead_bytes());
  if (!opener_->open(payload_, ahead.first<kTagBytes>())) return changed();
  ahead_begin_ += kTagBytes;
  return Status::ok();
}

Result<std::optional<FrameReader::Frame>> FrameReader::next() {
  if (!arriving_) {
    if (Status status = begin_frame(); !status.is_ok()) return status;
  }
  if (!arriving_ || payload_have_bytes_ < header_.payload_bytes || ahead_bytes() < tag_bytes_) {
    make_room();
    return std::optional<Frame>();
  }
  if (tag_bytes_ != 0) {
    if (Status status = open_payload(); !status.is_ok()) return status;
  }
  arriving_ = false;
  states_[header_.slot] = SlotState::kHeld;
  return std::optional<Frame>({header_, payload_});
}

}  // namespace rueda::transport::tcp
