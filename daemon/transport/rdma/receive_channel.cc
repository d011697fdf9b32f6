#include "daemon/transport/rdma/receive_channel.h"

#ifdef RUEDA_HAS_VERBS

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport::rdma {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr uint32_t kMaxFrameReceives = 512;
// Each message of credits has its memory until it is sent.
constexpr uint32_t kMaxCreditSends = 64;
constexpr size_t kMaxFramesPerTurn = 64;
// A message of credits costs both ends a work request and a completion.
constexpr size_t kMaxDelayedCredits = 8;
// How long frames that the writer has announced are waited for when it has closed: they are in this
// machine's memory, and only their completions are on the way.
constexpr std::chrono::milliseconds kMaxWaitForLast{1000};

// Outlives its ReceiveChannel while operations are under way.
class ReceiveConnection final : public CompletionHandler,
                                public std::enable_shared_from_this<ReceiveConnection> {
 public:
  ReceiveConnection(tcp::Socket socket, const AcceptOptions& options, std::string peer,
                    std::unique_ptr<ReceiveEnd> end)
      : socket_(std::move(socket)),
        delay_(socket_.get_executor()),
        id_(options.id),
        region_(options.slots),
        events_(options.events),
        peer_(std::move(peer)),
        end_(std::move(end)),
        states_(options.slots.count, SlotState::kWriters) {
    released_.reserve(options.slots.count);
  }

  void start();
  void release(uint32_t slot);
  void release_with_others(uint32_t slot);
  void close();
  uint64_t bytes_received() const { return bytes_received_; }

  void on_completions() override;

 private:
  void take_completions();
  void on_frame(const ibv_wc& completion);
  void let_go(uint32_t slot);
  void send_credits();
  void send_credits_later();
  void read_socket();
  void on_end(const Status& why);
  void end_if_all_came();
  void fail(const Status& status);

  tcp::Socket socket_;
  tcp::Timer delay_;  // It runs until released_ is sent in any case.
  const ChannelId id_;
  const SlotRegion region_;
  ReceiveEvents* events_;  // Null once closed.
  const std::string peer_;
  std::unique_ptr<ReceiveEnd> end_;  // Null once closed.
  SlotStates states_;
  std::vector<uint32_t> released_;  // Slots whose credits have to be sent.
  uint64_t credits_posted_ = 0;     // It counts messages.
  uint64_t credits_sent_ = 0;
  bool is_urgent_ = false;   // released_ has to be sent in this turn of the loop.
  bool is_delayed_ = false;  // The timer runs.
  bool is_flush_posted_ = false;
  bool is_in_handler_ = false;  // The handler sends credits when it ends.
  std::array<ibv_wc, kMaxFramesPerTurn> completions_;
  Bye bye_;
  std::optional<Status> end_cause_;  // The writer has closed, or its connection broke.
  uint64_t frames_received_ = 0;
  uint64_t bytes_received_ = 0;
};

void ReceiveConnection::start() {
  end_->pair().set_handler(this);
  // Completions that came before anybody looked make no event, so they are looked for now.
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->on_completions(); });
  read_socket();
}

void ReceiveConnection::on_completions() {
  if (events_ == nullptr) return;
  const std::shared_ptr<ReceiveConnection> self = shared_from_this();
  is_in_handler_ = true;
  take_completions();
  is_in_handler_ = false;
  if (events_ == nullptr) return;
  send_credits();
  if (end_cause_) end_if_all_came();
}

void ReceiveConnection::take_completions() {
  const int count = end_->pair().poll(completions_);
  for (int i = 0; i < count && events_ != nullptr; ++i) {
    const ibv_wc& completion = completions_[static_cast<size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) {
      return fail(
          {Code::kNodeLost, "the RDMA connection to " + peer_ + " broke: " +
                                end_->pair().device().verbs().wc_status_str(completion.status)});
    }
    if ((completion.opcode & IBV_WC_RECV) != 0) {
      on_frame(completion);
    } else {
      ++credits_sent_;
    }
  }
  if (events_ == nullptr || count == 0) return;
  if (count < 0) {
    return fail({Code::kNodeLost, "the RDMA device of the connection to " + peer_ + " failed"});
  }
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->on_completions(); });
}

