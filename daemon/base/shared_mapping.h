// Memory that several processes map.
#pragma once

#include <cstddef>

#include "daemon/base/fd.h"

namespace rueda {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Maps the whole file for reading and writing, where its huge pages can be mapped as such: at a
// multiple of kHugePageBytes if it is as large as one. The caller's to unmap. nullptr, and errno,
// if it cannot be.
std::byte* map_shared(int fd, size_t bytes);

// New memory that cannot shrink, mapped, and the descriptor by which others map it. nullptr, and
// errno, if it cannot be had. `name` is for people.
struct SharedMemory {
  UniqueFd fd;
  std::byte* base = nullptr;
};
SharedMemory make_shared_memory(const char* name, size_t bytes);

}  // namespace rueda
