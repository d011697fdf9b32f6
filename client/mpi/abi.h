// What this library and MPItrampoline 5.3, which is in jaxlib, agree on: the types of its ABI,
// version 2.9, and the constants that it reads from here when jaxlib is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/mpi/names.h"

#define RUEDA_MPI_API __attribute__((visibility("default")))

namespace rueda::mpi {

using Handle = uintptr_t;  // MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request

inline constexpr size_t kErrorStringBytes = 1024;  // MPI_MAX_ERROR_STRING

}  // namespace rueda::mpi
