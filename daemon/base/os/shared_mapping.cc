#include "daemon/base/os/shared_mapping.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rueda {
namespace {

constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

constexpr size_t kGuardBytes = 4096;  // This is one page.

size_t whole_pages(size_t bytes) { return (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes; }

// Unmaps the range; an empty range is no mapping.
void unmap(std::byte* begin, const std::byte* end) {
  if (begin != end) ::munmap(begin, static_cast<size_t>(end - begin));
}

// First reserves addresses, then maps at those of them that are aligned, with a page on each side
// that nobody may touch.
std::byte* map_guarded(size_t bytes, int flags, int fd) {
  const size_t alignment = bytes < kHugePageBytes ? kGuardBytes : kHugePageBytes;
  const size_t reserved_bytes = whole_pages(bytes) + kGuardBytes + alignment;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE, kReserve, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(reserved);
  const size_t place = reinterpret_cast<uintptr_t>(begin) % alignment;
  std::byte* const data = begin + alignment - place;
  if (::mmap(data, bytes, kAccess, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, reserved_bytes);
    errno = error;
    return nullptr;
  }
  unmap(begin, data - kGuardBytes);
  unmap(data + whole_pages(bytes) + kGuardBytes, begin + reserved_bytes);
  return data;
}

}  // namespace

std::byte* map_shared(int fd, size_t bytes) { return map_guarded(bytes, MAP_SHARED, fd); }

std::byte* map_private(size_t bytes) { return map_guarded(bytes, kReserve, -1); }

void unmap_guarded(std::byte* data, size_t bytes) {
  if (data == nullptr) return;
  unmap(data - kGuardBytes, data + whole_pages(bytes) + kGuardBytes);
}

SharedMemory make_shared_memory(const char* name, size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return {};
  }
  std::byte* const base = map_shared(fd.get(), bytes);
  return {std::move(fd), base};
}

}  // namespace rueda
