#include "daemon/engine/data/transfer_job.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "daemon/base/yielding_wait.h"
#include "daemon/engine/channels/zero_copy_buffers.h"
#include "daemon/engine/data/operation_table.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {
namespace {

// The channels of transfers have this stream number, because the ring's streams count from 0, and
// the mesh has its own.
constexpr uint32_t kStream = 1u << 17;

int64_t part_bytes(int64_t bytes, int64_t begin) {
  return std::min<int64_t>(bytes - begin, kTransferSlotBytes);
}

// Returns the number of the offer that the message answers; none if it is an offer.
std::optional<uint64_t> answered_by(const core::TransferMessage& message) {
  if (const auto* take = std::get_if<core::TransferTake>(&message)) return take->number;
  if (const auto* refusal = std::get_if<core::TransferRefusal>(&message)) return refusal->number;
  return std::nullopt;
}

// The offers of one node to another that are not answered.
class OpenOffers {
 public:
  size_t size() const { return open_.size(); }
  int64_t carried_bytes() const { return carried_bytes_; }
  // Returns false if there is one of this number.
  bool add(uint64_t number, bool carried, int64_t bytes) {
    if (!open_.emplace(number, Offer{carried, bytes, false}).second) return false;
    carried_bytes_ += carried ? bytes : 0;
    return true;
  }
  // Returns whether there was one of this number, and if it is taken, that it was carried or not as
  // the take says.
  bool close(uint64_t number, const core::TransferMessage& answer) {
    const auto it = open_.find(number);
    if (it == open_.end()) return false;
    const auto* take = std::get_if<core::TransferTake>(&answer);
    if (take && take->carried != it->second.carried) return false;
    carried_bytes_ -= it->second.carried ? it->second.bytes : 0;
    open_.erase(it);
    return true;
  }
  bool has(uint64_t number) const { return open_.contains(number); }
  // Returns false if there is none of this number, or if it was withdrawn before.
  bool withdraw(uint64_t number) {
    const auto it = open_.find(number);
    return it != open_.end() && !std::exchange(it->second.is_withdrawn, true);
  }

 private:
  struct Offer {
    bool carried = false;
    int64_t bytes = 0;
    bool is_withdrawn = false;
  };
  std::map<uint64_t, Offer> open_;  // By number.
  int64_t carried_bytes_ = 0;
};

}  // namespace

// The channel to a node, and what goes over it.
struct TransferJob::Outlet final : transport::SendEvents {
  struct Sending {
    Transfer transfer;
    int64_t written = 0;  // In bytes.
    uint32_t parts = 0;   // The parts that were written, and of those, the ones that have not left.
    uint32_t unsent = 0;
  };
  // A slot is free when its part has left, and the other node has taken it.
  struct Slot {
    uint64_t number = 0;  // Of the transfer; 0 for a message.
    int awaited = 0;      // How many of the two have not been heard of.
  };

  Outlet(TransferJob& owner, NodeIndex to)
      : job(owner), peer(to), lent(owner.transport_, kTransferSlots) {
    for (uint32_t slot = 0; slot < kTransferSlots; ++slot) free.push_back(slot);
  }

  void on_sent(uint64_t cookie) override { job.on_sent(*this, static_cast<uint32_t>(cookie)); }
  void on_slot_free(uint32_t slot) override {
    job.watch_.note_progress();
    let_go(slot);
    job.write(*this);
    job.watch_.check_quiet();
  }
  void on_closed(const Status& status) override {
    is_closed = true;
    messages.clear();  // If somebody waits for them, the node is missed by the core.
    job.on_closed(peer, status, !sending.empty());
  }
  void let_go(uint32_t slot) {
    if (--slots[slot].awaited == 0) free.push_back(slot);
  }
  bool is_quiet() const {
    return is_closed || (messages.empty() && sending.empty() && free.size() == kTransferSlots);
  }

