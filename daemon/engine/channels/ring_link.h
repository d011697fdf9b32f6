// The two channels of a node on the ring, to the next node and from the previous one, and their
// memory: the slots that frames arrive in, and the buffers for what this node originates. The link
// belongs to a data job, and to its data loop.
//
// A frame that is pushed is known by a cookie until its bytes have left. The cookies are the slots
// (for a frame that is forwarded from its slot), then the origin buffers, then one for each track's
// acknowledgement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/lifetime.h"
#include "daemon/engine/channels/frame_stamp.h"
#include "daemon/engine/channels/send_scheduler.h"
#include "daemon/engine/memory/slots.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

struct RingLinkOptions {
  FrameStamp stamp;
  transport::JobToken token{};
  NodeIndex self;
  NodeIndex next;
  NodeIndex previous;
  std::string next_address;  // The data address of the next node.
  SlotGeometry geometry;
  TicksMs timeout_ms = 0;       // For the connection of either channel.
  bool shares_staging = false;  // Another process adds in the staging memory.
};

class RingLink {
 public:
  // Is called when a channel is open; if it cannot be, the status says why.
  using Opened = std::function<void(NodeIndex peer, const Status&)>;

  // The transport and the metrics outlive the object.
  RingLink(transport::Transport& transport, observe::Metrics& metrics, RingLinkOptions options);
  RingLink(const RingLink&) = delete;
  RingLink& operator=(const RingLink&) = delete;

  // Maps the slots and the buffers. The error is kResourceExhausted.
  [[nodiscard]] Status allocate();
  // Opens both channels, whose events go to `send_events` and `receive_events`, which outlive them.
  void open(transport::SendEvents& send_events, transport::ReceiveEvents& receive_events,
            Opened opened);
  // Gives up what open() has not brought about yet.
  void stop_opening();
  // Closes both channels. No event comes any more.
  void close();

  bool is_open() const { return send_ && receive_; }
  bool can_send() const { return send_ != nullptr; }
  const SlotGeometry& geometry() const { return options_.geometry; }
  const FrameStamp& stamp() const { return options_.stamp; }

  // --- Memory

  // Returns the memory of an origin buffer, of slot_bytes.
  std::byte* origin_buffer(uint32_t index) const {
    return staging_->base() + size_t{geometry().slots() + index} * geometry().slot_bytes;
  }
  // Returns the payload of a frame that lies in its slot.
  std::span<std::byte> payload(const transport::FrameHeader& header) const {
    return {staging_->base() + size_t{header.slot} * geometry().slot_bytes, header.payload_bytes};
  }
  // Returns the region that slots and origin buffers lie in.
  transport::RegionKey region() const { return staging_->region(); }
  // Returns the file that other processes map the slots by.
  const std::shared_ptr<const StagingFile>& file() const { return staging_->file(); }

  // --- Frames to the next node

  uint32_t origin_cookie(uint32_t buffer) const { return geometry().slots() + buffer; }
  uint32_t acknowledgement_cookie(core::Track track) const {
    return first_acknowledgement() + static_cast<uint32_t>(core::index_of(track));
  }
  bool is_acknowledgement(uint32_t cookie) const { return cookie >= first_acknowledgement(); }
  bool in_use(uint32_t cookie) const { return outbox_.in_use(cookie); }
  // Sends a frame once its turn has come and its slot is free. The cookie must not be in use; the
  // buffer stays untouched until on_sent() is called with the cookie.
  void push(uint32_t cookie, uint32_t lane, const SendPriority& urgency,
            const transport::FrameHeader& header, transport::SendBuffer buffer) {
    outbox_.push(cookie, lane, urgency, header, buffer);
  }
  // Sends a frame that has no lane of its own: an acknowledgement.
  void push_acknowledgement(uint32_t cookie, const transport::FrameHeader& header) {
    outbox_.push(cookie, geometry().all_lanes(), kAtOnce, header, {});
  }
  // Has frames go over so many of the channel's streams.
  void use_streams(uint32_t streams) { send_->use_streams(streams); }
  // The receiver of the events tells the link of these.
  void on_sent(uint32_t cookie) { outbox_.on_sent(cookie); }
  void on_slot_free(uint32_t slot) { outbox_.on_slot_free(slot); }
  void on_send_closed() { is_send_closed_ = true; }
  // Returns whether the next node has taken everything, and freed its slots.
  bool has_sent_all() const { return outbox_.is_quiet(); }
  bool is_quiet() const { return outbox_.is_quiet() || is_send_closed_; }

  // --- Frames from the previous node

  // Gives the slot back to the previous node.
  void release(uint32_t slot) {
    if (receive_) receive_->release(slot);
  }

  // --- Traffic

  // Returns the channel to the next node while it is open, or null.
  const transport::SendChannel* outlet() const { return is_send_closed_ ? nullptr : send_.get(); }
  uint64_t bytes_received() const { return receive_ ? receive_->bytes_received() : 0; }
  // Returns how many bytes have come and gone since the last call. Both channels are open.
  struct Traffic {
    uint64_t sent;
    uint64_t received;
  };
  Traffic take_traffic();

 private:
  uint32_t first_acknowledgement() const {
    return geometry().slots() + geometry().origin_buffers();
  }
  transport::ChannelId to_next() const {
    return options_.stamp.channel(options_.self, options_.next);
  }
  transport::ChannelId from_previous() const {
    return options_.stamp.channel(options_.previous, options_.self);
  }

  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const RingLinkOptions options_;
  // The slots, then the origin buffers: one mapping, one region.
  std::unique_ptr<Staging> staging_;
  SendScheduler outbox_;
  std::unique_ptr<transport::SendChannel> send_;
  std::unique_ptr<transport::ReceiveChannel> receive_;
  bool is_send_closed_ = false;  // The next node closed it.
  uint64_t counted_sent_ = 0;
  uint64_t counted_received_ = 0;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
