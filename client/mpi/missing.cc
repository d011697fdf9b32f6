// The functions of MPI that this library lacks. They say so, and never pretend to have done
// something.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/mpi/constants.h"
#include "client/mpi/errors.h"

namespace {

int refuse(const char* name) {
  std::fprintf(stderr,
               "librueda_mpi: %s is not there: the library has what jaxlib calls for its "
               "collectives, and nothing else of MPI\n",
               name);
  return rueda::mpi::error_of(
      MPIABI_ERR_UNSUPPORTED_OPERATION,
      std::string(name) + " is not in librueda_mpi, which has what jaxlib calls alone");
}

}  // namespace

// They are called with whatever arguments the function has, and look at none.
extern "C" {

#define RUEDA_MPI_DEFINE(name) \
  RUEDA_MPI_API int MPIABI_##name() { return refuse("MPI_" #name); }
RUEDA_MPI_MISSING(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE

// What these return cannot say that it is an error, so they end the process.
#define RUEDA_MPI_DEFINE(name)               \
  RUEDA_MPI_API void MPIABI_##name() {       \
    static_cast<void>(refuse("MPI_" #name)); \
    std::abort();                            \
  }
RUEDA_MPI_MISSING_VALUES(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE

// No memory of GPUs is understood.
RUEDA_MPI_API int MPIXABI_Query_cuda_support() { return 0; }
RUEDA_MPI_API int MPIXABI_Query_hip_support() { return 0; }
RUEDA_MPI_API int MPIXABI_Query_ze_support() { return 0; }

// Would hand constants to Fortran, of which jaxlib has nothing.
RUEDA_MPI_API void mpiwrapper_export_fortran_constants_() {}

}  // extern "C"
