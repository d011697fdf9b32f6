#include "client/src/session/session.h"

#include <algorithm>
#include <cstring>

namespace rueda::client {

Session::Session(Config config, Attachment daemon)
    : config_(std::move(config)),
      link_(config_, std::move(daemon), *this),
      process_sets_(link_.place().world_size),
      interned_([this](const rueda_abi_intern& descriptor,
                       std::span<const int64_t> counts) { return intern(descriptor, counts); },
                [this](uint32_t id) {
                  const rueda_abi_forget body{.tensor_id = id, .reserved = 0};
                  return link_.request(RUEDA_ABI_FORGET, &body, sizeof(body), -1).status();
                }),
      handles_(link_.capacity()),
      device_(config_, link_, handles_, interned_) {
  allocator_ = std::make_shared<ArenaAllocator>(ArenaAllocator::Registrar{
      .add =
          [this](int memfd, uint64_t bytes) {
            rueda_abi_arena body{.bytes = bytes, .arena_id = 0, .reserved = 0};
            return link_.request(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), memfd);
          },
      .remove =
          [this](uint32_t arena_id) {
            rueda_abi_arena body{.bytes = 0, .arena_id = arena_id, .reserved = 0};
            return link_.request(RUEDA_ABI_ARENA_REMOVE, &body, sizeof(body), -1).status();
          }});
}

Session::~Session() {
  device_.stop();
  for (auto& handle : handles_.all()) release(*handle);
  allocator_->retire();
}

Result<std::unique_ptr<Session>> Session::attach(const Config& config) {
  Result<Attachment> daemon = attach_to_daemon(config);
  if (!daemon.is_ok()) return daemon.status();
  return std::unique_ptr<Session>(new Session(config, std::move(daemon).value()));
}

Result<void*> Session::allocate(size_t bytes) {
  Result<Block> block = allocator_->allocate(bytes);
  if (!block.is_ok()) return block.status();
  return static_cast<void*>(block.value().data);
}

Status Session::free(void* memory) {
  std::optional<size_t> bytes = allocator_->block_bytes(memory);
  if (bytes) {
    auto begin = static_cast<const std::byte*>(memory);
    Lock lock = link_.lock();
    for (const Operation* operation : handles_.in_flight()) {
      if (operation == nullptr) continue;
      for (const std::byte* used : operation->arena_data) {
        if (used == nullptr || used < begin || used >= begin + *bytes) continue;
        return {Code::kInvalidArgument, "the memory is in use by tensor \"" +
                                            std::string(operation->name) +
                                            "\"; wait for its handle before freeing it"};
      }
    }
    ++frees_;
  }
  return allocator_->free(memory, ArenaAllocator::IfIdle::kMayReturn);
}

rueda_stats Session::stats() const {
  Lock lock = link_.lock();
  rueda_stats stats = stats_;
  stats.submissions = link_.submissions();
  stats.bytes_copied_in = link_.bytes_copied_in();
  stats.arena_bytes = allocator_->mapped_bytes();
  return stats;
}

Status Session::detach(int64_t timeout_ms) {
  Status result;
  {
    Lock lock = link_.lock();
    bool is_quiet = link_.wait_until(
        lock, [this] { return handles_.in_flight_count() == 0; }, steady_now_ms() + timeout_ms);
    if (!is_quiet) {
      result = {Code::kTimeout, std::to_string(handles_.in_flight_count()) +
                                    " operations were still in flight at shutdown, among them "
                                    "tensor \"" +
                                    std::string(handles_.first_in_flight().name) +
                                    "\"; wait for every handle before rueda_shutdown"};
    }
    link_.leave(lock, timeout_ms);
  }
  return result;
}

void Session::detach_if_idle(int64_t timeout_ms) {
  {
    const Lock lock = link_.try_lock();
    if (!lock.owns_lock() || link_.is_polled()) return;
    link_.drain_completions();
    if (handles_.in_flight_count() > 0) return;
  }
  (void)detach(timeout_ms);
}

}  // namespace rueda::client
