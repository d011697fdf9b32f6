#include "daemon/transport/striped_channels.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport {

namespace {

// A stream with less than this under way takes the next frame: small frames leave in one system
// call, in the stream that is warm.
constexpr uint64_t kLittleBytes = 64 << 10;

}  // namespace

// --- Sending
// ---------------------------------------------------------------------------------------

StripedSendChannel::StripedSendChannel(boost::asio::io_context& io, const ConnectOptions& options,
                                       uint32_t streams)
    : io_(io), events_(options.events), streams_(streams), slots_(options.slot_count) {
  for (Stream& stream : streams_) stream.owner = this;
}

StripedSendChannel::~StripedSendChannel() {
  lifetime_.end();
  close();
}

void StripedSendChannel::open() {
  is_open_ = true;
  if (!closed_early_) return;
  boost::asio::post(io_,
                    lifetime_.guard([this, status = *closed_early_] { on_stream_closed(status); }));
}

uint8_t StripedSendChannel::choose_stream() const {
  const size_t used =
      used_streams_ == 0 ? streams_.size() : std::min<size_t>(used_streams_, streams_.size());
  uint8_t best = 0;
  for (uint8_t i = 0; i < used; ++i) {
    if (streams_[i].unreleased_bytes < kLittleBytes) return i;
    if (streams_[i].unreleased_bytes < streams_[best].unreleased_bytes) best = i;
  }
  return best;
}

void StripedSendChannel::write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                               uint64_t cookie) {
  if (events_ == nullptr) return;
  RUEDA_CHECK(slot_free(header.slot));
  Slot& slot = slots_[header.slot];
  slot.stream = choose_stream();
  slot.bytes = static_cast<uint32_t>(sizeof(header) + header.payload_bytes);
  Stream& stream = streams_[slot.stream];
  stream.unreleased_bytes += slot.bytes;
  stream.channel->write(header, buffers, cookie);
}

void StripedSendChannel::on_slot_free(uint32_t freed) {
  Slot& slot = slots_[freed];
  streams_[slot.stream].unreleased_bytes -= slot.bytes;
  slot = {};
  events_->on_slot_free(freed);
}

void StripedSendChannel::on_stream_closed(const Status& status) {
  if (!is_open_) {
    if (!closed_early_) closed_early_ = status;
    return;
  }
  SendEvents* const events = events_;
  if (events == nullptr) return;
  close();
  events->on_closed(status);
}

void StripedSendChannel::close() {
  events_ = nullptr;
  for (const Stream& stream : streams_) {
    if (stream.channel) stream.channel->close();
  }
}

bool StripedSendChannel::sends_from(RegionKey region) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const Stream& stream) { return stream.channel->sends_from(region); });
}

uint64_t StripedSendChannel::bytes_sent() const {
  uint64_t bytes = 0;
  for (const Stream& stream : streams_) bytes += stream.channel->bytes_sent();
  return bytes;
}

uint64_t StripedSendChannel::bytes_unacknowledged() const {
  uint64_t bytes = 0;
  for (const Stream& stream : streams_) bytes += stream.channel->bytes_unacknowledged();
  return bytes;
}

// --- Receiving
// -------------------------------------------------------------------------------------

StripedReceiveChannel::StripedReceiveChannel(boost::asio::io_context& io,
                                             const AcceptOptions& options, uint32_t streams)
    : io_(io),
      id_(options.id),
      timeout_ms_(options.timeout_ms),
      events_(options.events),
      streams_(streams),
      stream_of_slot_(options.slots.count, kNoStream),
      linger_timer_(io) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].owner = this;
    streams_[i].index = static_cast<uint8_t>(i);
  }
}

StripedReceiveChannel::~StripedReceiveChannel() {
  lifetime_.end();
  close();
}

void StripedReceiveChannel::open() {
  is_open_ = true;
  if (early_.empty() && !cause_) return;
  boost::asio::post(io_, lifetime_.guard([this] { deliver_early(); }));
}

// A frame may come before the channel is open, because the writer may have its last stream before
// this end has: it writes, and may close, at once.
void StripedReceiveChannel::on_frame(const Frame& frame) {
  if (is_open_ && early_.empty()) return deliver(frame);
  early_.push_back(frame);
}

void StripedReceiveChannel::deliver_early() {
  const Lifetime::Watch life = lifetime_.watch();
  for (size_t i = 0; i < early_.size(); ++i) {
    deliver(Frame(early_[i]));
    if (!life.lasts() || events_ == nullptr) return;
  }
  early_.clear();
  end_if_over();
}

void StripedReceiveChannel::deliver(const Frame& frame) {
  uint8_t& stream = stream_of_slot_[frame.header.slot];
  if (stream != kNoStream) {
    return fail({Code::kInternal, "node " + std::to_string(id_.from_node) +
                                      " broke the frame protocol: slot " +
                                      std::to_string(frame.header.slot) + " of " + describe(id_) +
                                      " still holds a frame of another stream"});
  }
  stream = frame.stream;
  events_->on_frame(frame.header, frame.payload);
}

void StripedReceiveChannel::release(uint32_t slot) {
  if (events_ != nullptr) let_go(slot).release(slot);
}

void StripedReceiveChannel::release_with_others(uint32_t slot) {
  if (events_ != nullptr) let_go(slot).release_with_others(slot);
}

ReceiveChannel& StripedReceiveChannel::let_go(uint32_t slot) {
  RUEDA_CHECK(slot < stream_of_slot_.size() && stream_of_slot_[slot] != kNoStream);
  return *streams_[std::exchange(stream_of_slot_[slot], kNoStream)].channel;
}

void StripedReceiveChannel::on_stream_closed(const Status& status) {
  ++ended_streams_;
  const bool is_orderly = status.code() == Code::kNodeLost;
  is_over_ = is_over_ || !is_orderly;
  if (!cause_ || !is_orderly) cause_ = status;
  if (ended_streams_ == 1) linger();
  end_if_over();
}

void StripedReceiveChannel::linger() {
  linger_timer_.expires_after(std::chrono::milliseconds(timeout_ms_));
  linger_timer_.async_wait(lifetime_.guard(
      [this, received = bytes_received()](const boost::system::error_code& cancelled) {
        if (cancelled) return;
        if (bytes_received() != received) return linger();
        is_over_ = true;
        end_if_over();
      }));
}

void StripedReceiveChannel::end_if_over() {
  if (!is_open_ || !early_.empty() || events_ == nullptr) return;
  if (is_over_ || ended_streams_ == streams_.size()) fail(*cause_);
}

void StripedReceiveChannel::fail(const Status& status) {
  const Status told = status;  // The status may lie in what is destroyed.
  ReceiveEvents* const events = events_;
  close();
  events->on_closed(told);
}

void StripedReceiveChannel::close() {
  events_ = nullptr;
  linger_timer_.cancel();
  for (const Stream& stream : streams_) {
    if (stream.channel) stream.channel->close();
  }
}

uint64_t StripedReceiveChannel::bytes_received() const {
  uint64_t bytes = 0;
  for (const Stream& stream : streams_) {
    // A stream without a channel is not open yet.
    if (stream.channel) bytes += stream.channel->bytes_received();
  }
  return bytes;
}

}  // namespace rueda::transport
