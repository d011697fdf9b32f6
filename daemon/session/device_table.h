// Memory of a GPU that one client shares, as far as its session knows it: which pieces there are,
// and how long they are. Whether they are what they are said to be, a GPU worker finds out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/base/fd.h"
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
  Result<DeviceMemory> add(const rueda_abi_device_memory& abi, std::vector<UniqueFd>& descriptors);
  // Whether it can be used; if not, it is forgotten.
  void answer(uint32_t id, bool can_be_used);
  // kNotFound: there is none, or it has not been answered for, or it is the counters.
  Status remove(uint32_t id);

  // 0: there is none that submissions may name.
  uint64_t bytes_of(uint32_t id) const;
  bool has_counters() const { return has_counters_; }

 private:
  struct Memory {
    uint64_t bytes = 0;
    bool is_counters = false;
    bool is_answered = false;
  };
  Status check(const rueda_abi_device_memory& abi, const std::vector<UniqueFd>& descriptors) const;
  bool wants_counters() const;

  const uint32_t ring_capacity_;
  bool has_counters_ = false;  // and they have been answered for
  std::map<uint32_t, Memory> memories_;
  uint32_t next_id_ = 1;
};

}  // namespace rueda::session