  TransferJob& job;
  const NodeIndex peer;
  ZeroCopyBuffers lent;              // Its places are the slots.
  std::unique_ptr<Staging> staging;  // By slot: what is not sent from where it is.
  std::map<uint64_t, Sending> sending;
  std::deque<Outgoing> messages;  // Those that are not written.
  std::deque<uint64_t> line;      // The transfers that are not written as a whole, in their turns.
  OpenOffers offers;              // Of this node.
  std::array<Slot, kTransferSlots> slots;
  std::vector<uint32_t> free;
  std::unique_ptr<transport::SendChannel> channel;
  bool is_closed = false;
  uint64_t counted_bytes = 0;
};

// The channel from a node, and what comes over it.
struct TransferJob::Inlet final : transport::ReceiveEvents {
  struct Receiving {
    Transfer transfer;
    int64_t received = 0;  // In bytes.
    uint32_t parts = 0;
  };

  Inlet(TransferJob& owner, NodeIndex from)
      : job(owner), peer(from), lent(owner.transport_, kTransferSlots) {}

  std::byte* place(const transport::FrameHeader& header) override {
    return job.place(*this, header);
  }
  void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) override {
    job.on_frame(*this, header, payload);
  }
  void on_closed(const Status& status) override {
    lent.touch();
    for (const auto& [number, item] : receiving) {
      if (!job.holds(item.transfer)) return;
    }
    job.on_closed(peer, status, !receiving.empty());
  }

  TransferJob& job;
  const NodeIndex peer;
  ZeroCopyBuffers lent;              // Its places are the slots.
  std::unique_ptr<Staging> staging;  // The slots.
  std::map<uint64_t, Receiving> receiving;
  OpenOffers offers;  // Of the other node.
  std::unique_ptr<transport::ReceiveChannel> channel;
  uint64_t counted_bytes = 0;
};

TransferJob::TransferJob(boost::asio::io_context& loop, transport::Transport& transport,
                         observe::Metrics& metrics, DataJobOptions options)
    : loop_(loop),
      transport_(transport),
      metrics_(metrics),
      options_(std::move(options)),
      stamp_{options_.key, options_.epoch.value, options_.process_set},
      faults_(loop_, options_),
      watch_(loop_, options_, *this),
      traffic_(metrics, transport.name(), options_.node_ids) {}

TransferJob::~TransferJob() {
  lifetime_.end();
  for (const auto& [peer, item] : outlets_) {
    transport_.cancel_connect(channel(options_.self, peer));
  }
  for (const auto& [peer, item] : inlets_) transport_.cancel_expect(channel(peer, options_.self));
  watch_.tell_quiet();
  count_traffic();
  // Channels are closed before the memory that they use goes.
  for (const auto& [peer, item] : outlets_) item->channel.reset();
  for (const auto& [peer, item] : inlets_) item->channel.reset();
}

void TransferJob::run(Transfer transfer) {
  if (faults_.is_stopped()) return faults_.report_kept();
  if (transfer.bytes <= static_cast<int64_t>(kSmallBytes)) options_.events.on_small();
  if (transfer.is_local()) {
    ++copies_;
    return copy(std::move(transfer), 0);
  }
  if (transfer.key.to == options_.self) {
    Inlet& from = inlet(transfer.key.from);
    if (faults_.is_stopped()) return;
    const uint64_t number = transfer.key.number;
    from.receiving.emplace(number, Inlet::Receiving{std::move(transfer)});
  } else {
    Outlet& to = outlet(transfer.key.to);
    if (faults_.is_stopped()) return;
    const uint64_t number = transfer.key.number;
    to.sending.emplace(number, Outlet::Sending{std::move(transfer)});
    to.line.push_back(number);
    write(to);
  }
  watch_.expect_progress();
}

void TransferJob::open(NodeIndex peer) {
  if (faults_.is_stopped()) return faults_.report_kept();
  inlet(peer);
  if (!faults_.is_stopped()) outlet(peer);
}

void TransferJob::send(Outgoing message) {
  if (faults_.is_stopped()) return faults_.report_kept();
  options_.events.on_small();
  if (const auto number = answered_by(message.message)) {
    inlet(message.to).offers.close(*number, message.message);
    if (faults_.is_stopped()) return;
  }
  Outlet& to = outlet(message.to);
  if (faults_.is_stopped() || to.is_closed) return;
  to.messages.push_back(std::move(message));
  write(to);
  watch_.expect_progress();
}

