#include "tests/support/allocations.h"

#include <cstdlib>
#include <new>

namespace rueda::testing_support {
namespace {

thread_local uint64_t g_allocations = 0;

}  // namespace

uint64_t allocations_of_this_thread() { return g_allocations; }

}  // namespace rueda::testing_support

namespace {

void* counted(void* memory) {
  ++rueda::testing_support::g_allocations;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The forms of operator new for arrays, and those that do not throw, call these.
void* operator new(size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(align, (bytes + align - 1) / align * align));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
