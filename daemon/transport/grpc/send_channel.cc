#include "daemon/transport/grpc/send_channel.h"

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/grpc/grpc_wires.h"
#include "daemon/transport/tcp/credit.h"

namespace rueda::transport::grpc_data {

namespace {

namespace asio = boost::asio;
using tcp::Credit;
using tcp::CreditBatch;

// How long a closed channel waits while nothing of what was written leaves.
constexpr std::chrono::seconds kLinger{5};

// Outlives its SendChannel while a closed stream drains.
class SendConnection final : public LinkOwner, public std::enable_shared_from_this<SendConnection> {
 public:
  SendConnection(Carrier carrier, std::shared_ptr<GrpcWires> wires, const ConnectOptions& options,
                 std::shared_ptr<const RegionTable> regions, std::string peer,
                 const ChannelKeys& keys)
      : wires_(std::move(wires)),
        link_(std::move(carrier.link)),
        linger_timer_(wires_->io()),
        id_(options.id),
        slot_bytes_(options.slot_bytes),
        events_(options.events),
        regions_(std::move(regions)),
        peer_(std::move(peer)),
        slots_(options.slot_count, Slot::kFree),
        forged_(keys.forged) {
    if (!keys.is_on()) return;
    sealer_.emplace(keys.protection, keys.to_reader);
    opener_.emplace(Protection::kAuthenticate, keys.to_writer);
  }
  ~SendConnection() override { link_->set_owner(nullptr); }

  void start(Carrier carrier);
  bool slot_free(uint32_t slot) const {
    return events_ != nullptr && slot < slots_.size() && slots_[slot] == Slot::kFree;
  }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers, uint64_t cookie);
  void close();
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  enum class Slot : uint8_t {
    kFree,
    kQueued,         // Its frame is not known to be sent yet.
    kCreditedEarly,  // The credit has overtaken the news that the frame is sent.
    kSent,           // It is busy at the reader.
  };
  struct Sending {
    uint32_t slot = 0;
    uint64_t cookie = 0;
    uint64_t bytes = 0;
  };

  void on_message(grpc::ByteBuffer message) override;
  void on_flushed(uint64_t number) override;
  void on_over(const Status& status) override;
  // Sends the parts of a frame, the header first, and returns how many bytes that is.
  size_t send(std::span<const std::span<const std::byte>> parts, uint64_t number);
  // Deals with the credits of a message.
  Status take_all_credits(std::span<std::byte> message);
  void on_credit(const Credit& credit);
  void fail(const Status& status);
  void linger(uint64_t sent);

  const std::shared_ptr<GrpcWires> wires_;
  const std::shared_ptr<StreamLink> link_;
  tcp::Timer linger_timer_;
  const ChannelId id_;
  const uint32_t slot_bytes_;
  SendEvents* events_;  // Null once closed.
  const std::shared_ptr<const RegionTable> regions_;
  const std::string peer_;
  std::vector<Slot> slots_;
  std::optional<Sealer> sealer_;   // None: the connection is not protected.
  std::vector<std::byte> sealed_;  // A frame, while it is handed to gRPC.
  std::optional<Opener> opener_;   // Of credits.
  const std::shared_ptr<uint64_t> forged_;
  std::unordered_map<uint64_t, Sending> sending_;
  uint64_t last_number_ = 0;
  uint64_t bytes_sent_ = 0;
};

void SendConnection::start(Carrier carrier) {
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

void SendConnection::write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                           uint64_t cookie) {
  if (events_ == nullptr) return;
  RUEDA_CHECK(slot_free(header.slot));
  check_write(header, buffers, slot_bytes_, *regions_);
  slots_[header.slot] = Slot::kQueued;
  std::array<std::span<const std::byte>, kMaxBuffersPerWrite + 1> parts;
  size_t count = 0;
  parts[count++] = std::as_bytes(std::span(&header, 1));
  for (const SendBuffer& buffer : buffers) parts[count++] = {buffer.data, buffer.bytes};
  const uint64_t number = ++last_number_;
  Sending& sending = sending_[number] = {header.slot, cookie, 0};
  sending.bytes = send({parts.data(), count}, number);
}

size_t SendConnection::send(std::span<const std::span<const std::byte>> parts, uint64_t number) {
  size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  if (!sealer_) {
    link_->send(parts, number);
    return bytes;
  }
  const bool has_payload = bytes > sizeof(FrameHeader);
  sealed_.resize(bytes + (has_payload ? 2 : 1) * kTagBytes);
  sealer_->seal(parts[0], sealed_.data());
  if (has_payload) {
    sealer_->seal(parts.subspan(1), sealed_.data() + sizeof(FrameHeader) + kTagBytes);
  }
  const std::span<const std::byte> all(sealed_);
  link_->send({&all, 1}, number);
  return all.size();
}

void SendConnection::on_flushed(uint64_t number) {
  const auto found = sending_.find(number);
  if (found == sending_.end()) return;
  const Sending sent = found->second;
  sending_.erase(found);
  bytes_sent_ += sent.bytes;
  if (events_ == nullptr) return;
  const bool is_credited = slots_[sent.slot] == Slot::kCreditedEarly;
  slots_[sent.slot] = Slot::kSent;
  events_->on_sent(sent.cookie);
  if (events_ == nullptr || !is_credited) return;
  slots_[sent.slot] = Slot::kFree;
  events_->on_slot_free(sent.slot);
}

void SendConnection::on_message(grpc::ByteBuffer message) {
  const auto self = shared_from_this();
  const size_t bytes = message.Length();
  std::vector<grpc::Slice> slices;
  std::vector<std::byte> flat;
  if (message.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      const auto* const begin = reinterpret_cast<const std::byte*>(slice.begin());
      flat.insert(flat.end(), begin, begin + slice.size());
    }
  }
  link_->taken(bytes);
  const Status status = flat.size() == bytes ? take_all_credits(flat)
                                             : Status(Code::kInternal, "a message without bytes");
  if (status.is_ok() || events_ == nullptr) return;
  fail({Code::kInternal, peer_ + " broke the frame protocol: " + status.message()});
}

