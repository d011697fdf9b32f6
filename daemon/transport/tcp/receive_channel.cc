#include "daemon/transport/tcp/receive_channel.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/write.hpp>

#include "daemon/base/check.h"
#include "daemon/base/soon.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/tcp/credit.h"
#include "daemon/transport/tcp/frame_reader.h"

namespace rueda::transport::tcp {

namespace {

// A credit costs both ends a system call or two, and one message many credits.
constexpr size_t kMaxDelayedCredits = 8;

// Outlives its ReceiveChannel while operations are under way.
class ReceiveConnection : public std::enable_shared_from_this<ReceiveConnection> {
 public:
  ReceiveConnection(Socket socket, const AcceptOptions& options, const std::string& peer,
                    const ChannelKeys& keys)
      : socket_(std::move(socket)),
        id_(options.id),
        events_(options.events),
        peer_(peer),
        states_(options.slots.count, SlotState::kWriters),
        reader_(options.id, options.slots, states_, peer, options.events, keys),
        delay_(socket_.get_executor()) {
    released_.reserve(options.slots.count);
    leaving_.reserve(options.slots.count);
    if (keys.is_on()) sealer_.emplace(Protection::kAuthenticate, keys.to_writer);
  }

  void start() {
    // write_some() must not wait; a socket for which this fails has gone, which a read will tell.
    error_code ignored;
    socket_.non_blocking(true, ignored);
    read();
  }
  void release(uint32_t slot);
  void release_with_others(uint32_t slot);
  void close();
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  void read();
  void on_read(const error_code& error, size_t bytes);
  void deliver_frames();
  void let_go(uint32_t slot);
  void send_credits();
  void on_credits_sent(const error_code& error);
  void fail(Status status);

  Socket socket_;
  const ChannelId id_;
  ReceiveEvents* events_;  // Null once closed.
  const std::string peer_;
  SlotStates states_;
  FrameReader reader_;
  std::vector<Credit> released_;   // Credits that have to be sent.
  std::vector<Credit> leaving_;    // Credits that are being sent.
  std::optional<Sealer> sealer_;   // Of credits; none: the connection is not protected.
  std::vector<std::byte> sealed_;  // What is sent in place of leaving_, then.
  bool is_urgent_ = false;         // released_ has to be sent in this turn of the loop.
  Timer delay_;                    // It runs until released_ is sent in any case.
  bool is_delayed_ = false;        // The timer runs.
  bool is_flush_posted_ = false;
  bool is_in_handler_ = false;  // The handler sends credits when it ends.
  uint64_t bytes_received_ = 0;
};

void ReceiveConnection::let_go(uint32_t slot) {
  RUEDA_CHECK(slot < states_.size() && states_[slot] == SlotState::kHeld);
  states_[slot] = SlotState::kReleased;
  Credit credit;
  credit.slot = slot;
  released_.push_back(credit);
}

void ReceiveConnection::release_with_others(uint32_t slot) {
  if (events_ == nullptr) return;
  if (released_.size() + 1 >= kMaxDelayedCredits) return release(slot);
  let_go(slot);
  if (std::exchange(is_delayed_, true)) return;
  delay_.expires_after(kCreditDelay);
  delay_.async_wait([self = shared_from_this()](const error_code& error) {
    self->is_delayed_ = false;
    self->is_urgent_ = true;
    if (!error) self->send_credits();
  });
}

void ReceiveConnection::release(uint32_t slot) {
  if (events_ == nullptr) return;
  let_go(slot);
  is_urgent_ = true;
  if (is_flush_posted_ || is_in_handler_ || !leaving_.empty()) return;
  is_flush_posted_ = true;
  Soon::run(socket_.get_executor().context(), [self = shared_from_this()] {
    self->is_flush_posted_ = false;
    self->send_credits();
  });
}

void ReceiveConnection::send_credits() {
  if (events_ == nullptr || released_.empty() || !is_urgent_ || !leaving_.empty()) return;
  is_urgent_ = false;
  leaving_.swap(released_);
  for (const Credit& credit : leaving_) states_[credit.slot] = SlotState::kWriters;
  sealed_.clear();
  if (sealer_) append_credits(leaving_, &*sealer_, sealed_);
  asio::const_buffer rest = sealer_ ? asio::buffer(sealed_) : asio::buffer(leaving_);
  // Nearly always all of it leaves at once. An error comes again below.
  error_code ignored;
  rest += socket_.write_some(rest, ignored);
  if (rest.size() == 0) return leaving_.clear();
  asio::async_write(socket_, rest, [self = shared_from_this()](const error_code& error, size_t) {
    self->on_credits_sent(error);
  });
}

void ReceiveConnection::on_credits_sent(const error_code& error) {
  leaving_.clear();
  // A broken connection can still hold frames that came before; read() finds its end.
  if (!error) send_credits();
}

void ReceiveConnection::read() {
  socket_.async_read_some(reader_.space(),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void ReceiveConnection::on_read(const error_code& error, size_t bytes) {
  if (events_ == nullptr) return;
  if (error == asio::error::eof) {
    fail({Code::kNodeLost, peer_ + " closed " + describe(id_) +
                               (reader_.at_boundary() ? "" : " in the middle of a frame")});
    return;
  }
  if (error) {
    fail({Code::kNodeLost, "the connection to " + peer_ + " broke: " + error.message()});
    return;
  }
  bytes_received_ += bytes;
  reader_.filled(bytes);
  is_in_handler_ = true;
  deliver_frames();
  is_in_handler_ = false;
  if (events_ == nullptr) return;
  send_credits();
  read();
}

void ReceiveConnection::deliver_frames() {
  while (events_ != nullptr) {
    const Result<std::optional<FrameReader::Frame>> frame = reader_.next();
    if (!frame.is_ok()) {
      fail(frame.status());
      return;
    }
    if (!frame.value()) return;
    events_->on_frame(frame.value()->header, frame.value()->payload);
  }
}

void ReceiveConnection::fail(Status status) {
  ReceiveEvents* const events = events_;
  close();
  events->on_closed(status);
}

void ReceiveConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
  delay_.cancel();
}

class TcpReceiveChannel final : public ReceiveChannel {
 public:
  explicit TcpReceiveChannel(std::shared_ptr<ReceiveConnection> connection)
      : connection_(std::move(connection)) {}
  ~TcpReceiveChannel() override { connection_->close(); }
  void release(uint32_t slot) override { connection_->release(slot); }
  void release_with_others(uint32_t slot) override { connection_->release_with_others(slot); }
  void close() override { connection_->close(); }
  uint64_t bytes_received() const override { return connection_->bytes_received(); }

 private:
  const std::shared_ptr<ReceiveConnection> connection_;
};

}  // namespace

std::unique_ptr<ReceiveChannel> make_receive_channel(Socket socket, const AcceptOptions& options,
                                                     std::string peer, const ChannelKeys& keys) {
  auto connection = std::make_shared<ReceiveConnection>(std::move(socket), options, peer, keys);
  connection->start();
  return std::make_unique<TcpReceiveChannel>(std::move(connection));
}

}  // namespace rueda::transport::tcp
