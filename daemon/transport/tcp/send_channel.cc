#include "daemon/transport/tcp/send_channel.h"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "daemon/base/check.h"
#include "daemon/base/soon.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/tcp/credit.h"
#include "daemon/transport/tcp/send_queue.h"

namespace rueda::transport::tcp {

namespace {

// Bounds what one handler hands to the kernel, so that the loop's other handlers get their turn.
constexpr size_t kMaxBytesPerTurn = 1u << 20;
// Asio passes at most this many buffers on in one call.
constexpr size_t kMaxPartsPerTurn = 64;
// How long a closed channel waits while its peer takes nothing of what was sent.
constexpr std::chrono::seconds kLinger{5};

// A buffer sequence that is cheap to copy, as Asio copies it into every operation.
struct Parts {
  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  const_iterator first;
  const_iterator last;
  const_iterator begin() const { return first; }
  const_iterator end() const { return last; }
};

// Outlives its SendChannel while operations are under way.
class SendConnection : public std::enable_shared_from_this<SendConnection> {
 public:
  SendConnection(Socket socket, const ConnectOptions& options,
                 std::shared_ptr<const RegionTable> regions, std::string peer,
                 const ChannelKeys& keys)
      : socket_(std::move(socket)),
        linger_timer_(socket_.get_executor()),
        id_(options.id),
        slot_bytes_(options.slot_bytes),
        events_(options.events),
        regions_(std::move(regions)),
        peer_(std::move(peer)),
        slots_(options.slot_count, Slot::kFree),
        queue_(options.slot_count, options.slot_bytes, keys),
        forged_(keys.forged) {
    if (keys.is_on()) opener_.emplace(Protection::kAuthenticate, keys.to_writer);
  }

  void start() {
    // write_some() must not wait; a socket for which this fails has gone, which a read will tell.
    error_code ignored;
    socket_.non_blocking(true, ignored);
    read_credits();
  }
  bool slot_free(uint32_t slot) const {
    return events_ != nullptr && slot < slots_.size() && slots_[slot] == Slot::kFree;
  }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  void close();
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_unacknowledged() const;
  uint32_t packet_bytes() const;
  bool sends_from(RegionKey region) const { return !regions_->is_device(region); }

 private:
  enum class Slot : uint8_t {
    kFree,
    kQueued,         // Its frame is not sent yet, or not known to be.
    kCreditedEarly,  // The credit has overtaken the news that the frame is sent.
    kSent,           // It is busy at the reader.
  };

  // Hands the frames to the kernel at once, and flush()es what it has no room for. Asio would run
  // the handler of a write that is done at once behind another look at all sockets.
  void flush_now();
  void flush();
  void on_sent(const error_code& error, size_t bytes);
  void report_sent();
  void read_credits();
  void on_credits(const error_code& error, size_t bytes);
  // Deals with all credits that have come whole. Returns how many bytes they took.
  size_t take_all_credits();
  void on_credit(const Credit& credit);
  void fail(Status status);
  void drain();
  void linger(uint64_t unacknowledged);

  Socket socket_;
  Timer linger_timer_;
  const ChannelId id_;
  const uint32_t slot_bytes_;
  SendEvents* events_;  // Null once closed.
  const std::shared_ptr<const RegionTable> regions_;
  const std::string peer_;
  std::vector<Slot> slots_;
  SendQueue queue_;
  std::array<asio::const_buffer, kMaxPartsPerTurn> parts_;
  bool is_flush_posted_ = false;
  bool is_sending_ = false;
  bool is_in_handler_ = false;  // The handler flushes when it ends.
  uint64_t bytes_sent_ = 0;
  std::optional<Opener> opener_;  // Of credits; none: the connection is not protected.
  const std::shared_ptr<uint64_t> forged_;
  std::array<std::byte, kMaxBatchBytes> credits_;
  size_t credit_bytes_ = 0;  // Bytes in credits_; the last ones may be there in part.
};

void SendConnection::write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                           uint64_t cookie) {
  if (events_ == nullptr) return;
  RUEDA_CHECK(slot_free(header.slot));
  check_write(header, buffers, slot_bytes_, *regions_);
  slots_[header.slot] = Slot::kQueued;
  queue_.push(header, buffers, cookie);
  if (is_flush_posted_ || is_sending_ || is_in_handler_) return;
  // The frames of one turn of the loop leave together.
  is_flush_posted_ = true;
  Soon::run(socket_.get_executor().context(), [self = shared_from_this()] {
    self->is_flush_posted_ = false;
    self->flush_now();
  });
}

void SendConnection::flush_now() {
  if (events_ == nullptr || is_sending_ || queue_.is_empty()) return;
  const size_t count = queue_.gather(parts_, kMaxBytesPerTurn);
  error_code error;
  const size_t bytes = socket_.write_some(Parts{parts_.data(), parts_.data() + count}, error);
  if (error == asio::error::would_block) return flush();
  on_sent(error, bytes);
}

void SendConnection::flush() {
  if (events_ == nullptr || is_sending_ || queue_.is_empty()) return;
  is_sending_ = true;
  const size_t count = queue_.gather(parts_, kMaxBytesPerTurn);
  socket_.async_write_some(Parts{parts_.data(), parts_.data() + count},
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             self->on_sent(error, bytes);
                           });
}

void SendConnection::on_sent(const error_code& error, size_t bytes) {
  is_sending_ = false;
  bytes_sent_ += bytes;
  if (events_ == nullptr) return;
  if (error) {
    // Credits and the news of an orderly close may lie in the socket; they would say no more.
    fail({Code::kNodeLost, "the connection to " + peer_ + " broke: " + error.message()});
    return;
  }
  queue_.sent(bytes);
  is_in_handler_ = true;
  report_sent();
  is_in_handler_ = false;
  flush();
}

