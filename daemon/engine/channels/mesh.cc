#include "daemon/engine/channels/mesh.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

// The mesh's channels have this stream number, because the ring's streams count from 0.
constexpr uint32_t kStream = 1u << 16;

}  // namespace

MeshGeometry MeshGeometry::make(int lanes, int peers, uint64_t chunk_bytes, uint64_t budget_bytes) {
  MeshGeometry geometry;
  geometry.lanes = lanes;
  const uint64_t fair =
      budget_bytes / (geometry.works() + static_cast<uint64_t>(peers) * geometry.slots());
  const uint64_t bytes = std::clamp<uint64_t>(std::min(chunk_bytes, fair), 4096, 4u << 20);
  geometry.slot_bytes = static_cast<uint32_t>(bytes / 4096 * 4096);
  return geometry;
}

struct Mesh::Outlet final : transport::SendEvents {
  Outlet(Mesh& owner, NodeIndex to)
      : mesh(owner),
        peer(to),
        outbox({.slots = owner.geometry_.slots(),
                .cookies = owner.geometry_.slots(),
                .lanes = static_cast<uint32_t>(owner.geometry_.lanes)}) {}

  void on_sent(uint64_t cookie) override {
    const auto slot = static_cast<uint32_t>(cookie);
    outbox.on_sent(slot);
    const uint32_t work = slot / core::kMaxMessages;
    --mesh.users_[work];
    mesh.events_.on_mesh_sent(peer, work, static_cast<int>(slot % core::kMaxMessages));
  }
  void on_slot_free(uint32_t slot) override {
    outbox.on_slot_free(slot);
    mesh.events_.on_mesh_slot_free();
  }
  void on_closed(const Status& status) override {
    is_closed = true;
    mesh.events_.on_mesh_closed(peer, status);
  }

  Mesh& mesh;
  const NodeIndex peer;
  SendScheduler outbox;  // Its cookies are slots.
  std::unique_ptr<transport::SendChannel> channel;
  bool is_closed = false;
  uint64_t counted_bytes = 0;
};

struct Mesh::Inlet final : transport::ReceiveEvents {
  Inlet(Mesh& owner, NodeIndex from) : mesh(owner), peer(from) {}

  void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) override {
    mesh.events_.on_mesh_frame(peer, header, payload);
  }
  void on_closed(const Status& status) override { mesh.events_.on_mesh_closed(peer, status); }

  Mesh& mesh;
  const NodeIndex peer;
  std::unique_ptr<transport::ReceiveChannel> channel;
  uint64_t counted_bytes = 0;
};

Mesh::Mesh(transport::Transport& transport, observe::Metrics& metrics, MeshOptions options,
           MeshEvents& events)
    : transport_(transport),
      metrics_(metrics),
      options_(std::move(options)),
      events_(events),
      users_(geometry_.works()) {
  for (const NodeIndex peer : options_.peers.to) {
    outlets_.push_back(std::make_unique<Outlet>(*this, peer));
  }
  for (const NodeIndex peer : options_.peers.from) {
    inlets_.push_back(std::make_unique<Inlet>(*this, peer));
  }
  opening_ = outlets_.size() + inlets_.size();
}

Mesh::~Mesh() {
  for (const auto& item : outlets_) {
    transport_.cancel_connect(channel(options_.self, item->peer));
  }
  for (const auto& item : inlets_) transport_.cancel_expect(channel(item->peer, options_.self));
}

Status Mesh::start() {
  Result<std::unique_ptr<Staging>> staging = Staging::make(
      transport_, metrics_, geometry_.total_bytes(inlets_.size()), options_.shares_staging);
  if (!staging.is_ok()) return staging.status();
  staging_ = std::move(staging).value();
  for (const auto& item : inlets_) expect(*item);
  for (const auto& item : outlets_) connect(*item);
  return Status::ok();
}

transport::ChannelId Mesh::channel(NodeIndex from, NodeIndex to) const {
  transport::ChannelId id = options_.id;
  id.from_node = from.value;
  id.to_node = to.value;
  id.stream = kStream;
  return id;
}

