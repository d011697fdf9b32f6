// Device memory of a fake GPU, in a file: in a folder, so that other processes have it, too, or of
// no name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu::fake {

// What memory of Sharing::kFd is whole multiples of.
inline constexpr uint64_t kGranuleBytes = 4096;

// It is gone when its exporter has freed it, though others may have it mapped.
class Block {
 public:
  // Of a folder, the file is named after the id.
  static Result<std::shared_ptr<Block>> create(const std::string& folder, uint64_t id,
                                               Sharing sharing, uint64_t bytes);
  // What another process has created. kNotFound when there is no such file.
  static Result<std::shared_ptr<Block>> open(const std::string& folder, uint64_t id);
  // Of all that is in a folder and not freed: bytes that some process has that still lives. What
  // only dead ones had returns to the GPU.
  static uint64_t taken_bytes(const std::string& folder);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  uint64_t id() const { return id_; }
  Sharing sharing() const { return sharing_; }
  std::span<std::byte> data() const { return data_; }
  bool is_freed() const;
  void set_freed();
  // Has this process map it there, too, in place of what is there. Of Sharing::kFd.
  Status map_at(std::byte* address) const;

 private:
  struct Header;
  Block(uint64_t id, std::string path, UniqueFd file, Header* header);

  const uint64_t id_;
  const Sharing sharing_;
  const std::string path_;  // empty: it has no name
  UniqueFd file_;           // locked, as long as somebody has it
  Header* const header_;
  const std::span<std::byte> data_;
};

}  // namespace rueda::gpu::fake
