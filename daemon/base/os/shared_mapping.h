// Maps memory in large pieces: memory that several processes share, and memory of one's own.
#pragma once

#include <cstddef>

#include "daemon/base/fd.h"

namespace rueda {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Maps the whole file for reading and writing, where its huge pages can be mapped as such: at a
// multiple of kHugePageBytes if it is as large as one. A page before it and one behind it cannot be
// touched: whoever goes past the end of one process's memory does not get to the next one's. The
// caller has to unmap it with unmap_guarded(). Returns nullptr, with errno set, if it cannot be
// mapped.
std::byte* map_shared(int fd, size_t bytes);
// Maps memory of this process alone, all zeros, in the same way.
std::byte* map_private(size_t bytes);
// Unmaps what either of these has mapped. With nullptr it does nothing.
void unmap_guarded(std::byte* data, size_t bytes);

// New memory that cannot shrink, mapped, and the descriptor by which others map it. `base` is
// nullptr, and errno is set, if it cannot be had. `name` is for people.
struct SharedMemory {
  UniqueFd fd;
  std::byte* base = nullptr;
};
SharedMemory make_shared_memory(const char* name, size_t bytes);

}  // namespace rueda
