#include "daemon/transport/rdma/send_channel.h"

#ifdef RUEDA_HAS_VERBS

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport::rdma {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The bounds of the queues. A reader with more slots than receives makes its peer wait, not fail.
constexpr uint32_t kMaxReceives = 512;
constexpr uint32_t kMaxSends = 1024;
// Bounds what one turn of the loop takes from a completion queue.
constexpr size_t kMaxCompletionsPerTurn = 64;

// Returns the most work requests that one frame needs: a buffer is cut where a message may not be
// longer.
uint32_t requests_per_frame(uint32_t slot_bytes, uint32_t max_message_bytes) {
  return static_cast<uint32_t>(kMaxBuffersPerWrite) + 2 +
         slot_bytes / std::max(max_message_bytes, 1u);
}

// Outlives its SendChannel while operations are under way.
class SendConnection final : public CompletionHandler,
                             public std::enable_shared_from_this<SendConnection> {
 public:
  SendConnection(tcp::Socket socket, const ConnectOptions& options,
                 std::shared_ptr<const RegionTable> regions, std::string peer,
                 std::unique_ptr<SendEnd> end, const Offer& reader)
      : socket_(std::move(socket)),
        id_(options.id),
        slot_bytes_(options.slot_bytes),
        events_(options.events),
        regions_(std::move(regions)),
        peer_(std::move(peer)),
        reader_(reader),
        end_(std::move(end)),
        slots_(options.slot_count, Slot::kFree) {}

  void start();
  bool slot_free(uint32_t slot) const {
    return events_ != nullptr && slot < slots_.size() && slots_[slot] == Slot::kFree;
  }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  void close();
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_unacknowledged() const { return bytes_posted_ - bytes_sent_; }
  uint32_t packet_bytes() const { return packet_bytes_; }
  bool sends_from(RegionKey region) const {
    return end_ != nullptr && end_->pair().device().has_region(region);
  }

  void on_completions() override;

 private:
  enum class Slot : uint8_t {
    kFree,
    kQueued,         // Its frame is not sent yet, or not known to be.
    kCreditedEarly,  // The credit has overtaken the news that the frame is sent.
    kSent,           // It is busy at the reader.
  };
  struct Frame {
    uint32_t slot = 0;
    uint64_t cookie = 0;
    uint64_t bytes = 0;     // With its header.
    uint32_t requests = 0;  // The work requests that it took.
  };
  struct Waiting {
    Frame frame;
    std::array<SendBuffer, kMaxBuffersPerWrite> buffers;
    size_t buffer_count = 0;
  };

  void gather(uint32_t slot, std::span<const SendBuffer> buffers);
  bool post(Frame frame, std::span<const SendBuffer> buffers);
  void post_waiting();
  void on_completion(const ibv_wc& completion);
  void on_sent();
  void on_credits(const ibv_wc& completion);
  void on_credit(uint32_t slot);
  void read_socket();
  void fail_later(Status status);
  void fail(Status status);

  tcp::Socket socket_;
  const ChannelId id_;
  const uint32_t slot_bytes_;
  SendEvents* events_;  // Null once closed.
  const std::shared_ptr<const RegionTable> regions_;
  const std::string peer_;
  const Offer reader_;
  std::unique_ptr<SendEnd> end_;  // Null once closed.
  std::vector<Slot> slots_;
  std::deque<Frame> posted_;     // They are in the order of completions.
  std::deque<Waiting> waiting_;  // They wait for room in the queue pair.
  uint32_t requests_posted_ = 0;
  // The work requests of the frame that is being posted.
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> parts_;
  std::array<ibv_wc, kMaxCompletionsPerTurn> completions_;
  std::byte from_reader_{};
  uint64_t frames_sent_ = 0;
  uint64_t bytes_posted_ = 0;
  uint64_t bytes_sent_ = 0;
  uint32_t packet_bytes_ = 0;
};

void SendConnection::start() {
  packet_bytes_ = end_->pair().packet_bytes();
  const uint32_t most = requests_per_frame(slot_bytes_, end_->pair().max_message_bytes());
  requests_.reserve(most);
  parts_.reserve(most + kMaxBuffersPerWrite);
  end_->pair().set_handler(this);
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->on_completions(); });
  read_socket();
}

