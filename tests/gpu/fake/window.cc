#include "tests/gpu/fake/window.h"

#include <iterator>
#include <utility>

#include <sys/mman.h>

#include "daemon/base/check.h"

namespace rueda::gpu::fake {
namespace {

constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

Result<std::unique_ptr<Window>> Window::make(uint64_t bytes) {
  void* const host = ::mmap(nullptr, bytes, PROT_NONE, kNothing, -1, 0);
  if (host == MAP_FAILED) return Status(Code::kResourceExhausted, "there are no addresses left");
  return std::unique_ptr<Window>(new Window(static_cast<std::byte*>(host), bytes));
}

Window::~Window() { ::munmap(host_, bytes_); }

Status Window::map(uint64_t offset, std::shared_ptr<Block> block) {
  const uint64_t bytes = block->data().size();
  const auto next = blocks_.lower_bound(offset);
  const bool fits = block->sharing() == Sharing::kFd && offset % kGranuleBytes == 0 &&
                    offset <= bytes_ && bytes <= bytes_ - offset &&
                    (next == blocks_.end() || next->first >= offset + bytes) &&
                    (next == blocks_.begin() ||
                     std::prev(next)->first + std::prev(next)->second->data().size() <= offset);
  if (!fits) return {Code::kInvalidArgument, "memory cannot be mapped there"};
  if (Status status = block->map_at(host_ + offset); !status.is_ok()) return status;
  blocks_.emplace(offset, std::move(block));
  return Status::ok();
}

void Window::unmap(uint64_t offset) {
  const auto found = blocks_.find(offset);
  RUEDA_CHECK(found != blocks_.end());
  void* const at = host_ + offset;
  RUEDA_CHECK(::mmap(at, found->second->data().size(), PROT_NONE, kNothing | MAP_FIXED, -1, 0) ==
              at);
  blocks_.erase(found);
}

std::byte* Window::at(uint64_t offset, uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset) return nullptr;
  for (uint64_t reached = offset; reached < offset + bytes;) {
    const auto next = blocks_.upper_bound(reached);
    if (next == blocks_.begin()) return nullptr;
    const auto& [begin, block] = *std::prev(next);
    if (block->is_freed() || reached - begin >= block->data().size()) return nullptr;
    reached = begin + block->data().size();
  }
  return host_ + offset;
}

}  // namespace rueda::gpu::fake
