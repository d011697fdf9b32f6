#include "client/mpi/constants.h"

#include "client/mpi/errors.h"

// Each list gives its names the numbers 1, 2, 3, and so on. A number needs to differ only from
// those that may stand in the same place.
namespace {

#define RUEDA_MPI_NUMBER(name) k##name,
enum Errors { kNoError, RUEDA_MPI_ERRORS(RUEDA_MPI_NUMBER) };
enum Types { kNoType, RUEDA_MPI_TYPES(RUEDA_MPI_NUMBER) };
enum Operators { kNoOperator, RUEDA_MPI_OPERATORS(RUEDA_MPI_NUMBER) };
enum Handles { kNoHandle, RUEDA_MPI_HANDLES(RUEDA_MPI_NUMBER) };
enum Numbers { kNoNumber, RUEDA_MPI_NUMBERS(RUEDA_MPI_NUMBER) };
enum Modes { RUEDA_MPI_MODES(RUEDA_MPI_NUMBER) };
#undef RUEDA_MPI_NUMBER

}  // namespace

extern "C" {

#define RUEDA_MPI_DEFINE(name) const int MPIABI_##name = k##name;
RUEDA_MPI_ERRORS(RUEDA_MPI_DEFINE)
RUEDA_MPI_NUMBERS(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE
#define RUEDA_MPI_DEFINE(name) const rueda::mpi::Handle MPIABI_##name = k##name;
RUEDA_MPI_TYPES(RUEDA_MPI_DEFINE)
RUEDA_MPI_OPERATORS(RUEDA_MPI_DEFINE)
RUEDA_MPI_HANDLES(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE
#define RUEDA_MPI_DEFINE(name) const rueda::mpi::Handle MPIABI_##name = 0;
RUEDA_MPI_NULL_HANDLES(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE
#define RUEDA_MPI_DEFINE(name) const void* const MPIABI_##name = nullptr;
RUEDA_MPI_NULL_POINTERS(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE
#define RUEDA_MPI_DEFINE(name) const void* const MPIABI_##name = &MPIABI_##name;
RUEDA_MPI_MARKS(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE
#define RUEDA_MPI_DEFINE(name) const int MPIABI_##name = 1 << k##name;
RUEDA_MPI_MODES(RUEDA_MPI_DEFINE)
#undef RUEDA_MPI_DEFINE

const int MPIABI_SUCCESS = 0;
const int MPIABI_ERR_LASTCODE = rueda::mpi::kLastError;
const int MPIABI_ANY_SOURCE = -1;
const int MPIABI_ANY_TAG = -1;
const int MPIABI_PROC_NULL = -2;
const int MPIABI_ROOT = -3;
const int MPIABI_UNDEFINED = -32766;
const int MPIABI_KEYVAL_INVALID = -1;
const int MPIABI_BSEND_OVERHEAD = 0;
const int MPIABI_THREAD_SINGLE = 0;
const int MPIABI_THREAD_FUNNELED = 1;
const int MPIABI_THREAD_SERIALIZED = 2;
const int MPIABI_THREAD_MULTIPLE = 3;
const int64_t MPIABI_DISPLACEMENT_CURRENT = -1;

// The version of the ABI, and of this library as a wrapper of an MPI, which it is not.
const int mpiabi_version_major = 2;
const int mpiabi_version_minor = 9;
const int mpiabi_version_patch = 0;
const int mpiwrapper_version_major = 2;
const int mpiwrapper_version_minor = 9;
const int mpiwrapper_version_patch = 0;

}  // extern "C"
