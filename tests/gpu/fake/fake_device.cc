#include "tests/gpu/fake/fake_device.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/fake/fake_communicator.h"
#include "tests/gpu/fake/fake_stream.h"

namespace rueda::gpu::fake {
namespace {

constexpr DeviceAddress kFirstAddress = 0x7f00'0000'0000;
constexpr uint64_t kReservedOffset = 0x80'0000'0000;  // above all other addresses of all GPUs
constexpr uint64_t kAddressesOfAGpu = kReservedOffset / kMaxGpus;
// The address of pinned memory is this plus the host's address.
constexpr DeviceAddress kHostBegins = 0x4000'0000'0000'0000;
constexpr uint64_t kAlignment = 256;
// The driver of a real GPU would wait, or refuse, beyond this number.
constexpr size_t kMaxQueued = 1024;
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', ' ', 'm', 'e', 'm'};

// The contents of a handle: the 64 bytes of an IPC handle, or the contents of a file.
struct Ticket {
  char magic[8];
  const void* gpu;
  uint64_t block_id;
  int ordinal;
};

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
uint64_t room_for(uint64_t bytes) { return round_up(bytes, kAlignment); }

Status not_found(const char* what) { return {Code::kNotFound, what}; }

}  // namespace

FakeDevice::FakeDevice(FakeGpu& gpu, const DeviceOptions& options) : gpu_(gpu), options_(options) {
  facts_.ordinal = gpu.options_.ordinal;
  facts_.name = "a GPU that is none";
  facts_.capability_major = 8;
  facts_.uuid[0] = 0xfa;
  facts_.uuid[15] = static_cast<uint8_t>(facts_.ordinal);
  facts_.memory_bytes = gpu.options_.memory_bytes;
  facts_.is_exclusive = gpu.options_.is_exclusive;
  facts_.has_mps = gpu.options_.has_mps;
}

FakeDevice::~FakeDevice() {
  const std::lock_guard lock(gpu_.mutex_);
  RUEDA_CHECK(streams_.empty());
  for (auto& [base, mapping] : mappings_) {
    if (mapping.is_import) continue;
    mapping.block->set_freed();
    gpu_.used_bytes_ -= room_for(mapping.bytes);
  }
}

Status FakeDevice::health() {
  const std::lock_guard lock(gpu_.mutex_);
  return health_;
}

Status FakeDevice::enter(std::string_view call) {
  if (!health_.is_ok()) return health_;
  const auto found = failures_.find(call);
  if (found == failures_.end()) return Status::ok();
  Status status = found->second;
  failures_.erase(found);
  return status;
}

Status FakeDevice::enter(std::string_view call, const FakeStream& stream) {
  if (Status status = enter(call); !status.is_ok()) return status;
  if (stream.queued() < kMaxQueued) return Status::ok();
  return {Code::kUnavailable, "the stream has too much queued; try again when some of it is done"};
}

void FakeDevice::fail_once(std::string_view call, const Status& status) {
  const std::lock_guard lock(gpu_.mutex_);
  failures_.insert_or_assign(std::string(call), status);
}

void FakeDevice::lose(const Status& status) {
  const std::lock_guard lock(gpu_.mutex_);
  lose_locked(status);
}

void FakeDevice::lose_after(uint64_t operations, const Status& status) {
  const std::lock_guard lock(gpu_.mutex_);
  lose_after_ = {operations, status};
}

void FakeDevice::lose_locked(const Status& status) {
  if (health_.is_ok()) health_ = status;
  for (FakeStream* stream : streams_) stream->drop_all();
}

void FakeDevice::lose_at(DeviceAddress address) {
  lose_locked({Code::kUnavailable, "the device is lost: nothing is at address " +
                                       std::to_string(address) + ", which an operation touched"});
}

bool FakeDevice::operation_is_lost() {
  if (lose_after_ && lose_after_->operations-- == 0) {
    lose_locked(std::exchange(lose_after_, std::nullopt)->status);
  }
  return !health_.is_ok();
}

std::byte* FakeDevice::resolve(DeviceAddress address, uint64_t bytes) {
  if (address >= kHostBegins) {
    auto* const host = reinterpret_cast<std::byte*>(address - kHostBegins);
    return is_pinned(host, bytes) ? host : nullptr;
  }
  if (const auto reserved = reservation_of(address); reserved != reservations_.end()) {
    return reserved->second->at(address - reserved->first, bytes);
  }
  auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return nullptr;
  auto& [base, mapping] = *std::prev(next);
  const uint64_t offset = address - base;
  if (mapping.joined) return mapping.joined->at(offset, bytes);
  if (mapping.block->is_freed() || offset > mapping.bytes || bytes > mapping.bytes - offset) {
    return nullptr;
  }
  return mapping.block->data().data() + offset;
}

std::byte* FakeDevice::host_memory(DeviceAddress address) {
  const std::lock_guard lock(gpu_.mutex_);
  return resolve(address, 1);
}

bool FakeDevice::is_pinned(const void* at, size_t bytes) const {
  const auto* address = static_cast<const std::byte*>(at);
  auto next = host_.upper_bound(address);
  if (next == host_.begin()) return false;
  const auto& [base, range] = *std::prev(next);
  const auto offset = static_cast<size_t>(address - base);
  return offset <= range.bytes && bytes <= range.bytes - offset;
}

bool FakeDevice::is_mapped(const Block& block) const {
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [&](const auto& entry) { return entry.second.block.get() == &block; });
}

