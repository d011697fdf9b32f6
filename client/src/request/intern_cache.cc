#include "client/src/request/tensor.h"
#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

// The most descriptors that are looked at for one to forget: those that are held cannot be
// forgotten.
constexpr int kMaxLooks = 16;

}  // namespace

Result<uint32_t> InternCache::id_of(const rueda_abi_intern& descriptor,
                                    std::span<const int64_t> counts) {
  const MutexLock lock(mutex_);
  // The key is the fixed part, then the two texts, each with its final NUL, then the counts.
  key_.assign(reinterpret_cast<const char*>(&descriptor), offsetof(rueda_abi_intern, name));
  key_.append(descriptor.name).push_back('\0');
  key_.append(descriptor.group).push_back('\0');
  key_.append(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  Order& order = counts.empty() ? without_counts_ : with_counts_;
  const auto known = ids_.find(key_);
  if (known != ids_.end()) {
    order.splice(order.end(), order, known->second);
    hold(known->second->id);
    return known->second->id;
  }
  if (order.size() >= (counts.empty() ? kMost : kMaxWithCounts)) forget_oldest(order);
  Result<uint32_t> id = intern_(descriptor, counts);
  if (!id.is_ok()) return id;
  const auto added = ids_.emplace(key_, order.end()).first;
  added->second = order.insert(order.end(), {&added->first, id.value()});
  hold(id.value());
  return id;
}

void InternCache::hold(uint32_t id) {
  const MutexLock lock(held_mutex_);
  if (held_.size() <= id) held_.resize(id + 1);
  ++held_[id];
}

void InternCache::release(uint32_t id) {
  const MutexLock lock(held_mutex_);
  --held_[id];
}

bool InternCache::is_held(uint32_t id) {
  const MutexLock lock(held_mutex_);
  return held_[id] > 0;
}

void InternCache::forget_oldest(Order& order) {
  for (int looks = 0; looks < kMaxLooks && !order.empty(); ++looks) {
    const auto oldest = order.begin();
    if (is_held(oldest->id)) {
      order.splice(order.end(), order, oldest);
      continue;
    }
    if (!forget_(oldest->id).is_ok()) return;  // the session is over; other calls report it
    ids_.erase(*oldest->key);
    order.erase(oldest);
    return;
  }
}

}  // namespace rueda::client
