#include "client/src/device/watched_allocations.h"

namespace rueda::client {

WatchedAllocations& WatchedAllocations::of_process() {
  static auto* const all = new WatchedAllocations;
  return *all;
}

void WatchedAllocations::allocated(uint64_t base) {
  const MutexLock lock(mutex_);
  serials_[base] = ++last_serial_;
}

void WatchedAllocations::freeing(uint64_t base) {
  {
    const MutexLock lock(mutex_);
    serials_.erase(base);
  }
  const MutexLock lock(listeners_mutex_);
  for (Listener* const listener : listeners_) listener->before_free(base);
}

uint64_t WatchedAllocations::serial_of(uint64_t base) const {
  const MutexLock lock(mutex_);
  const auto found = serials_.find(base);
  return found != serials_.end() ? found->second : 0;
}

void WatchedAllocations::add(Listener& listener) {
  const MutexLock lock(listeners_mutex_);
  listeners_.push_back(&listener);
}

void WatchedAllocations::remove(Listener& listener) {
  const MutexLock lock(listeners_mutex_);
  std::erase(listeners_, &listener);
}

}  // namespace rueda::client
