#include "client/jax/large_pages.h"

#include <cstdint>

#include <sys/mman.h>

namespace rueda::jax {

void prefer_large_pages(void* memory, size_t bytes) {
  if (bytes < kLeastBytesForLargePages) return;
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) & ~(kPage - 1);
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) & ~(kPage - 1);
  // A refusal leaves the pages as they were.
  static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
}

}  // namespace rueda::jax
