#include "tests/transport/mem/mem_pipe.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport::mem {

namespace {

namespace asio = boost::asio;

std::string peer_name(int32_t node) { return "node " + std::to_string(node) + " (in process)"; }

// The state that both ends share. An end posts to the other end's loop only while it holds the
// mutex, and only if the other end is open: so a loop may go away once its ends are closed.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(asio::io_context& writer_io, const ConnectOptions& connect,
       std::shared_ptr<const RegionTable> writer_regions, asio::io_context& reader_io,
       const AcceptOptions& accept)
      : id_(connect.id),
        slots_(accept.slots),
        writer_regions_(std::move(writer_regions)),
        writer_io_(&writer_io),
        writer_events_(connect.events),
        writer_free_(accept.slots.count, true),
        reader_io_(&reader_io),
        reader_events_(accept.events),
        states_(accept.slots.count, SlotState::kWriters) {}

  // These are called on the writer's loop.
  bool slot_free(uint32_t slot) const {
    return writer_events_ != nullptr && slot < writer_free_.size() && writer_free_[slot];
  }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  void close_writer();
  uint64_t bytes_sent() const { return bytes_sent_; }

  // These are called on the reader's loop.
  void release(uint32_t slot);
  void close_reader();
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  void copy_to_slot(uint32_t slot, std::span<const SendBuffer> buffers);
  void wake_writer_locked();
  void wake_reader_locked();
  void run_writer();
  void run_reader();
  void deliver(const FrameHeader& header);
  void end_writer(const Status& status);
  void end_reader(const Status& status);

  const ChannelId id_;
  const SlotRegion slots_;
  const std::shared_ptr<const RegionTable> writer_regions_;

  // These belong to the writer's loop.
  asio::io_context* const writer_io_;
  SendEvents* writer_events_;  // null once closed
  std::vector<bool> writer_free_;
  std::deque<uint64_t> sent_cookies_;
  std::vector<uint32_t> arrived_credits_;
  uint64_t bytes_sent_ = 0;

  // These belong to the reader's loop.
  asio::io_context* const reader_io_;
  ReceiveEvents* reader_events_;  // null once closed
  SlotStates states_;
  std::vector<FrameHeader> arrived_frames_;
  uint64_t bytes_received_ = 0;

  std::mutex mutex_;  // guards the members below, and the slots while a payload is copied
  bool is_writer_open_ = true;
  bool is_reader_open_ = true;
  bool is_writer_woken_ = false;
  bool is_reader_woken_ = false;
  std::vector<FrameHeader> frames_;
  std::vector<uint32_t> credits_;
};

void Pipe::write(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie) {
  if (writer_events_ == nullptr) return;
  RUEDA_CHECK(slot_free(header.slot));
  check_write(header, buffers, slots_.slot_bytes, *writer_regions_);
  writer_free_[header.slot] = false;
  const std::lock_guard lock(mutex_);
  // The writer's loop is about to hear that the reader is gone.
  if (!is_reader_open_) return;
  copy_to_slot(header.slot, buffers);
  bytes_sent_ += sizeof(header) + header.payload_bytes;
  sent_cookies_.push_back(cookie);
  frames_.push_back(header);
  wake_reader_locked();
  wake_writer_locked();
}

void Pipe::copy_to_slot(uint32_t slot, std::span<const SendBuffer> buffers) {
  std::byte* to = slots_.base + size_t{slot} * slots_.slot_bytes;
  for (const SendBuffer& buffer : buffers) {
    if (buffer.bytes == 0) continue;
    std::memcpy(to, buffer.data, buffer.bytes);
    to += buffer.bytes;
  }
}

void Pipe::wake_writer_locked() {
  if (is_writer_woken_ || !is_writer_open_) return;
  is_writer_woken_ = true;
  asio::post(*writer_io_, [self = shared_from_this()] { self->run_writer(); });
}

void Pipe::wake_reader_locked() {
  if (is_reader_woken_ || !is_reader_open_) return;
  is_reader_woken_ = true;
  asio::post(*reader_io_, [self = shared_from_this()] { self->run_reader(); });
}