bool FakeDevice::is_joined(DeviceAddress piece) const {
  return std::any_of(mappings_.begin(), mappings_.end(), [piece](const auto& entry) {
    const auto& pieces = entry.second.pieces;
    return std::find(pieces.begin(), pieces.end(), piece) != pieces.end();
  });
}

DeviceAddress FakeDevice::first_address() const {
  return kFirstAddress + static_cast<uint64_t>(facts_.ordinal) * kAddressesOfAGpu;
}

DeviceAddress FakeDevice::map(Mapping mapping) {
  DeviceAddress base = first_address();
  for (const auto& [taken, other] : mappings_) {
    if (taken - base >= room_for(mapping.bytes)) break;
    base = taken + room_for(other.bytes);
  }
  mapping.id = next_mapping_id_++;
  mappings_.emplace(base, std::move(mapping));
  return base;
}

Result<std::shared_ptr<Block>> FakeDevice::make_block(uint64_t bytes, Sharing sharing) {
  if (bytes == 0) return Status(Code::kInvalidArgument, "0 bytes of device memory are asked for");
  if (bytes > options_.memory_limit_bytes - allocated_bytes_) {
    return Status(Code::kResourceExhausted, "device memory: " + std::to_string(bytes) +
                                                " bytes more would pass the limit of " +
                                                std::to_string(options_.memory_limit_bytes));
  }
  const uint64_t most = gpu_.options_.memory_bytes - gpu_.used_bytes_;
  const uint64_t whole =
      sharing == Sharing::kFd && bytes <= most ? round_up(bytes, kGranuleBytes) : bytes;
  if (whole > most || room_for(whole) > most) {
    return Status(Code::kResourceExhausted, "the device has no memory left");
  }
  Result<std::shared_ptr<Block>> block = gpu_.make_block(sharing, whole);
  if (!block.is_ok()) return block.status();
  gpu_.used_bytes_ += room_for(whole);
  allocated_bytes_ += bytes;
  return block;
}

void FakeDevice::give_back(Block& block, uint64_t counted_bytes) {
  block.set_freed();
  gpu_.used_bytes_ -= room_for(block.data().size());
  allocated_bytes_ -= counted_bytes;
}

Result<DeviceAddress> FakeDevice::allocate(uint64_t bytes, Sharing sharing) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("allocate"); !status.is_ok()) return status;
  const Result<std::shared_ptr<Block>> block = make_block(bytes, sharing);
  if (!block.is_ok()) return block.status();
  return map(
      {.bytes = block.value()->data().size(), .block = block.value(), .counted_bytes = bytes});
}

Result<DeviceAddress> FakeDevice::reserve(uint64_t bytes) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("reserve"); !status.is_ok()) return status;
  Result<std::unique_ptr<Window>> window = Window::make(bytes);
  if (!window.is_ok()) return window.status();
  const DeviceAddress base =
      reservations_.empty()
          ? first_address() + kReservedOffset
          : std::prev(reservations_.end())->first + std::prev(reservations_.end())->second->bytes();
  reservations_.emplace(base, std::move(window).value());
  return base;
}

FakeDevice::Reservations::const_iterator FakeDevice::reservation_of(DeviceAddress address) const {
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return reservations_.end();
  const auto found = std::prev(next);
  return address - found->first < found->second->bytes() ? found : reservations_.end();
}

