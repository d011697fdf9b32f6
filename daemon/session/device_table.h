// Memory of a GPU that one client shares, as far as its session knows it: which pieces there are,
// and how long they are. Whether they are what they are said to be, a GPU worker finds out.
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

// Belongs to the loop.
class DeviceTable {
 public:
  // The counters are as many as the ring's records ask for.
  explicit DeviceTable(uint32_t ring_capacity) : ring_capacity_(ring_capacity) {}

  // Checked, with the descriptor that it came with, if it is to have one. It is there once it has
  // been answered for. The error names what is wrong, and the remedy.
  Result<DeviceMemory> add(const rueda_abi_device_memory& abi, std::vector<ForeignFd>& descriptors);
  // Likewise: one memory of several that are there.
  Result<DeviceMemory> join(const rueda_abi_device_join& abi);
  // Whether it can be used; if not, it is forgotten.
  void answer(uint32_t id, bool can_be_used);
  // kNotFound: there is none, or it has not been answered for, or it is the counters. kUnavailable:
  // a join has it.
  Status remove(uint32_t id);

  // 0: there is none that submissions may name.
  uint64_t bytes_of(uint32_t id) const;
  bool has_counters() const { return has_counters_; }

 private:
  struct Memory {
    uint64_t bytes = 0;
    rueda_abi_device_kind kind = RUEDA_ABI_DEVICE_IPC;
    std::array<uint8_t, 16> device{};
    std::vector<uint32_t> pieces;  // of a join
    uint32_t joined_in = 0;        // how many joins have it
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
  bool has_counters_ = false;  // and they have been answered for
  std::map<uint32_t, Memory> memories_;
  uint32_t next_id_ = 1;
};

}  // namespace rueda::session
