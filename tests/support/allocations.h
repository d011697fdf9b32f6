// Counts what a thread allocates, in a test program that links allocations.cc, which replaces
// operator new.
#pragma once

#include <cstdint>

namespace rueda::testing_support {

// Returns how often the calling thread has called operator new since it began.
uint64_t allocations_of_this_thread();

}  // namespace rueda::testing_support
