// Finds names that stand at two places of one compiled program. A function that JAX compiles by
// itself, as one under jax.jit within another, is compiled once, and so is the name in it, but it
// may be called twice. Ranks might then run the two calls in different orders, and one rank's first
// would be added to another's second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/base/mutex.h"

namespace rueda::jax {

// Remembers where each name was called last. Thread-safe.
class CallSites {
 public:
  static CallSites& of_process();

  // Notes a call of `name`, from `site` (an address that is the same at each run of a place, and
  // differs between places) in the run `run_id` of a program. Returns false if the same run has
  // called the name from another place. A place that a loop runs again is the same place.
  bool note(std::string_view name, const void* site, int64_t run_id) RUEDA_EXCLUDES(mutex_);

 private:
  struct Last {
    const void* site;
    int64_t run_id;
  };

  Mutex mutex_;
  std::unordered_map<std::string, Last> last_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::jax