void ReceiveConnection::on_frame(const ibv_wc& completion) {
  const uint32_t slot = ntohl(completion.imm_data);
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM || slot >= states_.size()) {
    return fail({Code::kInternal, peer_ + " broke the frame protocol: it announced slot " +
                                      std::to_string(slot) + " of " +
                                      std::to_string(states_.size())});
  }
  if (const int error = end_->post_receive(); error != 0) {
    return fail({Code::kNodeLost,
                 "the RDMA connection to " + peer_ + " takes no more: " + std::strerror(error)});
  }
  const FrameHeader header = end_->header(slot);
  Status status = check_frame(header, id_, region_.slot_bytes, states_, peer_);
  if (status.is_ok() && header.slot != slot) {
    status = {Code::kInternal, peer_ + " broke the frame protocol: it announced slot " +
                                   std::to_string(slot) + ", and the header says " +
                                   std::to_string(header.slot)};
  }
  if (!status.is_ok()) return fail(status);
  states_[slot] = SlotState::kHeld;
  ++frames_received_;
  bytes_received_ += sizeof(FrameHeader) + header.payload_bytes;
  events_->on_frame(
      header, {region_.base + size_t{slot} * region_.slot_bytes, size_t{header.payload_bytes}});
}

void ReceiveConnection::let_go(uint32_t slot) {
  RUEDA_CHECK(slot < states_.size() && states_[slot] == SlotState::kHeld);
  states_[slot] = SlotState::kReleased;
  released_.push_back(slot);
}

void ReceiveConnection::release_with_others(uint32_t slot) {
  if (events_ == nullptr) return;
  if (released_.size() + 1 >= kMaxDelayedCredits) return release(slot);
  let_go(slot);
  if (std::exchange(is_delayed_, true)) return;
  delay_.expires_after(kCreditDelay);
  delay_.async_wait([self = shared_from_this()](const error_code& error) {
    self->is_delayed_ = false;
    if (error) return;
    self->is_urgent_ = true;
    self->send_credits();
  });
}

void ReceiveConnection::release(uint32_t slot) {
  if (events_ == nullptr) return;
  let_go(slot);
  is_urgent_ = true;
  if (!is_in_handler_) send_credits_later();
}

void ReceiveConnection::send_credits_later() {
  if (std::exchange(is_flush_posted_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->is_flush_posted_ = false;
    self->send_credits();
  });
}

void ReceiveConnection::send_credits() {
  if (events_ == nullptr || !is_urgent_ || end_cause_) return;
  size_t first = 0;
  while (first < released_.size()) {
    // The rest leaves when a message has been sent.
    if (credits_posted_ - credits_sent_ == end_->credit_count()) break;
    uint32_t* const message = end_->credits(credits_posted_ % end_->credit_count());
    const size_t count = std::min(released_.size() - first, kMaxSlotsPerCredit);
    std::copy_n(released_.begin() + static_cast<std::ptrdiff_t>(first), count, message);
    ibv_sge part{reinterpret_cast<uint64_t>(message),
                 static_cast<uint32_t>(count * sizeof(uint32_t)), end_->local_key()};
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    if (end_->pair().sizes().inline_bytes >= kCreditBytes) request.send_flags |= IBV_SEND_INLINE;
    request.sg_list = &part;
    request.num_sge = 1;
    if (end_->pair().post(request) != 0) break;  // The end of the connection tells of the failure.
    for (size_t i = first; i < first + count; ++i) states_[released_[i]] = SlotState::kWriters;
    first += count;
    ++credits_posted_;
  }
  released_.erase(released_.begin(), released_.begin() + static_cast<std::ptrdiff_t>(first));
  is_urgent_ = !released_.empty();
}

// Reads what the writer says, which is how much it has sent, and then nothing more. Without that
// message its process has ended, or its host.
void ReceiveConnection::read_socket() {
  asio::async_read(
      socket_, asio::buffer(&bye_, sizeof(bye_)),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (self->events_ == nullptr) return;
        const std::string closed = self->peer_ + " closed " + transport::describe(self->id_);
        if (error) self->bye_.frames = 0;
        if (!error && self->bye_.magic != kByeMagic) {
          return self->fail({Code::kInternal, self->peer_ +
                                                  " broke the frame protocol: garbage where its "
                                                  "last word belongs"});
        }
        const bool is_closed = !error || error == asio::error::eof;
        self->on_end({Code::kNodeLost, is_closed ? closed
                                                 : "the connection to " + self->peer_ +
                                                       " broke: " + error.message()});
      });
}

void ReceiveConnection::on_end(const Status& why) {
  end_cause_ = why;
  delay_.expires_after(kMaxWaitForLast);
  delay_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled && self->events_ != nullptr) self->fail(*self->end_cause_);
  });
  on_completions();
}

void ReceiveConnection::end_if_all_came() {
  if (frames_received_ >= bye_.frames) fail(*end_cause_);
}