// --- Copies on this node -------------------------------------------------------------------------

void TransferJob::copy(Transfer transfer, int64_t from) {
  if (!turns_->may_work()) {
    return turns_->wait(lifetime_.guard([this, transfer = std::move(transfer), from]() mutable {
      HandlerWatch::note(options_.cause);
      if (!faults_.is_stopped()) copy(std::move(transfer), from);
    }));
  }
  const int64_t end = std::min(transfer.bytes, from + kTurnBytes);
  turns_->charge(end - from);
  std::memmove(transfer.output + from, transfer.input + from, static_cast<size_t>(end - from));
  if (!holds(transfer)) return;
  if (end == transfer.bytes) {
    --copies_;
    return done(transfer);
  }
  turns_->wait(lifetime_.guard([this, transfer = std::move(transfer), end]() mutable {
    HandlerWatch::note(options_.cause);
    if (!faults_.is_stopped()) copy(std::move(transfer), end);
  }));
}

bool TransferJob::holds(const Transfer& transfer) {
  if (faults_.is_stopped()) return false;
  if (!transfer.has_lost_memory()) return true;
  faults_.fail(Seq{}, lost_memory(options_.id(options_.self)));
  return false;
}

void TransferJob::done(const Transfer& transfer) {
  if (transfer.bytes <= static_cast<int64_t>(kSmallBytes)) options_.events.on_small();
  options_.events.on_transfer_done(transfer.key);
  count_traffic();
}

// --- Channels ------------------------------------------------------------------------------------

transport::ChannelId TransferJob::channel(NodeIndex from, NodeIndex to) const {
  transport::ChannelId id = stamp_.channel(from, to);
  id.stream = kStream;
  return id;
}

TransferJob::Outlet& TransferJob::outlet(NodeIndex to) {
  std::unique_ptr<Outlet>& found = outlets_[to];
  if (found) return *found;
  found = std::make_unique<Outlet>(*this, to);
  Result<std::unique_ptr<Staging>> staging =
      Staging::make(transport_, metrics_, kTransferStagingBytes);
  if (staging.is_ok()) {
    found->staging = std::move(staging).value();
    connect(*found);
  } else {
    fail(staging.status());
  }
  return *found;
}

TransferJob::Inlet& TransferJob::inlet(NodeIndex from) {
  std::unique_ptr<Inlet>& found = inlets_[from];
  if (found) return *found;
  found = std::make_unique<Inlet>(*this, from);
  Result<std::unique_ptr<Staging>> staging =
      Staging::make(transport_, metrics_, kTransferStagingBytes);
  if (staging.is_ok()) {
    found->staging = std::move(staging).value();
    expect(*found);
  } else {
    fail(staging.status());
  }
  return *found;
}

void TransferJob::connect(Outlet& to) {
  transport::ConnectOptions connect;
  connect.address = options_.data_addresses[static_cast<size_t>(to.peer.value)];
  connect.id = channel(options_.self, to.peer);
  connect.token = options_.token;
  connect.slot_count = kTransferSlots;
  connect.slot_bytes = kTransferSlotBytes;
  connect.timeout_ms = options_.timeout_ms;
  connect.events = &to;
  transport_.connect(connect, [this, &to](Result<std::unique_ptr<transport::SendChannel>> made) {
    // The node may have left before it heard that there are to be channels: the core knows.
    if (!made.is_ok()) return to.on_closed(made.status());
    to.channel = std::move(made).value();
    watch_.expect_progress();
    write(to);
  });
}

void TransferJob::expect(Inlet& from) {
  transport::AcceptOptions accept;
  accept.id = channel(from.peer, options_.self);
  accept.token = options_.token;
  accept.slots = {from.staging->base(), kTransferSlots, kTransferSlotBytes, from.staging->region()};
  accept.timeout_ms = options_.timeout_ms;
  accept.events = &from;
  transport_.expect(accept, [this, &from](Result<std::unique_ptr<transport::ReceiveChannel>> made) {
    if (!made.is_ok()) return from.on_closed(made.status());
    from.channel = std::move(made).value();
    watch_.expect_progress();
  });
}

