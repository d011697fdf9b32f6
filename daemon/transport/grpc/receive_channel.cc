#include "daemon/transport/grpc/receive_channel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <sys/socket.h>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/grpc/grpc_wires.h"
#include "daemon/transport/tcp/credit.h"

namespace rueda::transport::grpc_data {

namespace {

namespace asio = boost::asio;
using tcp::Credit;

// A message of credits costs both ends as much as a small frame.
constexpr size_t kMaxDelayedCredits = 8;

// Reads a message from its beginning to its end.
class MessageReader {
 public:
  explicit MessageReader(const grpc::ByteBuffer& message) {
    if (!message.Dump(&slices_).ok()) slices_.clear();
  }
  // Copies the next bytes. Returns false if there are fewer.
  bool take(std::byte* to, size_t bytes) {
    while (bytes > 0) {
      if (slice_ == slices_.size()) return false;
      const grpc::Slice& slice = slices_[slice_];
      const size_t now = std::min(bytes, slice.size() - used_);
      std::memcpy(to, slice.begin() + used_, now);
      to += now;
      bytes -= now;
      used_ += now;
      if (used_ < slice.size()) continue;
      ++slice_;
      used_ = 0;
    }
    return true;
  }

 private:
  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;
  size_t used_ = 0;
};

// Outlives its ReceiveChannel while posts are under way.
class ReceiveConnection final : public LinkOwner,
                                public std::enable_shared_from_this<ReceiveConnection> {
 public:
  ReceiveConnection(Carrier carrier, std::shared_ptr<GrpcWires> wires, const AcceptOptions& options,
                    std::string peer, const ChannelKeys& keys)
      : wires_(std::move(wires)),
        link_(std::move(carrier.link)),
        socket_(std::move(carrier.socket)),
        delay_(wires_->io()),
        id_(options.id),
        slots_(options.slots),
        events_(options.events),
        peer_(std::move(peer)),
        states_(options.slots.count, SlotState::kWriters),
        forged_(keys.forged) {
    released_.reserve(options.slots.count);
    if (!keys.is_on()) return;
    opener_.emplace(keys.protection, keys.to_reader);
    sealer_.emplace(Protection::kAuthenticate, keys.to_writer);
  }
  ~ReceiveConnection() override { end(); }

  void start(Carrier carrier);
  void release(uint32_t slot);
  void release_with_others(uint32_t slot);
  void close();
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  void on_message(grpc::ByteBuffer message) override;
  void on_flushed(uint64_t /*cookie*/) override {}
  void on_over(const Status& status) override;
  // Returns an error if the message is no frame that may come now.
  Status take_frame(const grpc::ByteBuffer& message, FrameHeader& header,
                    std::span<std::byte>& payload);
  // Takes the next block, and its tag if it has one, and opens it.
  Status take_block(MessageReader& reader, std::span<std::byte> block);
  void let_go(uint32_t slot);
  void send_credits();
  void fail(const Status& status);
  void end();

  const std::shared_ptr<GrpcWires> wires_;
  const std::shared_ptr<StreamLink> link_;
  UniqueFd socket_;
  tcp::Timer delay_;  // It runs until released_ is sent in any case.
  const ChannelId id_;
  const SlotRegion slots_;
  ReceiveEvents* events_;  // Null once closed.
  const std::string peer_;
  SlotStates states_;
  std::optional<Opener> opener_;  // None: the connection is not protected.
  std::optional<Sealer> sealer_;  // Of credits.
  const std::shared_ptr<uint64_t> forged_;
  std::vector<Credit> released_;    // Credits that have to be sent.
  std::vector<std::byte> message_;  // Credits, while they are handed to gRPC.
  bool is_delayed_ = false;         // The timer runs.
  bool is_flush_posted_ = false;
  uint64_t bytes_received_ = 0;
};

void ReceiveConnection::start(Carrier carrier) {
  link_->set_owner(this);
  if (!carrier.is_over && !carrier.arrived) return link_->trust();
  asio::post(wires_->io(), [self = shared_from_this(),
                            carrier = std::make_shared<Carrier>(std::move(carrier))]() mutable {
    if (carrier->arrived && self->events_ != nullptr) {
      self->on_message(std::move(*carrier->arrived));
    }
    if (carrier->is_over) self->on_over({Code::kNodeLost, "it closed"});
    // Nothing more is read before, because what gRPC's thread posts would overtake what has
    // arrived, and blocks are numbered.
    self->link_->trust();
  });
}

Status ReceiveConnection::take_block(MessageReader& reader, std::span<std::byte> block) {
  std::array<std::byte, kTagBytes> tag;
  if (!reader.take(block.data(), block.size()) ||
      (opener_ && !reader.take(tag.data(), tag.size()))) {
    return {Code::kInternal, peer_ + " broke the frame protocol: a message that is no frame"};
  }
  if (!opener_ || opener_->open(block, tag)) return Status::ok();
  if (forged_ != nullptr) ++*forged_;
  return changed_on_its_way(peer_, id_);
}

Status ReceiveConnection::take_frame(const grpc::ByteBuffer& message, FrameHeader& header,
                                     std::span<std::byte>& payload) {
  MessageReader reader(message);
  Status status = take_block(reader, std::as_writable_bytes(std::span(&header, 1)));
  if (!status.is_ok()) return status;
  status = check_frame(header, id_, slots_.slot_bytes, states_, peer_);
  if (!status.is_ok()) return status;
  const size_t tags = !opener_ ? 0 : header.payload_bytes == 0 ? kTagBytes : 2 * kTagBytes;
  if (message.Length() != sizeof(header) + header.payload_bytes + tags) {
    return {Code::kInternal, peer_ + " broke the frame protocol: a frame of " +
                                 std::to_string(header.payload_bytes) + " bytes in a message of " +
                                 std::to_string(message.Length())};
  }
  std::byte* const place = events_->place(header);
  std::byte* const slot = slots_.base + size_t{header.slot} * slots_.slot_bytes;
  payload = {place != nullptr ? place : slot, header.payload_bytes};
  if (!payload.empty()) status = take_block(reader, payload);
  if (!status.is_ok()) return status;
  states_[header.slot] = SlotState::kHeld;
  return Status::ok();
}

void ReceiveConnection::on_message(grpc::ByteBuffer message) {
  const auto self = shared_from_this();
  bytes_received_ += message.Length();
  FrameHeader header;
  std::span<std::byte> payload;
  const Status status = take_frame(message, header, payload);
  link_->taken(message.Length());
  message.Clear();
  if (!status.is_ok()) return fail(status);
  events_->on_frame(header, payload);
}

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
  delay_.async_wait([self = shared_from_this()](const tcp::error_code& error) {
    self->is_delayed_ = false;
    if (!error) self->send_credits();
  });
}

void ReceiveConnection::release(uint32_t slot) {
  if (events_ == nullptr) return;
  let_go(slot);
  if (std::exchange(is_flush_posted_, true)) return;
  asio::post(wires_->io(), [self = shared_from_this()] {
    self->is_flush_posted_ = false;
    self->send_credits();
  });
}

void ReceiveConnection::send_credits() {
  if (events_ == nullptr || released_.empty()) return;
  for (const Credit& credit : released_) states_[credit.slot] = SlotState::kWriters;
  message_.clear();
  tcp::append_credits(released_, sealer_ ? &*sealer_ : nullptr, message_);
  const std::span<const std::byte> part(message_);
  link_->send({&part, 1}, 0);
  released_.clear();
}

void ReceiveConnection::on_over(const Status& status) {
  if (events_ == nullptr) return;
  fail({Code::kNodeLost, peer_ + " closed " + describe(id_) + ": " + status.message()});
}

void ReceiveConnection::fail(const Status& status) {
  const auto self = shared_from_this();
  ReceiveEvents* const events = events_;
  close();
  events->on_closed(status);
}

void ReceiveConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  delay_.cancel();
  end();
}