void ReceiveConnection::fail(const Status& status) {
  const Status why = status;  // The status may be this object's.
  ReceiveEvents* const events = events_;
  close();
  events->on_closed(why);
}

void ReceiveConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  end_.reset();
  error_code ignored;
  socket_.close(ignored);
  delay_.cancel();
}

class RdmaReceiveChannel final : public ReceiveChannel {
 public:
  explicit RdmaReceiveChannel(std::shared_ptr<ReceiveConnection> connection)
      : connection_(std::move(connection)) {}
  ~RdmaReceiveChannel() override { connection_->close(); }
  void release(uint32_t slot) override { connection_->release(slot); }
  void release_with_others(uint32_t slot) override { connection_->release_with_others(slot); }
  void close() override { connection_->close(); }
  uint64_t bytes_received() const override { return connection_->bytes_received(); }

 private:
  const std::shared_ptr<ReceiveConnection> connection_;
};

}  // namespace

Result<std::unique_ptr<ReceiveEnd>> ReceiveEnd::make(LocalPort port, const AcceptOptions& options) {
  std::unique_ptr<ReceiveEnd> end(new ReceiveEnd());
  Device& device = *port.device;
  QueuePair::Sizes sizes;
  sizes.sends = std::min(options.slots.count, kMaxCreditSends);
  sizes.receives = std::min(options.slots.count, kMaxFrameReceives);
  sizes.inline_bytes = kCreditBytes;
  Result<std::unique_ptr<QueuePair>> pair =
      QueuePair::make(std::move(port), sizes, options.timeout_ms);
  if (!pair.is_ok()) return pair.status();
  end->pair_ = std::move(pair).value();
  end->credits_at_ = options.slots.count * sizeof(FrameHeader);
  const size_t credit_bytes = size_t{end->credit_count()} * kCreditBytes;
  end->memory_ = std::make_unique<std::byte[]>(end->credits_at_ + credit_bytes);
  end->slots_address_ = reinterpret_cast<uint64_t>(options.slots.base);
  const size_t slots_bytes = size_t{options.slots.count} * options.slots.slot_bytes;
  Status failed;
  const auto register_memory = [&](std::unique_ptr<RegisteredMemory>& as, std::byte* data,
                                   size_t bytes, int access) {
    if (!failed.is_ok() || bytes == 0) return;
    Result<std::unique_ptr<RegisteredMemory>> made =
        RegisteredMemory::make(device, {data, bytes}, access);
    if (!made.is_ok()) {
      failed = made.status();
    } else {
      as = std::move(made).value();
    }
  };
  constexpr int kPeerWrites = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  register_memory(end->registered_, end->memory_.get() + end->credits_at_, credit_bytes, 0);
  register_memory(end->headers_, end->memory_.get(), end->credits_at_, kPeerWrites);
  register_memory(end->slots_, options.slots.base, slots_bytes, kPeerWrites);
  if (!failed.is_ok()) return failed;
  for (uint32_t i = 0; i < end->pair_->sizes().receives; ++i) {
    if (const int error = end->post_receive(); error != 0) {
      return Status(Code::kResourceExhausted, "the RDMA device " + device.name() +
                                                  " takes no receives: " + std::strerror(error));
    }
  }
  return end;
}

void ReceiveEnd::describe(Offer& offer) const {
  pair_->describe(offer);
  offer.slots_address = slots_address_;
  offer.slots_key = slots_ != nullptr ? slots_->remote_key() : 0;
  offer.headers_address = reinterpret_cast<uint64_t>(memory_.get());
  offer.headers_key = headers_->remote_key();
}

// The peer may write the header at any time, and a copy stays as it was checked.
FrameHeader ReceiveEnd::header(uint32_t slot) const {
  FrameHeader header;
  std::memcpy(&header, memory_.get() + size_t{slot} * sizeof(FrameHeader), sizeof(header));
  return header;
}

int ReceiveEnd::post_receive() {
  ibv_recv_wr request{};
  return pair_->post(request);
}

std::unique_ptr<ReceiveChannel> make_receive_channel(tcp::Socket socket,
                                                     const AcceptOptions& options, std::string peer,
                                                     std::unique_ptr<ReceiveEnd> end) {
  auto connection = std::make_shared<ReceiveConnection>(std::move(socket), options, std::move(peer),
                                                        std::move(end));
  connection->start();
  return std::make_unique<RdmaReceiveChannel>(std::move(connection));
}

}  // namespace rueda::transport::rdma

#endif