// --- Sending -------------------------------------------------------------------------------------

void TransferJob::write(Outlet& to) {
  while (to.channel && !to.is_closed && !to.free.empty() &&
         (!to.messages.empty() || !to.line.empty())) {
    const uint32_t slot = to.free.back();
    to.free.pop_back();
    if (!to.messages.empty()) {
      if (!write_message(to, slot)) return;
      continue;
    }
    const uint64_t number = to.line.front();
    to.line.pop_front();
    if (!write_part(to, number, slot)) return;
  }
}

bool TransferJob::may_carry(const Outlet& to, const Outgoing& offer) {
  return offer.source.bytes <= kMostCarriedBytes &&
         offer.source.bytes + to.offers.carried_bytes() <= kCarriedBudget;
}

bool TransferJob::write_message(Outlet& to, uint32_t slot) {
  Outgoing item = std::move(to.messages.front());
  to.messages.pop_front();
  auto* const offer = std::get_if<core::TransferOffer>(&item.message);
  size_t carried = 0;
  if (offer) {
    offer->carried = may_carry(to, item);
    carried = offer->carried ? static_cast<size_t>(item.source.bytes) : 0;
    to.offers.add(offer->number, offer->carried, item.source.bytes);
  }
  std::byte* const memory = to.staging->base() + size_t{slot} * kTransferSlotBytes;
  const size_t head = write_record(item.process_set, item.message, memory);
  if (carried > 0) {
    std::memcpy(memory + head, item.source.input, carried);
    metrics_.daemon().inputs_from_buffers.Increment(static_cast<double>(carried));
    if (!holds(item.source)) return false;
  }
  const transport::SendBuffer buffer{memory, head + carried, to.staging->region()};
  transport::FrameHeader header = stamp_.header(transport::FrameKind::kTransferMessage);
  header.slot = slot;
  header.payload_bytes = static_cast<uint32_t>(buffer.bytes);
  to.slots[slot] = {0, 2};
  to.channel->write(header, std::span(&buffer, 1), slot);
  return true;
}

bool TransferJob::write_part(Outlet& to, uint64_t number, uint32_t slot) {
  Outlet::Sending& item = to.sending.at(number);
  const Transfer& transfer = item.transfer;
  const int64_t bytes = part_bytes(transfer.bytes, item.written);
  const std::byte* const values = transfer.input + item.written;
  transport::SendBuffer buffer{to.staging->base() + size_t{slot} * kTransferSlotBytes,
                               static_cast<size_t>(bytes), to.staging->region()};
  if (const auto lent =
          to.lent.to_send(transfer.input_arena, values, static_cast<size_t>(bytes), slot)) {
    buffer = *lent;
    metrics_.daemon().inputs_from_arenas.Increment(static_cast<double>(bytes));
  } else {
    std::memcpy(const_cast<std::byte*>(buffer.data), values, static_cast<size_t>(bytes));
    metrics_.daemon().inputs_from_buffers.Increment(static_cast<double>(bytes));
  }
  if (!holds(transfer)) return false;
  transport::FrameHeader header = stamp_.header(transport::FrameKind::kTransfer);
  header.seq = number;
  header.chunk = item.parts++;
  header.slot = slot;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  item.written += bytes;
  ++item.unsent;
  to.slots[slot] = {number, 2};
  if (item.written < transfer.bytes) to.line.push_back(number);
  to.channel->write(header, std::span(&buffer, 1), slot);
  return true;
}

void TransferJob::on_sent(Outlet& to, uint32_t slot) {
  HandlerWatch::note(options_.cause);
  watch_.note_progress();
  to.lent.give_back(slot);
  const auto it = to.sending.find(to.slots[slot].number);
  to.let_go(slot);
  if (faults_.is_stopped()) return;
  if (it != to.sending.end() && --it->second.unsent == 0 &&
      it->second.written == it->second.transfer.bytes) {
    const Transfer transfer = std::move(it->second.transfer);
    to.sending.erase(it);
    done(transfer);
  }
  write(to);
  watch_.check_quiet();
}