void ReceiveConnection::end() {
  link_->set_owner(nullptr);
  link_->abort();
  if (socket_.is_open()) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
}

class GrpcReceiveChannel final : public ReceiveChannel {
 public:
  explicit GrpcReceiveChannel(std::shared_ptr<ReceiveConnection> connection)
      : connection_(std::move(connection)) {}
  ~GrpcReceiveChannel() override { connection_->close(); }
  void release(uint32_t slot) override { connection_->release(slot); }
  void release_with_others(uint32_t slot) override { connection_->release_with_others(slot); }
  void close() override { connection_->close(); }
  uint64_t bytes_received() const override { return connection_->bytes_received(); }

 private:
  const std::shared_ptr<ReceiveConnection> connection_;
};

}  // namespace

std::unique_ptr<ReceiveChannel> make_receive_channel(Carrier carrier,
                                                     std::shared_ptr<GrpcWires> wires,
                                                     const AcceptOptions& options, std::string peer,
                                                     const ChannelKeys& keys) {
  Carrier rest{nullptr, UniqueFd(), carrier.is_over, std::move(carrier.arrived)};
  auto connection = std::make_shared<ReceiveConnection>(std::move(carrier), std::move(wires),
                                                        options, std::move(peer), keys);
  connection->start(std::move(rest));
  return std::make_unique<GrpcReceiveChannel>(std::move(connection));
}

}  // namespace rueda::transport::grpc_data
