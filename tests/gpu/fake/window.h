// A range of addresses in which blocks of a fake GPU lie beside each other, as virtual memory
// management reserves it and Device::join() makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "daemon/base/status.h"
#include "tests/gpu/fake/block.h"

namespace rueda::gpu::fake {

class Window {
 public:
  static Result<std::unique_ptr<Window>> make(uint64_t bytes);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t bytes() const { return bytes_; }
  // Maps a block of Sharing::kFd. Returns kInvalidArgument if it would lie outside, or if something
  // is there.
  Status map(uint64_t offset, std::shared_ptr<Block> block);
  void unmap(uint64_t offset);
  // Returns where this process has the bytes. Null means that some of them are not mapped, or no
  // longer.
  std::byte* at(uint64_t offset, uint64_t bytes) const;

 private:
  Window(std::byte* host, uint64_t bytes) : host_(host), bytes_(bytes) {}

  std::byte* const host_;
  const uint64_t bytes_;
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;  // keyed by offset
};

}  // namespace rueda::gpu::fake