void SendConnection::report_sent() {
  SendQueue::Sent done;
  while (events_ != nullptr && queue_.pop_sent(done)) {
    const bool credited = slots_[done.slot] == Slot::kCreditedEarly;
    slots_[done.slot] = Slot::kSent;
    events_->on_sent(done.cookie);
    if (events_ == nullptr || !credited) continue;
    slots_[done.slot] = Slot::kFree;
    events_->on_slot_free(done.slot);
  }
}

void SendConnection::read_credits() {
  std::byte* const end = credits_.data() + credit_bytes_;
  socket_.async_read_some(asio::buffer(end, credits_.size() - credit_bytes_),
                          [self = shared_from_this()](const error_code& error, size_t got) {
                            self->on_credits(error, got);
                          });
}

void SendConnection::on_credits(const error_code& error, size_t bytes) {
  if (events_ == nullptr) return;
  if (error == asio::error::eof) {
    fail({Code::kNodeLost, peer_ + " closed " + describe(id_)});
    return;
  }
  if (error) {
    fail({Code::kNodeLost, "the connection to " + peer_ + " broke: " + error.message()});
    return;
  }
  credit_bytes_ += bytes;
  is_in_handler_ = true;
  const size_t taken = take_all_credits();
  is_in_handler_ = false;
  if (events_ == nullptr) return;
  credit_bytes_ -= taken;
  std::memmove(credits_.data(), credits_.data() + taken, credit_bytes_);
  read_credits();
  flush_now();
}

size_t SendConnection::take_all_credits() {
  size_t taken = 0;
  while (events_ != nullptr) {
    const std::span<std::byte> rest(credits_.data() + taken, credit_bytes_ - taken);
    const Result<CreditBatch> batch = take_credits(rest, opener_ ? &*opener_ : nullptr);
    if (!batch.is_ok()) {
      if (forged_ != nullptr) ++*forged_;
      fail({Code::kInternal, peer_ + " broke the frame protocol: " + batch.status().message()});
      return taken;
    }
    if (batch.value().bytes == 0) return taken;
    for (size_t i = 0; i < batch.value().size() && events_ != nullptr; ++i) {
      on_credit(batch.value()[i]);
    }
    taken += batch.value().bytes;
  }
  return taken;
}

void SendConnection::on_credit(const Credit& credit) {
  if (!credit.is_valid(slots_.size())) {
    fail({Code::kInternal, peer_ + " broke the frame protocol: garbage where a credit belongs"});
    return;
  }
  Slot& slot = slots_[credit.slot];
  if (slot == Slot::kQueued) {
    slot = Slot::kCreditedEarly;
  } else if (slot == Slot::kSent) {
    slot = Slot::kFree;
    events_->on_slot_free(credit.slot);
  } else {
    fail({Code::kInternal, peer_ + " broke the frame protocol: a credit for slot " +
                               std::to_string(credit.slot) + ", which is free"});
  }
}

void SendConnection::fail(Status status) {
  SendEvents* const events = std::exchange(events_, nullptr);
  error_code ignored;
  socket_.close(ignored);
  events->on_closed(status);
}

// A socket closed with credits unread sends a reset, which can destroy frames that on_sent()
// promised. So the connection says that it is done, and waits until the reader is, too.
void SendConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  error_code error;
  socket_.cancel(error);
  socket_.shutdown(Socket::shutdown_send, error);
  if (error) {
    socket_.close(error);
    return;
  }
  linger(bytes_unacknowledged());
  drain();
}

void SendConnection::linger(uint64_t unacknowledged) {
  linger_timer_.expires_after(kLinger);
  linger_timer_.async_wait(
      [self = shared_from_this(), unacknowledged](const error_code& cancelled) {
        if (cancelled) return;
        const uint64_t now = self->bytes_unacknowledged();
        if (now < unacknowledged) return self->linger(now);
        error_code ignored;
        self->socket_.close(ignored);
      });
}

uint64_t SendConnection::bytes_unacknowledged() const {
  int bytes = 0;
  const int descriptor = const_cast<Socket&>(socket_).native_handle();
  if (!socket_.is_open() || ::ioctl(descriptor, SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<uint64_t>(bytes);
}

uint32_t SendConnection::packet_bytes() const {
  int bytes = 0;
  socklen_t length = sizeof(bytes);
  const int descriptor = const_cast<Socket&>(socket_).native_handle();
  const bool is_known = socket_.is_open() &&
                        ::getsockopt(descriptor, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) == 0 &&
                        bytes > 0;
  return is_known ? static_cast<uint32_t>(bytes) : 0;
}

void SendConnection::drain() {
  socket_.async_read_some(asio::buffer(credits_),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (!error) {
                              self->drain();
                              return;
                            }
                            if (error == asio::error::operation_aborted) return;
                            error_code ignored;
                            self->socket_.close(ignored);
                            self->linger_timer_.cancel();
                          });
}

class TcpSendChannel final : public SendChannel {
 public:
  explicit TcpSendChannel(std::shared_ptr<SendConnection> connection)
      : connection_(std::move(connection)) {}
  ~TcpSendChannel() override { connection_->close(); }
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

std::unique_ptr<SendChannel> make_send_channel(Socket socket, const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, const ChannelKeys& keys) {
  auto connection = std::make_shared<SendConnection>(std::move(socket), options, std::move(regions),
                                                     std::move(peer), keys);
  connection->start();
  return std::make_unique<TcpSendChannel>(std::move(connection));
}

}  // namespace rueda::transport::tcp
