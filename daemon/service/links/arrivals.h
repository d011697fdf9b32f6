// Counts calls that have arrived and that the control loop has not looked at yet.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "daemon/base/mutex.h"

namespace rueda::service {

// Strangers may open streams faster than the loop can close them. The number of calls that wait for
// the loop is therefore bounded, in all and for each connection, so that a peer with a connection
// of its own gets in beside a flood over others. Thread-safe.
class Arrivals : public std::enable_shared_from_this<Arrivals> {
 public:
  static constexpr size_t kMost = 512;
  static constexpr size_t kMaxOfAConnection = 4;

  // Returns a place, which is freed when the pointer is released; null: there is no place.
  std::shared_ptr<void> enter(const std::string& connection) {
    const MutexLock lock(mutex_);
    size_t& waiting = by_connection_[connection];
    if (waiting >= kMaxOfAConnection || waiting_ >= kMost) {
      if (waiting == 0) by_connection_.erase(connection);
      return nullptr;
    }
    ++waiting;
    ++waiting_;
    return {this, [self = shared_from_this(), connection](Arrivals*) { self->leave(connection); }};
  }

 private:
  void leave(const std::string& connection) {
    const MutexLock lock(mutex_);
    const auto found = by_connection_.find(connection);
    if (--found->second == 0) by_connection_.erase(found);
    --waiting_;
  }

  Mutex mutex_;
  std::unordered_map<std::string, size_t> by_connection_ RUEDA_GUARDED_BY(mutex_);
  size_t waiting_ RUEDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace rueda::service
