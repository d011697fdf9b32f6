#include "client/src/wire/arena.h"

#include <cerrno>
#include <iterator>

#include <fcntl.h>
#include <sys/mman.h>

#include "daemon/base/os/shared_mapping.h"

namespace rueda::client {
namespace {

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Debian 12's headers lack it
#endif

// Asks the kernel (6.1 and later) for huge pages, whatever is set for shared memory. Huge pages are
// populated at once, where small pages take twenty times as long, and the daemon maps them as huge
// pages, too. The kernel makes a huge page where the range has a page already. If it cannot, the
// pages stay small.
void ask_for_huge_pages(std::byte* data, size_t bytes) {
  const size_t huge_bytes = bytes / kHugePageBytes * kHugePageBytes;
  for (size_t at = 0; at < huge_bytes; at += kHugePageBytes) {
    if (::madvise(data + at, kPageBytes, MADV_POPULATE_WRITE) != 0) return;
  }
  // One call covers all pages: each call waits for every core.
  if (huge_bytes > 0) ::madvise(data, huge_bytes, MADV_COLLAPSE);
}

// MADV_POPULATE_WRITE reports a lack of memory instead of raising a signal. Kernels before 5.14 do
// not know it (EINVAL): then every page is touched.
Status populate(std::byte* data, size_t bytes) {
  ask_for_huge_pages(data, bytes);
  int rc = 0;
  do {
    rc = ::madvise(data, bytes, MADV_POPULATE_WRITE);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return Status::ok();
  if (errno != EINVAL) {
    return {Code::kResourceExhausted,
            errno_text("no memory for an arena of " + std::to_string(bytes) +
                           " bytes (raise the memory limit of this process's cgroup)",
                       errno)};
  }
  for (size_t at = 0; at < bytes; at += kPageBytes) {
    *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ArenaMemory>> ArenaMemory::create(size_t bytes) {
  UniqueFd memfd(::memfd_create("rueda-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.is_open()) {
    return Status{Code::kResourceExhausted, errno_text("cannot make a memfd for an arena", errno)};
  }
  if (::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Status{
        Code::kResourceExhausted,
        errno_text("cannot size and seal an arena of " + std::to_string(bytes) + " bytes", errno)};
  }
  std::byte* data = map_shared(memfd.get(), bytes);
  if (!data) {
    return Status{Code::kResourceExhausted,
                  errno_text("cannot map an arena of " + std::to_string(bytes) + " bytes", errno)};
  }
  std::unique_ptr<ArenaMemory> memory(new ArenaMemory(std::move(memfd), data, bytes));
  if (Status status = populate(memory->data(), bytes); !status.is_ok()) return status;
  return memory;
}

ArenaMemory::~ArenaMemory() { unmap_guarded(data_, bytes_); }

FreeSpace::FreeSpace(size_t bytes) { insert_free(0, bytes); }

void FreeSpace::insert_free(size_t offset, size_t bytes) {
  free_by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void FreeSpace::erase_free(std::map<size_t, size_t>::iterator piece) {
  by_size_.erase({piece->second, piece->first});
  free_by_offset_.erase(piece);
}

std::optional<size_t> FreeSpace::best_fit(size_t bytes) const {
  auto piece = by_size_.lower_bound({bytes, 0});
  if (piece == by_size_.end()) return std::nullopt;
  return piece->first;
}

size_t FreeSpace::take(size_t bytes) {
  auto [piece_bytes, offset] = *by_size_.lower_bound({bytes, 0});
  erase_free(free_by_offset_.find(offset));
  if (piece_bytes > bytes) insert_free(offset + bytes, piece_bytes - bytes);
  live_.emplace(offset, bytes);
  return offset;
}

bool FreeSpace::give(size_t offset) {
  auto live = live_.find(offset);
  if (live == live_.end()) return false;
  size_t bytes = live->second;
  live_.erase(live);

  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      erase_free(before);
    }
  }
  if (next != free_by_offset_.end() && offset + bytes == next->first) {
    bytes += next->second;
    erase_free(next);
  }
  insert_free(offset, bytes);
  return true;
}

bool FreeSpace::is_live(size_t offset, size_t bytes) const {
  auto after = live_.upper_bound(offset);
  if (after == live_.begin()) return false;
  auto piece = std::prev(after);
  return offset - piece->first <= piece->second && bytes <= piece->second - (offset - piece->first);
}

std::optional<size_t> FreeSpace::live_bytes(size_t offset) const {
  auto live = live_.find(offset);
  if (live == live_.end()) return std::nullopt;
  return live->second;
}

}  // namespace rueda::client
