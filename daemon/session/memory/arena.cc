#include "daemon/session/memory/arena.h"

#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "daemon/base/limits.h"
#include "daemon/base/os/shared_mapping.h"
#include "daemon/session/users/doors.h"

namespace rueda::session {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

constexpr uint64_t kArenaGranuleBytes = 4096;
// st_blocks counts in units of this size.
constexpr uint64_t kBlockBytes = 512;

}  // namespace

Status check_memfd(int fd, uint64_t bytes, const std::string& what) {
  // The seals are checked before fstat, because fstat could block on a file of a hung network file
  // system.
  int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return Status(Code::kInvalidArgument, "the descriptor of " + what +
                                              " is not a memfd: make it with memfd_create and "
                                              "MFD_ALLOW_SEALING");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kNeeded) != kNeeded) {
    return Status(Code::kInvalidArgument,
                  "the memfd of " + what +
                      " is not sealed against shrinking and growing: add F_SEAL_SHRINK "
                      "and F_SEAL_GROW before handing it over");
  }
  if ((seals & (F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return Status(Code::kInvalidArgument,
                  "the memfd of " + what +
                      " cannot be mapped for writing and then be sealed: add "
                      "no other seals, and share it once");
  }
  if (bytes == 0 || bytes % kArenaGranuleBytes != 0) {
    return Status(Code::kInvalidArgument, what + " of " + std::to_string(bytes) +
                                              " bytes is not possible: use a multiple of 4096");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes) {
    return Status(Code::kInvalidArgument, "the memfd of " + what + " has " +
                                              std::to_string(info.st_size) + " bytes, not the " +
                                              std::to_string(bytes) +
                                              " announced: announce its real size");
  }
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return Status(Code::kInvalidArgument,
                  "the memfd of " + what +
                      " has pages of a special size, "
                      "of which it cannot be told who pays for them: make it "
                      "without MFD_HUGETLB");
  }
  const uint64_t there = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  if (there < bytes) {
    return Status(Code::kInvalidArgument,
                  what + " of " + std::to_string(bytes) + " bytes has memory for " +
                      std::to_string(there) +
                      " alone, and the daemon would pay for the rest: "
                      "fallocate or touch all of it before handing it over");
  }
  return Status::ok();
}

Status seal_memfd(int fd, const std::string& what) {
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return Status(Code::kInvalidArgument, "the memfd of " + what + " cannot be sealed (" +
                                              std::strerror(errno) +
                                              "): the daemon needs Linux 5.1, and a memfd that is "
                                              "shared once");
  }
  // A hole may have been punched between check_memfd() and the seal.
  struct stat info {};
  if (::fstat(fd, &info) == 0 &&
      static_cast<uint64_t>(info.st_blocks) * kBlockBytes >= static_cast<uint64_t>(info.st_size)) {
    return Status::ok();
  }
  return Status(Code::kInvalidArgument, what + " has lost memory while it was handed over");
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

Arena::Arena(ArenaMemory memory, Principal principal, std::shared_ptr<ArenaTotals> totals)
    : memory_(std::move(memory)), principal_(std::move(principal)), totals_(std::move(totals)) {
  totals_->arenas.fetch_add(1, std::memory_order_relaxed);
  totals_->bytes.fetch_add(bytes(), std::memory_order_relaxed);
}

Arena::~Arena() {
  totals_->arenas.fetch_sub(1, std::memory_order_relaxed);
  totals_->bytes.fetch_sub(bytes(), std::memory_order_relaxed);
  try {
    Doors::of_process().run(
        principal_, [gone = std::make_shared<ArenaMemory>(std::move(memory_))] {},
        Doors::Purpose::kMemory);
  } catch (const std::bad_alloc&) {
    // No memory was left to hand the mapping to a door: it is unmapped on this thread.
  }
}

Result<ArenaMemory> ArenaTable::map(int fd, uint64_t bytes, const Account& account) {
  const std::string what = "an arena";
  if (Status status = check_memfd(fd, bytes, what); !status.is_ok()) return status;
  Result<Charge> paid = charge(account, Resource::kArenaBytes, bytes);
  if (!paid.is_ok()) return paid.status();
  Result<Charge> counted = charge(account, Resource::kArenas, 1);
  if (!counted.is_ok()) return counted.status();
  Result<Mapping> mapping = Mapping::map(fd, bytes, what);
  if (!mapping.is_ok()) return mapping.status();
  if (Status status = seal_memfd(fd, what); !status.is_ok()) return status;
  struct stat info {};
  (void)::fstat(fd, &info);  // It has answered before.
  return ArenaMemory{std::move(mapping).value(),
                     {info.st_dev, info.st_ino},
                     std::move(paid).value(),
                     std::move(counted).value()};
}

Result<uint32_t> ArenaTable::add(ArenaMemory memory) {
  return add(std::make_shared<Arena>(std::move(memory), account_.principal, totals_));
}

Result<uint32_t> ArenaTable::add(std::shared_ptr<Arena> arena) {
  if (arenas_.size() >= limits::kMaxArenasPerSession) {
    return Status(Code::kResourceExhausted,
                  "this process has " + std::to_string(limits::kMaxArenasPerSession) +
                      " arenas already: free some, or use fewer and larger ones");
  }
  uint32_t id = next_id_++;
  arenas_.emplace(id, std::move(arena));
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
