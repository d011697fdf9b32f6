// Allocations of device memory that one allocator has made, as long as all of its calls are seen
// (allocator_hook.h). While an allocation is here it has not been freed, so nobody needs to ask the
// driver whether it is still the same.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/base/mutex.h"

namespace rueda::client {

// This class is thread-safe.
class WatchedAllocations {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Called before the allocator frees the allocation that begins at `base`, on the thread that
    // frees it. The call may not allocate or free device memory.
    virtual void before_free(uint64_t base) = 0;
  };

  // The allocations of this process. The object is never destroyed, because allocators may free
  // memory while the process ends.
  static WatchedAllocations& of_process();

  // Says that an allocation begins at `base`.
  void allocated(uint64_t base) RUEDA_EXCLUDES(mutex_);
  // Says that the allocation is about to be freed, and tells the listeners. Memory that was
  // allocated unseen is told of, too.
  void freeing(uint64_t base) RUEDA_EXCLUDES(mutex_, listeners_mutex_);
  // Returns the number of the allocation that begins at `base`, or 0 if it is not watched. No other
  // allocation ever has the same number, not even at the same address later.
  uint64_t serial_of(uint64_t base) const RUEDA_EXCLUDES(mutex_);

  void add(Listener& listener) RUEDA_EXCLUDES(listeners_mutex_);
  // Waits for a call of the listener that is under way. None follows.
  void remove(Listener& listener) RUEDA_EXCLUDES(listeners_mutex_);

 private:
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, uint64_t> serials_ RUEDA_GUARDED_BY(mutex_);  // by base
  uint64_t last_serial_ RUEDA_GUARDED_BY(mutex_) = 0;

  // held while listeners are called
  Mutex listeners_mutex_;
  std::vector<Listener*> listeners_ RUEDA_GUARDED_BY(listeners_mutex_);
};

}  // namespace rueda::client
