// The constants that jaxlib reads from this library (names.h says which).
#pragma once

#include "client/mpi/abi.h"

extern "C" {

#define RUEDA_MPI_DECLARE(name) extern RUEDA_MPI_API const int MPIABI_##name;
RUEDA_MPI_ERRORS(RUEDA_MPI_DECLARE)
RUEDA_MPI_NUMBERS(RUEDA_MPI_DECLARE)
RUEDA_MPI_MODES(RUEDA_MPI_DECLARE)
RUEDA_MPI_SPECIAL_NUMBERS(RUEDA_MPI_DECLARE)
#undef RUEDA_MPI_DECLARE
#define RUEDA_MPI_DECLARE(name) extern RUEDA_MPI_API const rueda::mpi::Handle MPIABI_##name;
RUEDA_MPI_TYPES(RUEDA_MPI_DECLARE)
RUEDA_MPI_OPERATORS(RUEDA_MPI_DECLARE)
RUEDA_MPI_HANDLES(RUEDA_MPI_DECLARE)
RUEDA_MPI_NULL_HANDLES(RUEDA_MPI_DECLARE)
#undef RUEDA_MPI_DECLARE
#define RUEDA_MPI_DECLARE(name) extern RUEDA_MPI_API const void* const MPIABI_##name;
RUEDA_MPI_NULL_POINTERS(RUEDA_MPI_DECLARE)
RUEDA_MPI_MARKS(RUEDA_MPI_DECLARE)
#undef RUEDA_MPI_DECLARE

extern RUEDA_MPI_API const int64_t MPIABI_DISPLACEMENT_CURRENT;
extern RUEDA_MPI_API const int mpiabi_version_major;
extern RUEDA_MPI_API const int mpiabi_version_minor;
extern RUEDA_MPI_API const int mpiabi_version_patch;
extern RUEDA_MPI_API const int mpiwrapper_version_major;
extern RUEDA_MPI_API const int mpiwrapper_version_minor;
extern RUEDA_MPI_API const int mpiwrapper_version_patch;

}  // extern "C"
