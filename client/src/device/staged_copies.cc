#include "client/src/device/staged_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "client/include/rueda/rueda.h"
#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

constexpr uint64_t kLeastArenaBytes = uint64_t{16} << 20;
// The first words of a block. Each is 0, and becomes 1 when a stream has come so far: the first
// when it has copied the input in, the others when it has the result, one for each turn.
constexpr uint64_t kHeadBytes = sizeof(uint64_t) * (1 + StagedCopies::kMaxTurns);
static_assert(kHeadBytes % kBlockAlignmentBytes == 0);
constexpr uint64_t kInAt = 0;
constexpr uint64_t out_at(StagedCopies::Turn turn) { return sizeof(uint64_t) * (1 + turn); }

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::atomic_ref<uint64_t> word(std::byte* head, uint64_t at) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(head + at));
}

}  // namespace

StagedCopies::~StagedCopies() {
  {
    const MutexLock lock(mutex_);
    sweep();
  }
  if (own_stream_ != nullptr) driver_.free_stream(own_stream_);
  for (auto& arena : arenas_) {
    if (arena->space.is_idle()) {
      driver_.unregister_host(arena->memory->data());
    } else {
      keep(std::move(arena));
    }
  }
}

void StagedCopies::keep(std::unique_ptr<Arena> arena) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Arena>>;
  const MutexLock lock(mutex);
  kept->push_back(std::move(arena));
}

bool StagedCopies::is_idle(const Block& block) {
  const auto has_come = [&](uint64_t at) {
    return word(block.head_, at).load(std::memory_order_acquire) == 1;
  };
  bool is_idle = !block.is_copied_in_ || has_come(kInAt);
  for (Turn turn = 0; turn < block.turns_ && is_idle; ++turn) is_idle = has_come(out_at(turn));
  return is_idle;
}

void StagedCopies::sweep() {
  std::erase_if(given_back_, [this](const Block& block) RUEDA_REQUIRES(mutex_) {
    if (!is_idle(block)) return false;
    for (auto& arena : arenas_) {
      if (arena->id != block.memory_id_) continue;
      arena->space.give(block.offset_ - kHeadBytes);
    }
    --taken_;
    return true;
  });
}

std::optional<StagedCopies::Block> StagedCopies::take_there(size_t bytes) {
  const MutexLock lock(mutex_);
  sweep();
  for (auto& arena : arenas_) {
    if (!arena->space.best_fit(bytes)) continue;
    const size_t offset = arena->space.take(bytes);
    Block block;
    block.head_ = arena->memory->data() + offset;
    block.head_on_device_ = arena->on_device + offset;
    block.memory_id_ = arena->id;
    block.offset_ = offset + kHeadBytes;
    std::memset(block.head_, 0, kHeadBytes);
    ++taken_;
    return block;
  }
  return std::nullopt;
}

Result<std::optional<StagedCopies::Block>> StagedCopies::take(size_t bytes) {
  const uint64_t wanted = kHeadBytes + round_up(bytes, kBlockAlignmentBytes);
  if (wanted > max_bytes_) {
    return Status{
        Code::kResourceExhausted,
        std::to_string(bytes) +
            " bytes of device memory that the GPU worker cannot open go through pinned "
            "host memory, of which there are " +
            std::to_string(max_bytes_) +
            " bytes at most: raise RUEDA_DEVICE_STAGING_BYTES, or let the worker open it"};
  }
  if (std::optional<Block> block = take_there(wanted)) return block;
  const MutexLock growing(grow_mutex_);
  for (;;) {
    if (std::optional<Block> block = take_there(wanted))
      return block;  // another thread has grown it
    const Result<bool> grown = grow(wanted);
    if (!grown.is_ok()) return grown.status();
    // Many small arenas may have the memory that a large block needs.
    if (!grown.value() && !drop_idle_arenas()) return std::optional<Block>();
  }
}

