// Host memory through which tensors of a GPU's memory go between nodes: a memfd that a GPU worker
// maps and pins, too, and which pieces of it are in use. It belongs to one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::engine {

class DeviceStaging {
 public:
  // Every piece begins at a multiple of this.
  static constexpr uint64_t kAlignment = 256;

  // Makes the memory. The error is kResourceExhausted if there is none.
  static Result<std::unique_ptr<DeviceStaging>> make(uint64_t bytes);
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  uint64_t bytes() const { return bytes_; }
  // Returns a descriptor of the memory, which is sealed against shrinking. It is not open if there
  // are no descriptors left.
  UniqueFd duplicate() const;
  std::byte* at(uint64_t offset) const { return base_ + offset; }

  // Takes the first place where so many bytes are free. Returns none if there is no such place now.
  std::optional<uint64_t> take(uint64_t bytes);
  // Gives back a place that take() has returned (checked).
  void give_back(uint64_t offset);
  bool is_unused() const { return pieces_.empty(); }

 private:
  DeviceStaging(UniqueFd fd, std::byte* base, uint64_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}

  const UniqueFd fd_;
  std::byte* const base_;
  const uint64_t bytes_;
  std::map<uint64_t, uint64_t> pieces_;  // The pieces in use: where each begins and ends.
};

}  // namespace rueda::engine
