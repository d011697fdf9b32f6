// Runs what is independent on all processors of the machine.
#pragma once

#include <cstddef>
#include <functional>

namespace rueda::bench {

// Calls each(i) once for each i below `count`, several at a time, and returns when all have ended.
// If some throw, the exception of the lowest i is thrown on. `each` must be thread-safe.
void in_parallel(size_t count, const std::function<void(size_t)>& each);

}  // namespace rueda::bench