void SendConnection::write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                           uint64_t cookie) {
  if (events_ == nullptr) return;
  RUEDA_CHECK(slot_free(header.slot));
  check_write(header, buffers, slot_bytes_, *regions_);
  slots_[header.slot] = Slot::kQueued;
  end_->headers()[header.slot] = header;
  const Frame frame{header.slot, cookie, sizeof(FrameHeader) + header.payload_bytes, 0};
  if (waiting_.empty() && post(frame, buffers)) return;
  if (events_ == nullptr) return;
  Waiting& waiting = waiting_.emplace_back();
  waiting.frame = frame;
  waiting.buffer_count = buffers.size();
  std::copy(buffers.begin(), buffers.end(), waiting.buffers.begin());
}

// Makes the work requests of a frame: writes of at most as many pieces and bytes as one may have,
// and the header last.
void SendConnection::gather(uint32_t slot, std::span<const SendBuffer> buffers) {
  requests_.clear();
  parts_.clear();
  const size_t max_parts = end_->pair().sizes().parts;
  const uint64_t max_bytes = end_->pair().max_message_bytes();
  uint64_t remote = reader_.slots_address + uint64_t{slot} * slot_bytes_;
  uint64_t message_bytes = 0;
  const auto begin_message = [&] {
    ibv_send_wr& request = requests_.emplace_back();
    request = {};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = reader_.slots_key;
    message_bytes = 0;
  };
  for (const SendBuffer& buffer : buffers) {
    const std::byte* data = buffer.data;
    for (size_t left = buffer.bytes; left > 0;) {
      if (requests_.empty() || message_bytes == max_bytes ||
          static_cast<size_t>(requests_.back().num_sge) == max_parts) {
        begin_message();
      }
      const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(left, max_bytes - message_bytes));
      parts_.push_back({reinterpret_cast<uint64_t>(data), bytes,
                        end_->pair().device().local_key(buffer.region)});
      ++requests_.back().num_sge;
      data += bytes;
      left -= bytes;
      message_bytes += bytes;
      remote += bytes;
    }
  }
  ibv_send_wr& last = requests_.emplace_back();
  last = {};
  last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last.imm_data = htonl(slot);
  last.wr.rdma.remote_addr = reader_.headers_address + uint64_t{slot} * sizeof(FrameHeader);
  last.wr.rdma.rkey = reader_.headers_key;
  last.send_flags = IBV_SEND_SIGNALED;
  if (end_->pair().sizes().inline_bytes >= sizeof(FrameHeader)) last.send_flags |= IBV_SEND_INLINE;
  last.num_sge = 1;
  parts_.push_back(
      {reinterpret_cast<uint64_t>(end_->headers() + slot), sizeof(FrameHeader), end_->local_key()});
  size_t part = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].sg_list = parts_.data() + part;
    part += static_cast<size_t>(requests_[i].num_sge);
    requests_[i].next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
}

// Returns false if the queue pair has no room for the frame now, or has failed.
bool SendConnection::post(Frame frame, std::span<const SendBuffer> buffers) {
  gather(frame.slot, buffers);
  frame.requests = static_cast<uint32_t>(requests_.size());
  if (requests_posted_ + frame.requests > end_->pair().sizes().sends) return false;
  if (const int error = end_->pair().post(requests_.front()); error != 0) {
    fail_later({Code::kNodeLost,
                "the RDMA connection to " + peer_ + " takes no more: " + std::strerror(error)});
    return false;
  }
  requests_posted_ += frame.requests;
  bytes_posted_ += frame.bytes;
  posted_.push_back(frame);
  return true;
}

void SendConnection::post_waiting() {
  while (events_ != nullptr && !waiting_.empty()) {
    const Waiting& next = waiting_.front();
    if (!post(next.frame, {next.buffers.data(), next.buffer_count})) return;
    waiting_.pop_front();
  }
}