Result<Allocation> FakeDevice::find_reserved(DeviceAddress address) const {
  const std::lock_guard lock(gpu_.mutex_);
  const auto found = reservation_of(address);
  if (found == reservations_.end()) return not_found("no address is reserved there");
  return Allocation{.base = found->first, .bytes = found->second->bytes()};
}

Status FakeDevice::allocate_at(DeviceAddress address, uint64_t bytes) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("allocate_at"); !status.is_ok()) return status;
  const auto reserved = reservation_of(address);
  if (reserved == reservations_.end()) return not_found("no address is reserved there");
  const Result<std::shared_ptr<Block>> block = make_block(bytes, Sharing::kFd);
  if (!block.is_ok()) return block.status();
  Status mapped = reserved->second->map(address - reserved->first, block.value());
  if (!mapped.is_ok()) {
    give_back(*block.value(), bytes);
    return mapped;
  }
  mappings_.emplace(address, Mapping{.bytes = block.value()->data().size(),
                                     .block = block.value(),
                                     .counted_bytes = bytes,
                                     .id = next_mapping_id_++});
  return Status::ok();
}

Status FakeDevice::wait_until_idle() {
  const auto is_idle = [this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const FakeStream* stream) { return stream->queued() == 0; });
  };
  while (!is_idle()) {
    if (gpu_.step_locked()) continue;
    return {Code::kTimeout, "this waits for ever: a stream of the device waits for a counter"};
  }
  return health_;
}

Status FakeDevice::unmap(DeviceAddress base, bool is_import) {
  const auto found = mappings_.find(base);
  if (found == mappings_.end() || found->second.is_import != is_import) {
    return not_found(is_import ? "no imported memory begins at this address"
                               : "no memory was allocated at this address");
  }
  if (is_joined(base)) {
    return {Code::kInvalidArgument, "imported memory is part of a join, which is closed first"};
  }
  if (Status status = wait_until_idle(); !status.is_ok()) return status;
  if (!is_import) {
    give_back(*found->second.block, found->second.counted_bytes);
    const auto reserved = reservation_of(base);
    if (reserved != reservations_.end()) reserved->second->unmap(base - reserved->first);
  }
  mappings_.erase(found);
  return Status::ok();
}

Status FakeDevice::free(DeviceAddress base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("free"); !status.is_ok()) return status;
  return unmap(base, false);
}

uint64_t FakeDevice::allocated_bytes() const {
  const std::lock_guard lock(gpu_.mutex_);
  return allocated_bytes_;
}

Result<Allocation> FakeDevice::find(DeviceAddress address) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("find"); !status.is_ok()) return status;
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return not_found("no memory is at this address");
  const auto& [base, mapping] = *std::prev(next);
  if (address - base >= mapping.bytes) return not_found("no memory is at this address");
  return Allocation{base, mapping.bytes, mapping.id};
}

// With a folder, any process may have made the ticket, so it names no GPU of this process.
const void* FakeDevice::ticket_gpu() const {
  return gpu_.options_.folder.empty() ? &gpu_ : nullptr;
}

Result<MemoryHandle> FakeDevice::export_memory(DeviceAddress base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("export_memory"); !status.is_ok()) return status;
  const auto found = mappings_.find(base);
  if (found == mappings_.end() || found->second.is_import) {
    return not_found("no memory was allocated at this address");
  }
  const Block& block = *found->second.block;
  MemoryHandle handle{.sharing = block.sharing(), .bytes = block.data().size()};
  Ticket ticket{.gpu = ticket_gpu(), .block_id = block.id(), .ordinal = facts_.ordinal};
  std::memcpy(ticket.magic, kMagic, sizeof kMagic);
  static_assert(sizeof ticket <= sizeof handle.ipc);
  if (block.sharing() == Sharing::kIpc) {
    std::memcpy(handle.ipc.data(), &ticket, sizeof ticket);
    return handle;
  }
  handle.fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
  if (handle.fd < 0 || ::pwrite(handle.fd, &ticket, sizeof ticket, 0) != sizeof ticket) {
    if (handle.fd >= 0) ::close(handle.fd);
    return Status(Code::kResourceExhausted, "there is no file for a handle");
  }
  return handle;
}

Result<DmaBuf> FakeDevice::export_dma_buf(DeviceAddress base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("export_dma_buf"); !status.is_ok()) return status;
  const auto found = mappings_.find(base);
  if (found == mappings_.end() || found->second.is_import) {
    return not_found("no memory was allocated at this address");
  }
  return found->second.block->export_dma_buf();
}

