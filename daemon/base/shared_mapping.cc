#include "daemon/base/shared_mapping.h"

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

// Zero bytes are no mapping.
void unmap(std::byte* begin, const std::byte* end) {
  if (begin != end) ::munmap(begin, static_cast<size_t>(end - begin));
}

}  // namespace

std::byte* map_shared(int fd, size_t bytes) {
  if (bytes < kHugePageBytes) {
    void* data = ::mmap(nullptr, bytes, kAccess, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
  }
  // The addresses first, and of them those that lie well.
  const size_t reserved_bytes = bytes + kHugePageBytes;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE, kReserve, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(reserved);
  const size_t place = reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  std::byte* const data = begin + (kHugePageBytes - place) % kHugePageBytes;
  if (::mmap(data, bytes, kAccess, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, reserved_bytes);
    errno = error;
    return nullptr;
  }
  const size_t page_end = (bytes + 4095) / 4096 * 4096;
  unmap(begin, data);
  unmap(data + page_end, begin + reserved_bytes);
  return data;
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