Result<bool> StagedCopies::grow(size_t bytes) {
  const uint64_t least = round_up(bytes, kPageBytes);
  const uint64_t more =
      std::min(std::max({least, kLeastArenaBytes, round_up(pinned_bytes_, kPageBytes)}),
               max_bytes_ - std::min(pinned_bytes_, max_bytes_)) /
      kPageBytes * kPageBytes;
  if (more < bytes) return false;
  Result<std::unique_ptr<ArenaMemory>> memory = ArenaMemory::create(more);
  if (!memory.is_ok()) return memory.status();
  const Result<uint64_t> on_device = driver_.register_host({memory.value()->data(), more});
  if (!on_device.is_ok()) return on_device.status();
  auto arena = std::make_unique<Arena>(std::move(memory).value(), on_device.value());
  const Result<uint32_t> id = registrar_.add(arena->memory->fd(), more);
  if (!id.is_ok()) {
    driver_.unregister_host(arena->memory->data());
    return id.status();
  }
  arena->memory->close_descriptor();
  arena->id = id.value();
  pinned_bytes_ += more;
  const MutexLock lock(mutex_);
  arenas_.push_back(std::move(arena));
  return true;
}

bool StagedCopies::drop_idle_arenas() {
  std::vector<std::unique_ptr<Arena>> idle;
  {
    const MutexLock lock(mutex_);
    const auto first = std::stable_partition(
        arenas_.begin(), arenas_.end(), [](const auto& arena) { return !arena->space.is_idle(); });
    std::move(first, arenas_.end(), std::back_inserter(idle));
    arenas_.erase(first, arenas_.end());
  }
  for (const auto& arena : idle) {
    // if the session is over, there is nothing to remove
    static_cast<void>(registrar_.remove(arena->id));
    driver_.unregister_host(arena->memory->data());
    pinned_bytes_ -= arena->memory->bytes();
  }
  return !idle.empty();
}

void StagedCopies::give_back(const Block& block) {
  const MutexLock lock(mutex_);
  given_back_.push_back(block);
}

size_t StagedCopies::taken() {
  const MutexLock lock(mutex_);
  sweep();
  return taken_;
}

Result<void*> StagedCopies::stream_of(void* stream) {
  if (stream != RUEDA_NO_STREAM) return stream;
  const MutexLock lock(mutex_);
  if (own_stream_ == nullptr) {
    const Result<void*> made = driver_.make_stream();
    if (!made.is_ok()) return made.status();
    own_stream_ = made.value();
  }
  return own_stream_;
}

Status StagedCopies::copy_in(Block& block, uint64_t from, size_t bytes, void* stream) {
  const Result<void*> on = stream_of(stream);
  if (!on.is_ok()) return on.status();
  block.is_copied_in_ = true;
  const StreamBeside there{on.value(), from};
  Status status = driver_.copy_to_host(there, block.head_ + kHeadBytes, from, bytes);
  if (!status.is_ok()) return status;
  return driver_.write_value(there, block.head_on_device_ + kInAt, 1);
}

Status StagedCopies::copy_out(const Block& block, Turn turn, uint64_t to, size_t bytes,
                              void* stream) {
  const Result<void*> on = stream_of(stream);
  if (!on.is_ok()) return on.status();
  if (turn == kMaxTurns) {
    return {Code::kResourceExhausted,
            "a result in device memory that the GPU worker cannot open is "
            "waited for by " +
                std::to_string(kMaxTurns) + " streams at most"};
  }
  const StreamBeside there{on.value(), to};
  Status status = turn == 0 ? driver_.copy_to_device(there, to, block.head_ + kHeadBytes, bytes)
                            : driver_.wait_value(there, block.head_on_device_ + out_at(0), 1);
  if (!status.is_ok()) return status;
  return driver_.write_value(there, block.head_on_device_ + out_at(turn), 1);
}

Status StagedCopies::finish() {
  const Result<void*> own = stream_of(RUEDA_NO_STREAM);
  return own.is_ok() ? driver_.synchronize(own.value()) : own.status();
}

}  // namespace rueda::client
