#include "client/src/tensor.h"

namespace rueda::client {

Result<uint32_t> InternCache::id_of(const rueda_abi_intern& descriptor,
                                    std::span<const int64_t> counts) {
  std::lock_guard lock(mutex_);
  // The fixed part, then the two texts with the NUL that ends each, then the counts.
  key_.assign(reinterpret_cast<const char*>(&descriptor), offsetof(rueda_abi_intern, name));
  key_.append(descriptor.name).push_back('\0');
  key_.append(descriptor.group).push_back('\0');
  key_.append(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  const auto known = ids_.find(key_);
  if (known != ids_.end()) {
    if (counts.empty()) return known->second;
    with_counts_.splice(with_counts_.end(), with_counts_, with_counts_by_id_.at(known->second));
    std::lock_guard users_lock(users_mutex_);
    ++users_[known->second];
    return known->second;
  }
  if (!counts.empty() && with_counts_.size() >= kMostWithCounts) forget_oldest();
  Result<uint32_t> id = intern_(descriptor, counts);
  if (!id.is_ok()) return id;
  ids_.emplace(key_, id.value());
  if (counts.empty()) return id;
  with_counts_.push_back({key_, id.value()});
  with_counts_by_id_[id.value()] = std::prev(with_counts_.end());
  std::lock_guard users_lock(users_mutex_);
  ++users_[id.value()];
  return id;
}

void InternCache::release(uint32_t id) {
  std::lock_guard lock(users_mutex_);
  const auto users = users_.find(id);
  if (--users->second == 0) users_.erase(users);
}

bool InternCache::is_used(uint32_t id) {
  std::lock_guard lock(users_mutex_);
  return users_.contains(id);
}

void InternCache::forget_oldest() {
  const auto oldest = std::find_if(with_counts_.begin(), with_counts_.end(),
                                   [&](const WithCounts& entry) { return !is_used(entry.id); });
  if (oldest == with_counts_.end()) return;  // all in use: as many as may be in flight
  if (!forget_(oldest->id).is_ok()) return;  // the session is over, and says so
  ids_.erase(oldest->key);
  with_counts_by_id_.erase(oldest->id);
  with_counts_.erase(oldest);
}

}  // namespace rueda::client
