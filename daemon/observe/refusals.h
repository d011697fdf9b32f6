// Tells of requests that are refused at one of the daemon's ports: a counter has all of them, and
// the log names each offender.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <prometheus/counter.h>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"

namespace rueda::observe {

// Thread-safe. What is the same in all words is logged once a minute, and of what differs at most
// kMostLines: whoever is refused again and again does not fill the log.
class Refusals {
 public:
  static constexpr size_t kMostLines = 60;

  // `where` names the port in the log. The counter must outlive this object.
  Refusals(std::string where, prometheus::Counter& counter)
      : where_(std::move(where)), counter_(counter) {}

  // Counts a refusal. `who` names the offender, by user or address, and `why` says what was
  // refused; both may have been sent by a stranger.
  void note(const std::string& who, const std::string& why);

 private:
  const std::string where_;
  prometheus::Counter& counter_;
  Mutex mutex_;
  TicksMs began_ms_ RUEDA_GUARDED_BY(mutex_) = 0;
  std::set<std::string> said_ RUEDA_GUARDED_BY(mutex_);  // The lines of this minute.
  uint64_t unsaid_ RUEDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace rueda::observe
