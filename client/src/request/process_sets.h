// The process sets that this process has added, as it may be asked about them; and a change of them
// in the words of the daemon. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "daemon/base/status.h"

namespace rueda::client {

// The ranks may come in any order; kInvalidArgument for what cannot be sent. What the job has
// against them all its ranks are told, after all have asked.
Result<rueda_abi_process_set> describe_new_set(const int32_t* ranks, int32_t count);
rueda_abi_process_set describe_removal(uint32_t id);

class ProcessSets {
 public:
  // A fresh one knows the set of all ranks alone.
  explicit ProcessSets(int32_t world_size);

  void on_added(uint32_t id, const rueda_abi_process_set& added);
  void on_removed(uint32_t id);
  // Ascending. kNotFound: there is none.
  Result<std::vector<int32_t>> ranks_of(uint32_t id) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, std::vector<int32_t>> sets_;
};

}  // namespace rueda::client
