// The functions of MPI that jaxlib calls, and some that come with them. XLA calls them from the
// thread of a program or from those of its pool, and waits in them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "client/mpi/constants.h"
#include "client/mpi/errors.h"
#include "client/mpi/job.h"

namespace {

using rueda::mpi::Communicator;
using rueda::mpi::error_of;
using rueda::mpi::Handle;
using rueda::mpi::Job;
using rueda::mpi::Operator;
using rueda::mpi::operator_of;
using rueda::mpi::Type;
using rueda::mpi::type_of;

std::shared_ptr<const Communicator> find(Handle communicator) {
  return Job::of_process().find(communicator);
}

int check_type(const std::optional<Type>& type) {
  if (type.has_value()) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_TYPE,
                  "librueda_mpi has MPI_BYTE, MPI_INT8_T to MPI_INT64_T, MPI_UINT8_T to "
                  "MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE, MPI_C_COMPLEX and MPI_C_DOUBLE_COMPLEX");
}

int check_operator(const std::optional<Operator>& op) {
  if (op.has_value()) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_OP, "librueda_mpi has MPI_SUM, MPI_PROD, MPI_MIN and MPI_MAX");
}

int check_count(int count) {
  if (count >= 0) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_COUNT, "a count of " + std::to_string(count) +
                                        " is negative; more than 2147483647 elements do not fit "
                                        "into one call of MPI");
}

int check_not_in_place(const void* buffer) {
  if (buffer != MPIABI_IN_PLACE) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_BUFFER, "librueda_mpi takes MPI_IN_PLACE in MPI_Allreduce alone");
}

int check_status(const void* status) {
  if (status == MPIABI_STATUS_IGNORE) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_ARG, "librueda_mpi fills no MPI_Status: pass MPI_STATUS_IGNORE");
}

// Returns the first of several codes that is an error.
template <typename... Codes>
int first_of(Codes... codes) {
  int first = MPIABI_SUCCESS;
  ((first = first == MPIABI_SUCCESS ? codes : first), ...);
  return first;
}

}  // namespace

extern "C" {

RUEDA_MPI_API int MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = MPIABI_THREAD_MULTIPLE;
  return Job::of_process().begin();
}

RUEDA_MPI_API int MPIABI_Init(int*, char***) { return Job::of_process().begin(); }

