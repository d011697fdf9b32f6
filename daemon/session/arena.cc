#include "daemon/session/arena.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/base/limits.h"
#include "daemon/base/shared_mapping.h"

namespace rueda::session {
namespace {

constexpr uint64_t kArenaGranuleBytes = 4096;

}  // namespace

Status check_memfd(int fd, uint64_t bytes) {
  // Seals before fstat: asking a file on a hung network file system for its size could block.
  int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return Status(Code::kInvalidArgument,
                  "the descriptor of the arena is not a memfd: make it with memfd_create and "
                  "MFD_ALLOW_SEALING");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kNeeded) != kNeeded) {
    return Status(
        Code::kInvalidArgument,
        "the arena's memfd is not sealed against shrinking and growing: add F_SEAL_SHRINK "
        "and F_SEAL_GROW before handing it over");
  }
  if (bytes == 0 || bytes % kArenaGranuleBytes != 0) {
    return Status(Code::kInvalidArgument, "an arena of " + std::to_string(bytes) +
                                              " bytes is not possible: use a multiple of 4096");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes) {
    return Status(Code::kInvalidArgument, "the arena's memfd has " + std::to_string(info.st_size) +
                                              " bytes, not the " + std::to_string(bytes) +
                                              " announced: announce its real size");
  }
  return Status::ok();
}

Mapping::Mapping(std::byte* data, size_t bytes, GuardedRange guard)
    : data_(data), bytes_(bytes), guard_(std::move(guard)) {}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      guard_(std::move(other.guard_)) {}

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  guard_ = GuardedRange();
  unmap_guarded(data_, bytes_);
}

Result<Mapping> Mapping::map(int fd, size_t bytes, const std::string& what) {
  std::byte* data = map_shared(fd, bytes);
  if (!data) {
    Code code = errno == ENOMEM ? Code::kResourceExhausted : Code::kInvalidArgument;
    return Status(code, "cannot map " + what + " of " + std::to_string(bytes) +
                            " bytes for reading and writing: " + std::strerror(errno));
  }
  Result<GuardedRange> guard = GuardedRange::guard(data, bytes);
  if (!guard.is_ok()) {
    unmap_guarded(data, bytes);
    return guard.status();
  }
  return Mapping(data, bytes, std::move(guard).value());
}

Arena::Arena(Mapping mapping, std::shared_ptr<ArenaTotals> totals)
    : mapping_(std::move(mapping)), totals_(std::move(totals)) {
  totals_->arenas.fetch_add(1, std::memory_order_relaxed);
  totals_->bytes.fetch_add(bytes(), std::memory_order_relaxed);
}

Arena::~Arena() {
  totals_->arenas.fetch_sub(1, std::memory_order_relaxed);
  totals_->bytes.fetch_sub(bytes(), std::memory_order_relaxed);
}

Result<uint32_t> ArenaTable::add(int fd, uint64_t bytes) {
  if (arenas_.size() >= limits::kMaxArenasPerSession) {
    return Status(Code::kResourceExhausted,
                  "this process has " + std::to_string(limits::kMaxArenasPerSession) +
                      " arenas already: free some, or use fewer and larger ones");
  }
  if (Status status = check_memfd(fd, bytes); !status.is_ok()) return status;
  Result<Mapping> mapping = Mapping::map(fd, bytes, "the arena");
  if (!mapping.is_ok()) return mapping.status();
  uint32_t id = next_id_++;
  arenas_.emplace(id, std::make_shared<Arena>(std::move(mapping).value(), totals_));
  return id;
}

Status ArenaTable::remove(uint32_t id) {
  if (arenas_.erase(id) == 1) return Status::ok();
  return Status(Code::kNotFound, "there is no arena " + std::to_string(id) + " to remove");
}

const std::shared_ptr<Arena>& ArenaTable::find(uint32_t id) const {
  static const std::shared_ptr<Arena> none;
  auto found = arenas_.find(id);
  return found == arenas_.end() ? none : found->second;
}

std::vector<std::shared_ptr<Arena>> ArenaTable::all() const {
  std::vector<std::shared_ptr<Arena>> all;
  for (const auto& [id, arena] : arenas_) all.push_back(arena);
  return all;
}

bool ArenaTable::any_is_lost() const {
  for (const auto& [id, arena] : arenas_) {
    if (arena->is_lost()) return true;
  }
  return false;
}

}  // namespace rueda::session
