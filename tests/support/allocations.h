// Counts what a thread allocates, in a test program that links allocations.cc: it replaces operator
// new.
#pragma once

#include <cstdint>

namespace rueda::testing_support {

// By operator new, of the calling thread, since it began.
uint64_t allocations_of_this_thread();

}  // namespace rueda::testing_support