void SendConnection::on_completions() {
  if (events_ == nullptr) return;
  const std::shared_ptr<SendConnection> self = shared_from_this();
  const int count = end_->pair().poll(completions_);
  for (int i = 0; i < count && events_ != nullptr; ++i) {
    on_completion(completions_[static_cast<size_t>(i)]);
  }
  if (events_ == nullptr) return;
  if (count < 0) {
    return fail({Code::kNodeLost, "the RDMA device of the connection to " + peer_ + " failed"});
  }
  post_waiting();
  if (count == 0) return;
  asio::post(socket_.get_executor(), [self] { self->on_completions(); });
}

void SendConnection::on_completion(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    return fail({Code::kNodeLost,
                 "the RDMA connection to " + peer_ +
                     " broke: " + end_->pair().device().verbs().wc_status_str(completion.status)});
  }
  if ((completion.opcode & IBV_WC_RECV) != 0) return on_credits(completion);
  on_sent();
}

void SendConnection::on_sent() {
  const Frame frame = posted_.front();
  posted_.pop_front();
  requests_posted_ -= frame.requests;
  bytes_sent_ += frame.bytes;
  ++frames_sent_;
  const bool is_credited = slots_[frame.slot] == Slot::kCreditedEarly;
  slots_[frame.slot] = Slot::kSent;
  events_->on_sent(frame.cookie);
  if (events_ == nullptr || !is_credited) return;
  slots_[frame.slot] = Slot::kFree;
  events_->on_slot_free(frame.slot);
}

void SendConnection::on_credits(const ibv_wc& completion) {
  std::array<uint32_t, kMaxSlotsPerCredit> credits;
  const size_t bytes = completion.byte_len;
  if (bytes % sizeof(uint32_t) != 0 || bytes > sizeof(credits)) {
    return fail({Code::kInternal, peer_ + " broke the frame protocol: a credit of " +
                                      std::to_string(bytes) + " bytes"});
  }
  std::memcpy(credits.data(), end_->credits(completion.wr_id), bytes);
  if (const int error = end_->post_receive(completion.wr_id); error != 0) {
    return fail({Code::kNodeLost,
                 "the RDMA connection to " + peer_ + " takes no more: " + std::strerror(error)});
  }
  for (size_t i = 0; i < bytes / sizeof(uint32_t) && events_ != nullptr; ++i) {
    on_credit(credits[i]);
  }
}

void SendConnection::on_credit(uint32_t slot) {
  if (slot >= slots_.size()) {
    return fail({Code::kInternal, peer_ + " broke the frame protocol: a credit for slot " +
                                      std::to_string(slot) + ", which does not exist"});
  }
  if (slots_[slot] == Slot::kQueued) {
    slots_[slot] = Slot::kCreditedEarly;
  } else if (slots_[slot] == Slot::kSent) {
    slots_[slot] = Slot::kFree;
    events_->on_slot_free(slot);
  } else {
    fail({Code::kInternal, peer_ + " broke the frame protocol: a credit for slot " +
                               std::to_string(slot) + ", which is free"});
  }
}

// Waits for the end of the connection, because the reader says nothing on it.
void SendConnection::read_socket() {
  socket_.async_read_some(asio::buffer(&from_reader_, 1), [self = shared_from_this()](
                                                              const error_code& error, size_t) {
    if (self->events_ == nullptr) return;
    if (!error) {
      return self->fail({Code::kInternal, self->peer_ + " broke the frame protocol: it sent bytes "
                                                        "beside its queue pair"});
    }
    if (error == asio::error::eof) {
      return self->fail(
          {Code::kNodeLost, self->peer_ + " closed " + transport::describe(self->id_)});
    }
    self->fail(
        {Code::kNodeLost, "the connection to " + self->peer_ + " broke: " + error.message()});
  });
}

// Fails from a fresh turn, because no callback may come from inside write().
void SendConnection::fail_later(Status status) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), status = std::move(status)] {
    if (self->events_ != nullptr) self->fail(status);
  });
}

void SendConnection::fail(Status status) {
  SendEvents* const events = std::exchange(events_, nullptr);
  end_.reset();
  error_code ignored;
  socket_.close(ignored);
  events->on_closed(status);
}