Result<uint64_t> FakeDevice::id_in(const MemoryHandle& handle) const {
  Ticket ticket{};
  if (handle.sharing == Sharing::kIpc) {
    std::memcpy(&ticket, handle.ipc.data(), sizeof ticket);
  } else if (::pread(handle.fd, &ticket, sizeof ticket, 0) != sizeof ticket) {
    return Status(Code::kInvalidArgument, "this file is no handle of device memory");
  }
  if (std::memcmp(ticket.magic, kMagic, sizeof kMagic) != 0 || ticket.gpu != ticket_gpu() ||
      ticket.ordinal != facts_.ordinal) {
    return Status(Code::kInvalidArgument, "this is no handle of memory of this device");
  }
  return ticket.block_id;
}

Result<DeviceAddress> FakeDevice::import_memory(const MemoryHandle& handle) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("import_memory"); !status.is_ok()) return status;
  const bool is_refused = handle.sharing == Sharing::kIpc ? gpu_.options_.refuses_ipc_handles
                                                          : gpu_.options_.refuses_descriptors;
  if (is_refused) return Status(Code::kInvalidArgument, "another container's memory is not opened");
  const Result<uint64_t> id = id_in(handle);
  if (!id.is_ok()) return id.status();
  const std::shared_ptr<Block> block = gpu_.find_block(id.value());
  if (!block) return not_found("the memory of this handle is no longer there");
  if (handle.bytes != block->data().size() || handle.sharing != block->sharing()) {
    return Status(Code::kInvalidArgument, "the memory of this handle has another size");
  }
  if (handle.sharing == Sharing::kIpc && is_mapped(*block)) {
    return Status(Code::kInvalidArgument, "the memory of this handle is mapped here already");
  }
  return map({.bytes = handle.bytes, .block = block, .is_import = true});
}

Result<DeviceAddress> FakeDevice::join(std::span<const DeviceAddress> imports) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("join"); !status.is_ok()) return status;
  if (imports.size() < 2) return Status(Code::kInvalidArgument, "a join is of two at least");
  std::vector<std::shared_ptr<Block>> blocks;
  uint64_t bytes = 0;
  for (const DeviceAddress piece : imports) {
    const auto found = mappings_.find(piece);
    if (found == mappings_.end() || !found->second.is_import) {
      return not_found("no imported memory begins at this address");
    }
    blocks.push_back(found->second.block);
    if (!blocks.back() || blocks.back()->sharing() != Sharing::kFd || found->second.is_reached) {
      return Status(Code::kInvalidArgument, "only memory that came by a descriptor can be joined");
    }
    bytes += found->second.bytes;
  }
  Result<std::unique_ptr<Window>> window = Window::make(bytes);
  if (!window.is_ok()) return window.status();
  uint64_t offset = 0;
  for (const auto& block : blocks) {
    if (Status status = window.value()->map(offset, block); !status.is_ok()) return status;
    offset += block->data().size();
  }
  return map({.bytes = bytes,
              .joined = std::move(window).value(),
              .pieces = {imports.begin(), imports.end()},
              .is_import = true});
}

Status FakeDevice::close_import(DeviceAddress base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("close_import"); !status.is_ok()) return status;
  return unmap(base, true);
}

Status FakeDevice::can_reach(const DeviceFacts& peer) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("can_reach"); !status.is_ok()) return status;
  if (gpu_.options_.has_peer_access) return Status::ok();
  return {Code::kPermission, "fake GPU " + std::to_string(facts_.ordinal) + " and fake GPU " +
                                 std::to_string(peer.ordinal) +
                                 " do not reach each other's memory: there is no peer access "
                                 "between them; hand over host memory"};
}

// The locks of two GPUs are never held together.
Result<DeviceAddress> FakeDevice::reach(Device& peer, DeviceAddress base) {
  auto& other = static_cast<FakeDevice&>(peer);
  Mapping mapping{.is_import = true, .is_reached = true};
  {
    const std::lock_guard lock(other.gpu_.mutex_);
    const auto found = other.mappings_.find(base);
    if (found == other.mappings_.end() || !found->second.is_import) {
      return not_found("no imported memory of the other GPU begins at this address");
    }
    if (found->second.is_reached) {
      return Status(Code::kInvalidArgument, "the other GPU has this memory from a third");
    }
    mapping.bytes = found->second.bytes;
    mapping.block = found->second.block;
    mapping.joined = found->second.joined;
  }
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("reach"); !status.is_ok()) return status;
  if (mapping.block && mapping.block->sharing() == Sharing::kIpc && is_mapped(*mapping.block)) {
    return Status(Code::kInvalidArgument, "the memory of this handle is mapped here already");
  }
  return map(std::move(mapping));
}

