#include "daemon/transport/grpc/stream_link.h"

#include <cstring>
#include <memory>
#include <utility>

namespace rueda::transport::grpc_data {

namespace {

// A peer of the job has a slot for each frame that it sends, so this bounds what waits here.
constexpr rpc::StreamWindow kFrames{64, size_t{64} << 20};

// The memory of one message. gRPC destroys it, on any thread, when the kernel has the bytes.
struct Outgoing {
  std::unique_ptr<std::byte[]> bytes;
  std::function<void()> flushed;
  std::shared_ptr<LoopGate> gate;

  static void destroy(void* self) {
    const std::unique_ptr<Outgoing> outgoing(static_cast<Outgoing*>(self));
    outgoing->gate->post(std::move(outgoing->flushed));
  }
};

}  // namespace

rpc::StreamEvents StreamLink::events() {
  const std::weak_ptr<StreamLink> weak = weak_from_this();
  rpc::StreamEvents events;
  events.on_message = [weak, gate = gate_](grpc::ByteBuffer message, size_t) {
    gate->post([weak, message = std::move(message)]() mutable {
      const std::shared_ptr<StreamLink> self = weak.lock();
      if (self && self->owner_ != nullptr) self->owner_->on_message(std::move(message));
    });
    return true;
  };
  events.on_closed = [weak, gate = gate_](const Status& status) {
    gate->post([weak, status] {
      const std::shared_ptr<StreamLink> self = weak.lock();
      if (self && self->owner_ != nullptr) std::exchange(self->owner_, nullptr)->on_over(status);
    });
  };
  return events;
}

void StreamLink::send(std::span<const std::span<const std::byte>> parts, uint64_t cookie) {
  if (stream_ == nullptr) return;
  size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
  outgoing->gate = gate_;
  outgoing->flushed = [weak = weak_from_this(), cookie] {
    const std::shared_ptr<StreamLink> self = weak.lock();
    if (self && self->owner_ != nullptr) self->owner_->on_flushed(cookie);
  };
  std::byte* to = outgoing->bytes.get();
  for (const std::span<const std::byte> part : parts) {
    if (part.empty()) continue;
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  std::byte* const begin = outgoing->bytes.get();
  const grpc::Slice slice(begin, bytes, &Outgoing::destroy, outgoing.release());
  stream_->send(grpc::ByteBuffer(&slice, 1));
}

void StreamLink::trust() {
  if (stream_ != nullptr) stream_->set_window(kFrames);
}

}  // namespace rueda::transport::grpc_data
