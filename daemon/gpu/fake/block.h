// Device memory of a fake GPU: of this process, or in a file, so that other processes have it, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu::fake {

// It is gone when its exporter has freed it, though others may have it mapped.
class Block {
 public:
  Block(uint64_t id, Sharing sharing, uint64_t bytes);
  // A file of the folder, named after the id.
  static Result<std::shared_ptr<Block>> create(const std::string& folder, uint64_t id,
                                               Sharing sharing, uint64_t bytes);
  // What another process has created. kNotFound when there is no such file.
  static Result<std::shared_ptr<Block>> open(const std::string& folder, uint64_t id);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  uint64_t id() const { return id_; }
  Sharing sharing() const { return sharing_; }
  std::span<std::byte> data() const { return data_; }
  bool is_freed() const;
  void set_freed();

 private:
  struct Header;
  Block(uint64_t id, std::string path, Header* header);

  const uint64_t id_;
  Sharing sharing_;
  std::vector<std::byte> own_;
  bool is_freed_ = false;
  std::string path_;
  Header* header_ = nullptr;  // null: not in a file
  std::span<std::byte> data_;
};

}  // namespace rueda::gpu::fake