// --- Receiving -----------------------------------------------------------------------------------

Status TransferJob::check(const Inlet& from, const transport::FrameHeader& header) const {
  if (header.kind != transport::FrameKind::kTransfer) {
    return {Code::kInternal, "it sent a frame of kind " +
                                 std::to_string(static_cast<int>(header.kind)) +
                                 " where transfers are sent"};
  }
  const auto it = from.receiving.find(header.seq);
  if (it == from.receiving.end()) {
    return {Code::kInternal, "it sent a part of transfer " + std::to_string(header.seq) +
                                 ", which was not taken, or is over"};
  }
  const Inlet::Receiving& item = it->second;
  const int64_t bytes = part_bytes(item.transfer.bytes, item.received);
  if (header.chunk == item.parts && header.payload_bytes == bytes) return Status::ok();
  return {Code::kInternal, "of transfer " + std::to_string(header.seq) + " it sent part " +
                               std::to_string(header.chunk) + " of " +
                               std::to_string(header.payload_bytes) + " bytes where part " +
                               std::to_string(item.parts) + " of " + std::to_string(bytes) +
                               " bytes was due"};
}

std::byte* TransferJob::place(Inlet& from, const transport::FrameHeader& header) {
  if (faults_.is_stopped() || !check(from, header).is_ok()) return nullptr;
  const Inlet::Receiving& item = from.receiving.at(header.seq);
  return from.lent.to_receive(item.transfer.output_arena, item.transfer.output + item.received,
                              header.payload_bytes, header.slot);
}

void TransferJob::on_frame(Inlet& from, const transport::FrameHeader& header,
                           std::span<std::byte> payload) {
  const bool was_placed = from.lent.give_back(header.slot);
  if (faults_.is_stopped()) return;
  HandlerWatch::note(options_.cause);
  watch_.note_progress();
  if (header.payload_bytes <= kSmallBytes) options_.events.on_small();
  if (header.kind == transport::FrameKind::kTransferMessage) {
    return on_message(from, header, payload);
  }
  on_part(from, header, payload, was_placed);
}

Status TransferJob::count(Inlet& from, const TransferRecord& record) {
  if (const auto number = answered_by(record.message)) {
    const auto to = outlets_.find(from.peer);
    if (to != outlets_.end() && to->second->offers.close(*number, record.message)) {
      return Status::ok();
    }
    return {Code::kInternal, "it answered offer " + std::to_string(*number) +
                                 ", which is not open, or was made in another way"};
  }
  if (const auto* withdrawn = std::get_if<core::TransferWithdrawal>(&record.message)) {
    // An offer that is not open has been answered, and the answer is on its way.
    if (!from.offers.has(withdrawn->number) || from.offers.withdraw(withdrawn->number)) {
      return Status::ok();
    }
    return {Code::kInternal, "it withdrew offer " + std::to_string(withdrawn->number) + " twice"};
  }
  const auto& offer = std::get<core::TransferOffer>(record.message);
  const auto bytes = static_cast<int64_t>(record.data.size());
  const size_t most = options_.most_offers[static_cast<size_t>(from.peer.value)];
  if (from.offers.size() >= most) {
    return {Code::kInternal, "it has more than " + std::to_string(most) + " offers open"};
  }
  if (from.offers.carried_bytes() + bytes > kCarriedBudget) {
    return {Code::kInternal, "more than " + std::to_string(kCarriedBudget) +
                                 " bytes of what it sent with offers are not taken"};
  }
  if (from.offers.add(offer.number, offer.carried, bytes)) return Status::ok();
  return {Code::kInternal, "it made offer " + std::to_string(offer.number) + " twice"};
}

void TransferJob::on_message(Inlet& from, const transport::FrameHeader& header,
                             std::span<const std::byte> payload) {
  const Result<TransferRecord> read = read_record(payload);
  if (!read.is_ok()) return give_up(from.peer, read.status());
  const TransferRecord& record = read.value();
  if (Status good = count(from, record); !good.is_ok()) return give_up(from.peer, good);
  std::shared_ptr<const std::vector<std::byte>> data;
  if (!record.data.empty()) {
    data = std::make_shared<std::vector<std::byte>>(record.data.begin(), record.data.end());
  }
  // The slot is free only after the core has been told, in the order of its loop: whoever hears
  // that this node has everything may rely on that.
  options_.events.on_transfer_message(from.peer, record.process_set, record.message, data);
  from.channel->release(header.slot);
}

