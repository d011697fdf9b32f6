// Device memory of a fake GPU. It is a file, in a folder if other processes are to share it, or
// without a name.
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

// Memory of Sharing::kFd is a multiple of so many bytes.
inline constexpr uint64_t kGranuleBytes = 4096;

// A block's memory belongs to its exporter: once that has freed it, it counts as gone, though
// others may have it mapped.
class Block {
 public:
  // Creates a block. In a folder, the file is named after the id.
  static Result<std::shared_ptr<Block>> create(const std::string& folder, uint64_t id,
                                               Sharing sharing, uint64_t bytes);
  // Opens a block that another process has created. Returns kNotFound when there is no such file.
  static Result<std::shared_ptr<Block>> open(const std::string& folder, uint64_t id);
  // Returns the bytes of all blocks in a folder that are not freed and that some live process has.
  // Memory that only dead processes had returns to the GPU.
  static uint64_t taken_bytes(const std::string& folder);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  uint64_t id() const { return id_; }
  Sharing sharing() const { return sharing_; }
  std::span<std::byte> data() const { return data_; }
  Result<DmaBuf> export_dma_buf() const;
  bool is_freed() const;
  void set_freed();
  // Maps the block at this address too, in place of whatever is there. For blocks of Sharing::kFd.
  Status map_at(std::byte* address) const;

 private:
  struct Header;
  Block(uint64_t id, std::string path, UniqueFd file, Header* header);

  const uint64_t id_;
  const Sharing sharing_;
  const std::string path_;  // empty: the file has no name
  UniqueFd file_;           // locked as long as some process has the block
  Header* const header_;
  const std::span<std::byte> data_;
};

}  // namespace rueda::gpu::fake