// Frames that are completed have reached the reader's memory. The reader is told how many these
// are, and looks for them before it takes the channel for closed.
void SendConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  end_.reset();
  error_code ignored;
  socket_.cancel(ignored);
  const auto bye = std::make_shared<Bye>();
  bye->frames = frames_sent_;
  asio::async_write(socket_, asio::buffer(bye.get(), sizeof(*bye)),
                    [self = shared_from_this(), bye](const error_code&, size_t) {
                      error_code failed;
                      self->socket_.close(failed);
                    });
}

class RdmaSendChannel final : public SendChannel {
 public:
  explicit RdmaSendChannel(std::shared_ptr<SendConnection> connection)
      : connection_(std::move(connection)) {}
  ~RdmaSendChannel() override { connection_->close(); }
  bool slot_free(uint32_t slot) const override { return connection_->slot_free(slot); }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers,
             uint64_t cookie) override {
    connection_->write(header, buffers, cookie);
  }
  void close() override { connection_->close(); }
  uint64_t bytes_sent() const override { return connection_->bytes_sent(); }
  uint64_t bytes_unacknowledged() const override { return connection_->bytes_unacknowledged(); }
  uint32_t packet_bytes() const override { return connection_->packet_bytes(); }
  bool sends_from(RegionKey region) const override { return connection_->sends_from(region); }

 private:
  const std::shared_ptr<SendConnection> connection_;
};

}  // namespace

Result<std::unique_ptr<SendEnd>> SendEnd::make(LocalPort port, const ConnectOptions& options) {
  std::unique_ptr<SendEnd> end(new SendEnd());
  Device& device = *port.device;
  const uint32_t per_frame = requests_per_frame(options.slot_bytes, port.attributes.max_msg_sz);
  QueuePair::Sizes sizes;
  sizes.sends = std::max(per_frame, std::min(options.slot_count * 3, kMaxSends));
  sizes.receives = std::min(options.slot_count, kMaxReceives);
  sizes.parts = kMaxBuffersPerWrite;
  sizes.inline_bytes = sizeof(FrameHeader);
  Result<std::unique_ptr<QueuePair>> pair =
      QueuePair::make(std::move(port), sizes, options.timeout_ms);
  if (!pair.is_ok()) return pair.status();
  end->pair_ = std::move(pair).value();
  if (end->pair_->sizes().sends < per_frame) {
    return Status(Code::kResourceExhausted, "the RDMA device " + device.name() +
                                                " allows too few work requests for slots of " +
                                                std::to_string(options.slot_bytes) + " bytes");
  }
  const size_t receives = end->pair_->sizes().receives;
  end->credits_at_ = options.slot_count * sizeof(FrameHeader);
  const size_t bytes = end->credits_at_ + receives * kCreditBytes;
  end->memory_ = std::make_unique<std::byte[]>(bytes);
  Result<std::unique_ptr<RegisteredMemory>> registered =
      RegisteredMemory::make(device, {end->memory_.get(), bytes}, IBV_ACCESS_LOCAL_WRITE);
  if (!registered.is_ok()) return registered.status();
  end->registered_ = std::move(registered).value();
  for (size_t i = 0; i < receives; ++i) {
    if (const int error = end->post_receive(i); error != 0) {
      return Status(Code::kResourceExhausted, "the RDMA device " + device.name() +
                                                  " takes no receives: " + std::strerror(error));
    }
  }
  return end;
}

int SendEnd::post_receive(uint64_t number) {
  ibv_sge part{reinterpret_cast<uint64_t>(credits(number)), kCreditBytes, local_key()};
  ibv_recv_wr request{};
  request.wr_id = number;
  request.sg_list = &part;
  request.num_sge = 1;
  return pair_->post(request);
}

std::unique_ptr<SendChannel> make_send_channel(tcp::Socket socket, const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, std::unique_ptr<SendEnd> end,
                                               const Offer& reader) {
  auto connection = std::make_shared<SendConnection>(std::move(socket), options, std::move(regions),
                                                     std::move(peer), std::move(end), reader);
  connection->start();
  return std::make_unique<RdmaSendChannel>(std::move(connection));
}

}  // namespace rueda::transport::rdma

#endif