void Pipe::run_writer() {
  bool is_reader_open = false;
  {
    const std::lock_guard lock(mutex_);
    is_writer_woken_ = false;
    arrived_credits_.swap(credits_);
    is_reader_open = is_reader_open_;
  }
  // Only frames written before this turn are reported: a callback that writes must not keep the
  // loop.
  for (size_t count = sent_cookies_.size(); count > 0 && writer_events_ != nullptr; --count) {
    const uint64_t cookie = sent_cookies_.front();
    sent_cookies_.pop_front();
    writer_events_->on_sent(cookie);
  }
  for (const uint32_t slot : arrived_credits_) {
    if (writer_events_ == nullptr) break;
    writer_free_[slot] = true;
    writer_events_->on_slot_free(slot);
  }
  arrived_credits_.clear();
  if (!is_reader_open) {
    end_writer({Code::kNodeLost, peer_name(id_.to_node) + " closed " + describe(id_)});
  }
}

void Pipe::run_reader() {
  bool is_writer_open = false;
  {
    const std::lock_guard lock(mutex_);
    is_reader_woken_ = false;
    arrived_frames_.swap(frames_);
    is_writer_open = is_writer_open_;
  }
  for (const FrameHeader& header : arrived_frames_) {
    if (reader_events_ == nullptr) break;
    deliver(header);
  }
  arrived_frames_.clear();
  if (!is_writer_open) {
    end_reader({Code::kNodeLost, peer_name(id_.from_node) + " closed " + describe(id_)});
  }
}

void Pipe::deliver(const FrameHeader& header) {
  const Status status =
      check_frame(header, id_, slots_.slot_bytes, states_, peer_name(id_.from_node));
  if (!status.is_ok()) {
    end_reader(status);
    return;
  }
  states_[header.slot] = SlotState::kHeld;
  bytes_received_ += sizeof(header) + header.payload_bytes;
  std::byte* const payload = slots_.base + size_t{header.slot} * slots_.slot_bytes;
  reader_events_->on_frame(header, {payload, header.payload_bytes});
}

void Pipe::release(uint32_t slot) {
  if (reader_events_ == nullptr) return;
  RUEDA_CHECK(slot < states_.size() && states_[slot] == SlotState::kHeld);
  states_[slot] = SlotState::kWriters;
  const std::lock_guard lock(mutex_);
  credits_.push_back(slot);
  wake_writer_locked();
}

void Pipe::end_writer(const Status& status) {
  SendEvents* const events = writer_events_;
  close_writer();
  if (events != nullptr) events->on_closed(status);
}

void Pipe::end_reader(const Status& status) {
  ReceiveEvents* const events = reader_events_;
  close_reader();
  if (events != nullptr) events->on_closed(status);
}

void Pipe::close_writer() {
  writer_events_ = nullptr;
  const std::lock_guard lock(mutex_);
  is_writer_open_ = false;
  wake_reader_locked();
}

void Pipe::close_reader() {
  reader_events_ = nullptr;
  const std::lock_guard lock(mutex_);
  is_reader_open_ = false;
  wake_writer_locked();
}

class MemSendChannel final : public SendChannel {
 public:
  explicit MemSendChannel(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  ~MemSendChannel() override { pipe_->close_writer(); }
  bool slot_free(uint32_t slot) const override { return pipe_->slot_free(slot); }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers,
             uint64_t cookie) override {
    pipe_->write(header, buffers, cookie);
  }
  void close() override { pipe_->close_writer(); }
  uint64_t bytes_sent() const override { return pipe_->bytes_sent(); }

 private:
  const std::shared_ptr<Pipe> pipe_;
};

class MemReceiveChannel final : public ReceiveChannel {
 public:
  explicit MemReceiveChannel(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  ~MemReceiveChannel() override { pipe_->close_reader(); }
  void release(uint32_t slot) override { pipe_->release(slot); }
  void release_with_others(uint32_t slot) override { pipe_->release(slot); }
  void close() override { pipe_->close_reader(); }
  uint64_t bytes_received() const override { return pipe_->bytes_received(); }

 private:
  const std::shared_ptr<Pipe> pipe_;
};

}  // namespace

std::pair<std::unique_ptr<SendChannel>, std::unique_ptr<ReceiveChannel>> make_pipe(
    asio::io_context& writer_io, const ConnectOptions& connect,
    std::shared_ptr<const RegionTable> writer_regions, asio::io_context& reader_io,
    const AcceptOptions& accept) {
  auto pipe =
      std::make_shared<Pipe>(writer_io, connect, std::move(writer_regions), reader_io, accept);
  return {std::make_unique<MemSendChannel>(pipe), std::make_unique<MemReceiveChannel>(pipe)};
}

}  // namespace rueda::transport::mem