Result<std::span<std::byte>> FakeDevice::allocate_host(size_t bytes) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("allocate_host"); !status.is_ok()) return status;
  if (bytes == 0) return Status(Code::kInvalidArgument, "0 bytes of pinned memory are asked for");
  std::unique_ptr<std::byte[]> owned(new (std::nothrow) std::byte[bytes]());
  if (!owned) return Status(Code::kResourceExhausted, "there is no memory to pin");
  std::byte* const base = owned.get();
  host_.emplace(base, HostRange{bytes, std::move(owned)});
  return std::span(base, bytes);
}

Status FakeDevice::remove_host(std::byte* base, bool is_owned) {
  const auto found = host_.find(base);
  if (found == host_.end() || (found->second.owned != nullptr) != is_owned) {
    return not_found("no pinned memory of this kind begins here");
  }
  if (Status status = wait_until_idle(); !status.is_ok()) return status;
  host_.erase(found);
  return Status::ok();
}

Status FakeDevice::free_host(std::byte* base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("free_host"); !status.is_ok()) return status;
  return remove_host(base, true);
}

Status FakeDevice::register_host(std::span<std::byte> memory) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("register_host"); !status.is_ok()) return status;
  if (memory.empty()) return {Code::kInvalidArgument, "0 bytes are to be pinned"};
  return pin(memory);
}

Status FakeDevice::pin(std::span<std::byte> memory) {
  for (const auto& [base, range] : host_) {
    if (memory.data() < base + range.bytes && base < memory.data() + memory.size()) {
      return {Code::kInvalidArgument, "some of this memory is already pinned"};
    }
  }
  host_.emplace(memory.data(), HostRange{.bytes = memory.size()});
  return Status::ok();
}

Status FakeDevice::unregister_host(std::byte* base) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("unregister_host"); !status.is_ok()) return status;
  return remove_host(base, false);
}

Result<DeviceAddress> FakeDevice::address_of_host(std::span<const std::byte> memory) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("address_of_host"); !status.is_ok()) return status;
  if (!is_pinned(memory.data(), memory.size())) {
    return Status(Code::kInvalidArgument, "the device cannot reach host memory that is not pinned");
  }
  return kHostBegins + reinterpret_cast<DeviceAddress>(memory.data());
}

Status FakeDevice::reach_host(Device& peer, std::byte* base) {
  auto& other = static_cast<FakeDevice&>(peer);
  size_t bytes = 0;
  {
    const std::lock_guard lock(other.gpu_.mutex_);
    const auto found = other.host_.find(base);
    if (found == other.host_.end()) return not_found("the other GPU has pinned nothing there");
    bytes = found->second.bytes;
  }
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("reach_host"); !status.is_ok()) return status;
  return pin({base, bytes});
}

Result<std::unique_ptr<Stream>> FakeDevice::make_stream(Priority priority) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("make_stream"); !status.is_ok()) return status;
  return std::unique_ptr<Stream>(std::make_unique<FakeStream>(*this, priority));
}

Result<CommunicatorId> FakeDevice::make_communicator_id() {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("make_communicator_id"); !status.is_ok()) return status;
  if (!gpu_.options_.has_communicators) {
    return Status(Code::kUnavailable, "this fake GPU has no communicators");
  }
  auto place = make_meeting_place();
  if (!place.is_ok()) return place.status();
  auto [id, listener] = std::move(place).value();
  meeting_places_[id] = std::move(listener);
  return id;
}

Result<std::unique_ptr<Communicator>> FakeDevice::connect(const CommunicatorId& id, int rank,
                                                          int size) {
  const std::lock_guard lock(gpu_.mutex_);
  if (Status status = enter("connect"); !status.is_ok()) return status;
  if (!gpu_.options_.has_communicators) {
    return Status(Code::kUnavailable, "this fake GPU has no communicators");
  }
  const auto place = meeting_places_.find(id);
  if ((rank == 0) != (place != meeting_places_.end())) {
    return Status(Code::kInvalidArgument, "who makes the id of a communicator is the first of it");
  }
  UniqueFd listener;
  if (rank == 0) {
    listener = std::move(place->second);
    meeting_places_.erase(place);
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<FakeCommunicator>(*this, id, rank, size, std::move(listener)));
}

}  // namespace rueda::gpu::fake