Status SendConnection::take_all_credits(std::span<std::byte> message) {
  while (!message.empty() && events_ != nullptr) {
    const Result<CreditBatch> batch = tcp::take_credits(message, opener_ ? &*opener_ : nullptr);
    if (!batch.is_ok()) {
      if (forged_ != nullptr) ++*forged_;
      return batch.status();
    }
    if (batch.value().bytes == 0) return {Code::kInternal, "part of a credit"};
    for (size_t i = 0; i < batch.value().size() && events_ != nullptr; ++i) {
      on_credit(batch.value()[i]);
    }
    message = message.subspan(batch.value().bytes);
  }
  return Status::ok();
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

void SendConnection::on_over(const Status& status) {
  const auto self = shared_from_this();
  linger_timer_.cancel();
  if (events_ == nullptr) return;
  fail({Code::kNodeLost, peer_ + " closed " + describe(id_) + ": " + status.message()});
}

void SendConnection::fail(const Status& status) {
  SendEvents* const events = std::exchange(events_, nullptr);
  link_->set_owner(nullptr);
  link_->abort();
  events->on_closed(status);
}

// The stream ends behind what was written. The reader closes it when it has all of that.
void SendConnection::close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  link_->close();
  linger(bytes_sent_);
}

void SendConnection::linger(uint64_t sent) {
  linger_timer_.expires_after(kLinger);
  linger_timer_.async_wait([self = shared_from_this(), sent](const tcp::error_code& cancelled) {
    if (cancelled) return;
    if (self->bytes_sent_ > sent) return self->linger(self->bytes_sent_);
    self->link_->abort();
  });
}

class GrpcSendChannel final : public SendChannel {
 public:
  explicit GrpcSendChannel(std::shared_ptr<SendConnection> connection)
      : connection_(std::move(connection)) {}
  ~GrpcSendChannel() override { connection_->close(); }
  bool slot_free(uint32_t slot) const override { return connection_->slot_free(slot); }
  void write(const FrameHeader& header, std::span<const SendBuffer> buffers,
             uint64_t cookie) override {
    connection_->write(header, buffers, cookie);
  }
  void close() override { connection_->close(); }
  uint64_t bytes_sent() const override { return connection_->bytes_sent(); }

 private:
  const std::shared_ptr<SendConnection> connection_;
};

}  // namespace

std::unique_ptr<SendChannel> make_send_channel(Carrier carrier, std::shared_ptr<GrpcWires> wires,
                                               const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, const ChannelKeys& keys) {
  Carrier rest{nullptr, UniqueFd(), carrier.is_over, std::move(carrier.arrived)};
  auto connection = std::make_shared<SendConnection>(std::move(carrier), std::move(wires), options,
                                                     std::move(regions), std::move(peer), keys);
  connection->start(std::move(rest));
  return std::make_unique<GrpcSendChannel>(std::move(connection));
}

}  // namespace rueda::transport::grpc_data