void TransferJob::on_part(Inlet& from, const transport::FrameHeader& header,
                          std::span<std::byte> payload, bool was_placed) {
  if (Status good = check(from, header); !good.is_ok()) return give_up(from.peer, good);
  const auto it = from.receiving.find(header.seq);
  Inlet::Receiving& item = it->second;
  if (!was_placed && !payload.empty()) {
    std::memcpy(item.transfer.output + item.received, payload.data(), payload.size());
  }
  item.received += static_cast<int64_t>(payload.size());
  ++item.parts;
  from.channel->release(header.slot);
  if (!holds(item.transfer) || item.received < item.transfer.bytes) return;
  const Transfer transfer = std::move(item.transfer);
  from.receiving.erase(it);
  done(transfer);
}

// --- What goes wrong -----------------------------------------------------------------------------

void TransferJob::on_closed(NodeIndex peer, const Status& status, bool is_missed) {
  faults_.note_closed_peer();
  faults_.report_loss(peer, status, is_missed);
  watch_.check_quiet();
}

void TransferJob::fail(const Status& status) {
  if (!faults_.stop()) return;
  watch_.stop();
  faults_.report_loss(options_.self, status, true);
  watch_.check_quiet();
}

void TransferJob::give_up(NodeIndex peer, const Status& status) {
  if (!faults_.stop()) return;
  watch_.stop();
  const bool is_missed = has_work();
  if (!is_missed) faults_.keep_loss(peer, status);
  faults_.report_loss(peer, status, is_missed);
  watch_.check_quiet();
}

// --- Progress ------------------------------------------------------------------------------------

bool TransferJob::has_work() const { return copies_ > 0 || has_to_go_on(); }

bool TransferJob::has_to_go_on() const { return culprit().has_value() || !is_quiet(); }

bool TransferJob::is_quiet() const {
  return faults_.is_stopped() ||
         std::all_of(outlets_.begin(), outlets_.end(),
                     [](const auto& item) { return item.second->is_quiet(); });
}

std::optional<NodeIndex> TransferJob::culprit() const {
  for (const auto& [peer, item] : inlets_) {
    if (!item->receiving.empty()) return peer;
  }
  for (const auto& [peer, item] : outlets_) {
    if (!item->sending.empty()) return peer;
  }
  // A channel that is not open yet has a deadline of its own.
  for (const auto& [peer, item] : outlets_) {
    if (item->channel && !item->is_quiet()) return peer;
  }
  return std::nullopt;
}

std::string TransferJob::describe_silence(NodeIndex peer) const {
  return "a transfer with it made no progress for " + std::to_string(options_.timeout_ms) +
         " ms, and node " + options_.id(peer) + " has neither sent nor taken anything";
}

uint64_t TransferJob::bytes_received() const {
  uint64_t bytes = 0;
  for (const auto& [peer, item] : inlets_) {
    bytes += item->channel ? item->channel->bytes_received() : 0;
  }
  return bytes;
}

void TransferJob::for_each_outlet(const VisitOutlet& visit) const {
  for (const auto& [peer, item] : outlets_) {
    if (item->channel && !item->is_closed) visit(peer, *item->channel);
  }
}

void TransferJob::count_traffic() {
  for (const auto& [peer, item] : outlets_) {
    if (!item->channel) continue;
    const uint64_t sent = item->channel->bytes_sent();
    traffic_.count(peer, sent - std::exchange(item->counted_bytes, sent), 0);
  }
  for (const auto& [peer, item] : inlets_) {
    if (!item->channel) continue;
    const uint64_t received = item->channel->bytes_received();
    traffic_.count(peer, 0, received - std::exchange(item->counted_bytes, received));
  }
}

}  // namespace rueda::engine
