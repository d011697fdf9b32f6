// The process sets that this process has added, so that it can be asked about them; and the
// daemon's messages that change process sets. All of it is thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Describes a new set; the ranks may come in any order. Returns kInvalidArgument for a set that
// cannot be sent. Objections of the job are told to all its ranks, after all have asked for the
// set.
Result<rueda_abi_process_set> describe_new_set(const int32_t* ranks, int32_t count);
rueda_abi_process_set describe_removal(uint32_t id);

class ProcessSets {
 public:
  // A new object knows only the set of all ranks.
  explicit ProcessSets(int32_t world_size);

  void on_added(uint32_t id, const rueda_abi_process_set& added);
  void on_removed(uint32_t id);
  // Returns the ranks of a set in ascending order, or kNotFound if there is no such set.
  Result<std::vector<int32_t>> ranks_of(uint32_t id) const;

 private:
  mutable Mutex mutex_;
  std::map<uint32_t, std::vector<int32_t>> sets_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::client
