// The two ends of a channel over several streams. Until open() is called, an end only collects what
// its streams report. The rules are in striped.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/base/status.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

inline constexpr uint8_t kNoStream = UINT8_MAX;

class StripedSendChannel final : public SendChannel {
 public:
  // Uses the events and the slot count of `options`.
  StripedSendChannel(boost::asio::io_context& io, const ConnectOptions& options, uint32_t streams);
  ~StripedSendChannel() override;

  // Returns the events that stream `stream` must be opened with.
  SendEvents& events_of(uint32_t stream) { return streams_[stream]; }
  void set_stream(uint32_t stream, std::unique_ptr<SendChannel> channel) {
    streams_[stream].channel = std::move(channel);
  }
  // Call this once all streams are set.
  void open();

  bool slot_free(uint32_t slot) const override {
    return events_ != nullptr && slot < slots_.size() && slots_[slot].stream == kNoStream;
  }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers,
             uint64_t cookie) override;
  bool sends_from(RegionKey region) const override;
  void use_streams(uint32_t streams) override { used_streams_ = streams; }
  void close() override;
  uint64_t bytes_sent() const override;
  uint64_t bytes_unacknowledged() const override;
  uint32_t packet_bytes() const override { return streams_.front().channel->packet_bytes(); }

 private:
  struct Stream final : SendEvents {
    void on_sent(uint64_t cookie) override { owner->events_->on_sent(cookie); }
    void on_slot_free(uint32_t slot) override { owner->on_slot_free(slot); }
    void on_closed(const Status& status) override { owner->on_stream_closed(status); }

    StripedSendChannel* owner = nullptr;
    std::unique_ptr<SendChannel> channel;
    uint64_t unreleased_bytes = 0;  // Bytes of frames whose slots are busy.
  };
  struct Slot {
    uint8_t stream = kNoStream;  // The stream that the slot's frame went over.
    uint32_t bytes = 0;
  };

  uint8_t choose_stream() const;
  void on_slot_free(uint32_t slot);
  void on_stream_closed(const Status& status);

  boost::asio::io_context& io_;
  SendEvents* events_;  // Null once closed.
  bool is_open_ = false;
  std::optional<Status> closed_early_;
  // The vector is never resized, because the streams' transports point to its elements.
  std::vector<Stream> streams_;
  std::vector<Slot> slots_;
  uint32_t used_streams_ = 0;  // 0 means all
  Lifetime lifetime_;
};

class StripedReceiveChannel final : public ReceiveChannel {
 public:
  StripedReceiveChannel(boost::asio::io_context& io, const AcceptOptions& options,
                        uint32_t streams);
  ~StripedReceiveChannel() override;

  ReceiveEvents& events_of(uint32_t stream) { return streams_[stream]; }
  void set_stream(uint32_t stream, std::unique_ptr<ReceiveChannel> channel) {
    streams_[stream].channel = std::move(channel);
  }
  void open();

  void release(uint32_t slot) override;
  void release_with_others(uint32_t slot) override;
  void close() override;
  uint64_t bytes_received() const override;

 private:
  struct Stream final : ReceiveEvents {
    std::byte* place(const FrameHeader& header) override { return owner->place(header); }
    void on_frame(const FrameHeader& header, std::span<std::byte> payload) override {
      owner->on_frame({index, header, payload});
    }
    void on_closed(const Status& status) override { owner->on_stream_closed(status); }

    StripedReceiveChannel* owner = nullptr;
    uint8_t index = 0;
    std::unique_ptr<ReceiveChannel> channel;
  };
  struct Frame {
    uint8_t stream;
    FrameHeader header;
    std::span<std::byte> payload;
  };

  std::byte* place(const FrameHeader& header) {
    return is_open_ && early_.empty() && events_ ? events_->place(header) : nullptr;
  }
  void on_frame(const Frame& frame);
  void deliver(const Frame& frame);
  // Marks the slot as empty, and returns the stream that its frame came by.
  ReceiveChannel& let_go(uint32_t slot);
  void deliver_early();
  void on_stream_closed(const Status& status);
  // The first stream has ended. The channel waits for the other streams for as long as
  // bytes arrive on any of them within the timeout.
  void linger();
  // Ends the channel once nothing more can come.
  void end_if_over();
  void fail(const Status& status);

  boost::asio::io_context& io_;
  const ChannelId id_;
  const int64_t timeout_ms_;
  ReceiveEvents* events_;  // Null once closed.
  bool is_open_ = false;
  std::vector<Frame> early_;  // Frames that came before the channel was open.
  std::vector<Stream> streams_;
  std::vector<uint8_t> stream_of_slot_;  // The value is kNoStream if the slot holds no frame.
  uint32_t ended_streams_ = 0;
  std::optional<Status> cause_;  // The cause of the end.
  bool is_over_ = false;         // True if a rule was broken, or the time is up.
  boost::asio::steady_timer linger_timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::transport
