// Addresses in which blocks of a fake GPU lie beside each other: what virtual memory management
// reserves, and what Device::join() makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "daemon/base/status.h"
#include "daemon/gpu/fake/block.h"

namespace rueda::gpu::fake {

class Window {
 public:
  static Result<std::unique_ptr<Window>> make(uint64_t bytes);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t bytes() const { return bytes_; }
  // A block of Sharing::kFd. kInvalidArgument: it lies outside, or something is there.
  Status map(uint64_t offset, std::shared_ptr<Block> block);
  void unmap(uint64_t offset);
  // Where this process has it. Null: of some of it nothing is there, or no longer.
  std::byte* at(uint64_t offset, uint64_t bytes) const;

 private:
  Window(std::byte* host, uint64_t bytes) : host_(host), bytes_(bytes) {}

  std::byte* const host_;
  const uint64_t bytes_;
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;  // by offset
};

}  // namespace rueda::gpu::fake
