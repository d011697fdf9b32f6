// The table keeps what a session knows of the GPU memory that its client shares: the pieces and
// their lengths. A GPU worker finds out whether the memory is what the client says it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/base/limits.h"
#include "daemon/base/status.h"
#include "daemon/session/session.h"

namespace rueda::session {

// A table belongs to the loop.
class DeviceTable {
 public:
  // The client's memory for counters must have two words for each record of a ring.
  explicit DeviceTable(uint32_t ring_capacity) : ring_capacity_(ring_capacity) {}

  // Checks a piece of memory together with the descriptor that came with it, if its kind has one,
  // and adds it. Submissions can name the memory once answer() has accepted it. The error says what
  // is wrong, and names the remedy.
  Result<DeviceMemory> add(const rueda_abi_device_memory& abi, std::vector<ForeignFd>& descriptors);
  // Checks a join of several pieces that are in the table, and adds it as one memory. As with
  // add(), submissions can name it once answer() has accepted it.
  Result<DeviceMemory> join(const rueda_abi_device_join& abi);
  // Says whether the GPU worker can use the memory. If not, the table forgets it.
  void answer(uint32_t id, bool can_be_used);
  // Returns kNotFound if there is no such memory, if it has not been answered for, or if it is the
  // counters; returns kUnavailable if the memory is part of a join.
  Status remove(uint32_t id);

  // Returns 0 if submissions may not name this memory.
  uint64_t bytes_of(uint32_t id) const;
  bool has_counters() const { return has_counters_; }

 private:
  struct Memory {
    uint64_t bytes = 0;
    rueda_abi_device_kind kind = RUEDA_ABI_DEVICE_IPC;
    std::array<uint8_t, 16> device{};
    std::vector<uint32_t> pieces;  // For a join: the ids of its pieces.
    uint32_t joined_in = 0;        // The number of joins that this piece is part of.
    bool is_answered = false;

    bool is_counters() const { return kind == RUEDA_ABI_DEVICE_COUNTERS; }
    bool can_be_joined() const {
      return kind == RUEDA_ABI_DEVICE_FD && pieces.empty() && is_answered;
    }
  };
  using Entry = std::map<uint32_t, Memory>::iterator;

  Status check_room() const;
  Status check_join(const rueda_abi_device_join& abi) const;
  void erase(Entry entry);
  Status check(const rueda_abi_device_memory& abi, const std::vector<ForeignFd>& descriptors) const;
  bool wants_counters() const;

  const uint32_t ring_capacity_;
  bool has_counters_ = false;  // True once the counters have been answered for.
  std::map<uint32_t, Memory> memories_;
  uint32_t next_id_ = 1;
};

}  // namespace rueda::session