RUEDA_MPI_API int MPIABI_Initialized(int* flag) {
  *flag = Job::of_process().has_begun() ? 1 : 0;
  return MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Finalize() { return Job::of_process().end(); }

RUEDA_MPI_API int MPIABI_Finalized(int* flag) {
  *flag = Job::of_process().has_ended() ? 1 : 0;
  return MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Query_thread(int* provided) {
  *provided = MPIABI_THREAD_MULTIPLE;
  return MPIABI_SUCCESS;
}

// XLA makes communicators only where the answer is yes. Here every thread may.
RUEDA_MPI_API int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Get_version(int* version, int* subversion) {
  *version = 3;
  *subversion = 1;
  return MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Get_library_version(char* version, int* length) {
  const std::string text = std::string("librueda_mpi ") + rueda_version();
  std::memcpy(version, text.c_str(), text.size() + 1);
  *length = static_cast<int>(text.size());
  return MPIABI_SUCCESS;
}

// The job learns of it, as of any process that ends with an error.
RUEDA_MPI_API int MPIABI_Abort(Handle, int code) {
  std::fprintf(stderr, "librueda_mpi: MPI_Abort was called with code %d\n", code);
  std::_Exit(code == 0 ? 1 : code);
}

RUEDA_MPI_API int MPIABI_Error_string(int code, char* text, int* length) {
  const std::string sentence = rueda::mpi::text_of(code);
  const size_t bytes = std::min(sentence.size(), rueda::mpi::kErrorStringBytes - 1);
  std::memcpy(text, sentence.data(), bytes);
  text[bytes] = '\0';
  *length = static_cast<int>(bytes);
  return MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Comm_rank(Handle communicator, int* rank) {
  const auto found = find(communicator);
  *rank = found->rank();
  return found->check();
}

RUEDA_MPI_API int MPIABI_Comm_size(Handle communicator, int* size) {
  const auto found = find(communicator);
  *size = found->size();
  return found->check();
}

RUEDA_MPI_API int MPIABI_Comm_split(Handle communicator, int color, int key, Handle* made) {
  return Job::of_process().split(communicator, color, key, made);
}

RUEDA_MPI_API int MPIABI_Comm_free(Handle* communicator) {
  return Job::of_process().free(communicator);
}

RUEDA_MPI_API int MPIABI_Allreduce(const void* input, void* output, int count, Handle datatype,
                                   Handle op, Handle communicator) {
  const auto type = type_of(datatype);
  const auto operation = operator_of(op);
  const int code = first_of(check_type(type), check_operator(operation), check_count(count));
  if (code != MPIABI_SUCCESS) return code;
  return find(communicator)
      ->allreduce(input == MPIABI_IN_PLACE ? output : input, output, count, *type, *operation);
}

RUEDA_MPI_API int MPIABI_Allgather(const void* input, int count, Handle datatype, void* output,
                                   int output_count, Handle output_datatype, Handle communicator) {
  const auto type = type_of(datatype);
  int code = first_of(check_type(type), check_count(count), check_not_in_place(input));
  if (code == MPIABI_SUCCESS && (count != output_count || datatype != output_datatype)) {
    code =
        error_of(MPIABI_ERR_COUNT,
                 "MPI_Allgather takes the same count and datatype for what it sends and receives");
  }
  return code != MPIABI_SUCCESS ? code : find(communicator)->allgather(input, output, count, *type);
}

RUEDA_MPI_API int MPIABI_Reduce_scatter(const void* input, void* output, const int* counts,
                                        Handle datatype, Handle op, Handle communicator) {
  const auto type = type_of(datatype);
  const auto operation = operator_of(op);
  const auto found = find(communicator);
  int code = first_of(found->check(), check_type(type), check_operator(operation),
                      check_not_in_place(input));
  for (int place = 0; code == MPIABI_SUCCESS && place < found->size(); ++place) {
    code = check_count(counts[place]);
  }
  return code != MPIABI_SUCCESS ? code
                                : found->reduce_scatter(input, output, counts, *type, *operation);
}

// A request is a handle of librueda, which is never 0, as MPI_REQUEST_NULL is.
static_assert(sizeof(Handle) == sizeof(rueda_handle));

RUEDA_MPI_API int MPIABI_Isend(const void* data, int count, Handle datatype, int place, int tag,
                               Handle communicator, Handle* request) {
  const auto type = type_of(datatype);
  const int code = first_of(check_type(type), check_count(count));
  return code != MPIABI_SUCCESS ? code
                                : find(communicator)->send(data, count, *type, place, tag, request);
}

RUEDA_MPI_API int MPIABI_Irecv(void* data, int count, Handle datatype, int place, int tag,
                               Handle communicator, Handle* request) {
  const auto type = type_of(datatype);
  const int code = first_of(check_type(type), check_count(count));
  return code != MPIABI_SUCCESS
             ? code
             : find(communicator)->receive(data, count, *type, place, tag, request);
}

RUEDA_MPI_API int MPIABI_Wait(Handle* request, void* status) {
  if (const int code = check_status(status); code != MPIABI_SUCCESS) return code;
  if (*request == MPIABI_REQUEST_NULL) return MPIABI_SUCCESS;
  const int ended = rueda_wait(*request, -1, nullptr);
  *request = MPIABI_REQUEST_NULL;
  return ended < 0 ? rueda::mpi::error_of_rueda(ended) : MPIABI_SUCCESS;
}

RUEDA_MPI_API int MPIABI_Sendrecv(const void* sent, int send_count, Handle send_type, int to,
                                  int send_tag, void* received, int receive_count,
                                  Handle receive_type, int from, int receive_tag,
                                  Handle communicator, void* status) {
  Handle send = MPIABI_REQUEST_NULL;
  Handle receive = MPIABI_REQUEST_NULL;
  // What is wrong with the send is found before the receive has begun.
  int code = first_of(check_status(status), check_type(type_of(send_type)), check_count(send_count),
                      find(communicator)->check_place(to));
  if (code != MPIABI_SUCCESS) return code;
  code = MPIABI_Irecv(received, receive_count, receive_type, from, receive_tag, communicator,
                      &receive);
  if (code != MPIABI_SUCCESS) return code;
  code = MPIABI_Isend(sent, send_count, send_type, to, send_tag, communicator, &send);
  // Both are waited for, as both use the caller's memory until they have ended.
  const int sent_code = MPIABI_Wait(&send, nullptr);
  return first_of(code, sent_code, MPIABI_Wait(&receive, nullptr));
}

}  // extern "C"
