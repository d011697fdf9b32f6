// Large pages for results. XLA takes the memory of a large result from the system at each run, and
// the copy of the result into it is then mostly page faults: 30 ms for 64 MiB, 9 ms with pages of
// 2 MiB (docs/decisions/0093-jax-by-futures.md).
#pragma once

#include <cstddef>

namespace rueda::jax {

// Results of fewer bytes are left as they are: they hold no page of 2 MiB for sure, or but one.
inline constexpr size_t kLeastBytesForLargePages = size_t{4} << 20;

// Advises the kernel to use large pages within these bytes, which keep their contents. What lies
// beside them is left alone. Does nothing where the kernel has none to give, or for few bytes.
void prefer_large_pages(void* memory, size_t bytes);

}  // namespace rueda::jax
