#include "daemon/engine/channels/zero_copy_buffers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/check.h"
#include "daemon/session/memory/arena.h"

namespace rueda::engine {
namespace {

// Fewer bytes are copied, because a copy of them costs no more than what is done here, and leaves
// the values in the cache.
constexpr size_t kLeastBytes = 32 << 10;
constexpr size_t kSmallestPage = 4096;

void touch_pages(const std::byte* values, size_t bytes) {
  const volatile std::byte* const first = values;
  for (size_t at = 0; at < bytes; at += kSmallestPage) (void)first[at];
  if (bytes > 0) (void)first[bytes - 1];
}

bool holds(const session::Arena& arena, const std::byte* values) {
  const std::less<const std::byte*> before;
  return !before(values, arena.data()) && before(values, arena.data() + arena.bytes());
}

}  // namespace

ZeroCopyBuffers::ZeroCopyBuffers(transport::Transport& transport, uint32_t places)
    : transport_(transport), lent_(places) {}

ZeroCopyBuffers::~ZeroCopyBuffers() {
  for (const auto& [arena, registered] : registered_) {
    transport_.deregister_region(registered.region);
  }
  forget_device();
}

std::optional<transport::SendBuffer> ZeroCopyBuffers::to_send_from_device(
    const Operation& operation, core::ElementRange range, uint32_t place,
    const transport::SendChannel& channel) {
  const DeviceInput& input = *operation.device_input;
  const transport::DeviceRegion* const region = region_of(input.memory);
  if (!region) return std::nullopt;
  if (!channel.sends_from(region->key)) {
    tell_why({Code::kUnavailable,
              "the channel is over TCP, or its RDMA device cannot read the GPU's memory"});
    return std::nullopt;
  }
  const auto bytes = static_cast<uint64_t>(operation.wire_bytes(range.count()));
  const auto begin = static_cast<uint64_t>(operation.wire_bytes(range.begin));
  if (input.offset > input.memory->bytes || begin > input.memory->bytes - input.offset ||
      bytes > input.memory->bytes - input.offset - begin) {
    return std::nullopt;
  }
  RUEDA_CHECK(!lent_[place].is_there());
  lent_[place].device = input.memory;
  input.is_readable->store(true, std::memory_order_relaxed);
  return transport::SendBuffer{region->base + input.offset + begin, static_cast<size_t>(bytes),
                               region->key};
}

const transport::DeviceRegion* ZeroCopyBuffers::region_of(
    const std::shared_ptr<const gpu::DmaBuf>& memory) {
  if (device_ != memory) {
    const bool is_lent = std::any_of(lent_.begin(), lent_.end(),
                                     [&](const Lent& lent) { return lent.device != nullptr; });
    if (is_lent) return nullptr;  // The old memory is still on its way out.
    forget_device();
    device_ = memory;
    Result<transport::DeviceRegion> region = transport_.register_device_memory(
        {.fd = memory->fd.get(), .offset = memory->offset, .bytes = memory->bytes});
    if (region.is_ok()) {
      device_region_ = region.value();
    } else {
      tell_why(region.status());
    }
  }
  return device_region_ ? &*device_region_ : nullptr;
}

void ZeroCopyBuffers::tell_why(const Status& why) {
  if (std::exchange(is_told_, true)) return;
  spdlog::info("what a GPU has for other nodes is copied to host memory first: {}", why.message());
}

void ZeroCopyBuffers::forget_device() {
  if (device_region_) transport_.deregister_region(device_region_->key);
  device_region_.reset();
  device_.reset();
}

std::optional<transport::SendBuffer> ZeroCopyBuffers::to_send(const Operation& operation,
                                                              core::ElementRange range,
                                                              uint32_t place) {
  const auto bytes = static_cast<size_t>(operation.wire_bytes(range.count()));
  const std::byte* const values = operation.sendable_input(range);
  if (!lend(operation, values, bytes, place)) return std::nullopt;
  return send_buffer(place);
}

std::optional<transport::SendBuffer> ZeroCopyBuffers::to_send(
    const std::shared_ptr<session::Arena>& arena, const std::byte* values, size_t bytes,
    uint32_t place) {
  if (!lend(arena, values, bytes, place)) return std::nullopt;
  return send_buffer(place);
}

std::optional<transport::SendBuffer> ZeroCopyBuffers::send_buffer(uint32_t place) {
  const Lent& lent = lent_[place];
  const std::optional<transport::RegionKey> region = region_of(lent.arena);
  if (region) return transport::SendBuffer{lent.values, lent.bytes, *region};
  give_back(place);
  return std::nullopt;
}

std::byte* ZeroCopyBuffers::to_receive(const std::shared_ptr<session::Arena>& arena,
                                       std::byte* values, size_t bytes, uint32_t place) {
  if (lent_[place].is_there()) return nullptr;
  return lend(arena, values, bytes, place) ? values : nullptr;
}

std::byte* ZeroCopyBuffers::to_receive(const Operation& operation, core::ElementRange range,
                                       uint32_t place) {
  const auto bytes = static_cast<size_t>(operation.wire_bytes(range.count()));
  if (lent_[place].is_there()) return nullptr;
  std::byte* const values = operation.receivable_output(range);
  return lend(operation, values, bytes, place) ? values : nullptr;
}

bool ZeroCopyBuffers::lend(const Operation& operation, const std::byte* values, size_t bytes,
                           uint32_t place) {
  if (!values || bytes < kLeastBytes) return false;
  const auto arena = std::find_if(operation.arenas.begin(), operation.arenas.end(),
                                  [&](const auto& mapped) { return holds(*mapped, values); });
  if (arena == operation.arenas.end()) return false;
  return lend(*arena, values, bytes, place);
}

bool ZeroCopyBuffers::lend(const std::shared_ptr<session::Arena>& arena, const std::byte* values,
                           size_t bytes, uint32_t place) {
  if (!arena || bytes < kLeastBytes) return false;
  RUEDA_CHECK(!lent_[place].is_there());
  touch_pages(values, bytes);
  lent_[place] = {.arena = arena, .values = values, .bytes = bytes, .device = nullptr};
  return true;
}

bool ZeroCopyBuffers::give_back(uint32_t place) {
  return std::exchange(lent_[place], Lent{}).is_there();
}

void ZeroCopyBuffers::touch() const {
  for (const Lent& lent : lent_) touch_pages(lent.values, lent.bytes);
}

std::optional<transport::RegionKey> ZeroCopyBuffers::region_of(
    const std::shared_ptr<session::Arena>& arena) {
  if (const auto known = registered_.find(arena.get()); known != registered_.end()) {
    if (!known->second.arena.expired()) return known->second.region;
  }
  std::erase_if(registered_, [&](const auto& entry) {
    if (!entry.second.arena.expired()) return false;
    transport_.deregister_region(entry.second.region);
    return true;
  });
  const Result<transport::RegionKey> region =
      transport_.register_region({arena->data(), arena->bytes()});
  if (!region.is_ok()) return std::nullopt;
  registered_.emplace(arena.get(), Registered{arena, region.value()});
  return region.value();
}

}  // namespace rueda::engine