void Mesh::connect(Outlet& to) {
  transport::ConnectOptions connect;
  connect.address = options_.data_addresses[static_cast<size_t>(to.peer.value)];
  connect.id = channel(options_.self, to.peer);
  connect.token = options_.token;
  connect.slot_count = geometry_.slots();
  connect.slot_bytes = geometry_.slot_bytes;
  connect.timeout_ms = options_.timeout_ms;
  connect.events = &to;
  transport_.connect(connect, [this, &to](Result<std::unique_ptr<transport::SendChannel>> made) {
    if (!made.is_ok()) return events_.on_mesh_failed(to.peer, made.status());
    to.channel = std::move(made).value();
    to.outbox.set_channel(to.channel.get());
    on_one_open();
  });
}

void Mesh::expect(Inlet& from) {
  const auto index =
      static_cast<size_t>(std::find_if(inlets_.begin(), inlets_.end(),
                                       [&](const auto& item) { return item.get() == &from; }) -
                          inlets_.begin());
  transport::AcceptOptions accept;
  accept.id = channel(from.peer, options_.self);
  accept.token = options_.token;
  accept.slots = {
      staging_->base() + (geometry_.works() + index * geometry_.slots()) * geometry_.slot_bytes,
      geometry_.slots(), geometry_.slot_bytes, staging_->region()};
  accept.timeout_ms = options_.timeout_ms;
  accept.events = &from;
  transport_.expect(accept, [this, &from](Result<std::unique_ptr<transport::ReceiveChannel>> made) {
    if (!made.is_ok()) return events_.on_mesh_failed(from.peer, made.status());
    from.channel = std::move(made).value();
    on_one_open();
  });
}

void Mesh::on_one_open() {
  if (--opening_ == 0) events_.on_mesh_open();
}

Mesh::Outlet& Mesh::outlet(NodeIndex to) {
  const auto found = std::find_if(outlets_.begin(), outlets_.end(),
                                  [&](const auto& item) { return item->peer == to; });
  RUEDA_CHECK(found != outlets_.end());
  return **found;
}

Mesh::Inlet& Mesh::inlet(NodeIndex from) {
  const auto found = std::find_if(inlets_.begin(), inlets_.end(),
                                  [&](const auto& item) { return item->peer == from; });
  RUEDA_CHECK(found != inlets_.end());
  return **found;
}

std::byte* Mesh::work_buffer(uint32_t work) const {
  return staging_->base() + size_t{work} * geometry_.slot_bytes;
}

void Mesh::send(NodeIndex to, uint32_t work, int message, const SendPriority& urgency,
                transport::FrameHeader header, std::span<const std::byte> payload) {
  header.slot = geometry_.slot(work, message);
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  ++users_[work];
  outlet(to).outbox.push(header.slot, work / static_cast<uint32_t>(geometry_.window), urgency,
                         header, {payload.data(), payload.size(), staging_->region()});
}

void Mesh::release(NodeIndex from, uint32_t slot) { inlet(from).channel->release(slot); }

void Mesh::release_with_others(NodeIndex from, uint32_t slot) {
  inlet(from).channel->release_with_others(slot);
}

bool Mesh::is_quiet() const {
  return std::all_of(outlets_.begin(), outlets_.end(),
                     [](const auto& item) { return item->is_closed || item->outbox.is_quiet(); });
}

uint64_t Mesh::bytes_received() const {
  uint64_t bytes = 0;
  for (const auto& item : inlets_) bytes += item->channel ? item->channel->bytes_received() : 0;
  return bytes;
}

void Mesh::for_each_outlet(
    const std::function<void(NodeIndex, const transport::SendChannel&)>& visit) const {
  for (const auto& item : outlets_) {
    if (item->channel && !item->is_closed) visit(item->peer, *item->channel);
  }
}

void Mesh::take_traffic(
    const std::function<void(NodeIndex, uint64_t sent, uint64_t received)>& count) {
  for (const auto& item : outlets_) {
    if (!item->channel) continue;
    const uint64_t sent = item->channel->bytes_sent();
    count(item->peer, sent - std::exchange(item->counted_bytes, sent), 0);
  }
  for (const auto& item : inlets_) {
    if (!item->channel) continue;
    const uint64_t received = item->channel->bytes_received();
    count(item->peer, 0, received - std::exchange(item->counted_bytes, received));
  }
}

}  // namespace rueda::engine
