#include "client/src/request/process_sets.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "daemon/base/mutex.h"

namespace rueda::client {

Result<rueda_abi_process_set> describe_new_set(const int32_t* ranks, int32_t count) {
  if (count < 0 || (count > 0 && ranks == nullptr)) {
    return Status{Code::kInvalidArgument, "the ranks of the process set are NULL, or fewer than 0"};
  }
  if (count > RUEDA_ABI_MAX_SET_RANKS) {
    return Status{Code::kResourceExhausted,
                  "a process set of " + std::to_string(count) + " ranks; at most " +
                      std::to_string(RUEDA_ABI_MAX_SET_RANKS) + " are possible"};
  }
  rueda_abi_process_set change{};
  change.change = RUEDA_ABI_SET_ADD;
  change.rank_count = static_cast<uint32_t>(count);
  std::copy_n(ranks, count, change.ranks);
  std::sort(change.ranks, change.ranks + count);
  return change;
}

rueda_abi_process_set describe_removal(uint32_t id) {
  rueda_abi_process_set change{};
  change.change = RUEDA_ABI_SET_REMOVE;
  change.process_set = id;
  return change;
}

ProcessSets::ProcessSets(int32_t world_size) {
  std::vector<int32_t>& all = sets_[0];
  all.resize(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
}

void ProcessSets::on_added(uint32_t id, const rueda_abi_process_set& added) {
  const MutexLock lock(mutex_);
  sets_[id].assign(added.ranks, added.ranks + added.rank_count);
}

void ProcessSets::on_removed(uint32_t id) {
  const MutexLock lock(mutex_);
  sets_.erase(id);
}

Result<std::vector<int32_t>> ProcessSets::ranks_of(uint32_t id) const {
  const MutexLock lock(mutex_);
  const auto found = sets_.find(id);
  if (found != sets_.end()) return found->second;
  return Status{Code::kNotFound, "process set " + std::to_string(id) +
                                     " does not exist: it was removed, or not added"};
}

}  // namespace rueda::client
