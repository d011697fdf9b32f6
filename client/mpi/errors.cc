#include "client/mpi/errors.h"

#include <array>

#include <rueda/rueda.h>

#include "client/mpi/constants.h"
#include "daemon/base/mutex.h"

namespace rueda::mpi {
namespace {

struct Sentences {
  Mutex mutex;
  std::array<std::string, kKeptErrors> texts RUEDA_GUARDED_BY(mutex);
  int next RUEDA_GUARDED_BY(mutex) = 0;
};

// Never destroyed: XLA's threads may ask until the process has ended.
Sentences& sentences() {
  static auto* all = new Sentences;
  return *all;
}

const char* name_of_class(int error_class) {
#define RUEDA_MPI_CASE(name) \
  if (error_class == MPIABI_##name) return "MPI_" #name;
  RUEDA_MPI_ERRORS(RUEDA_MPI_CASE)
#undef RUEDA_MPI_CASE
  return "MPI_ERR_UNKNOWN";
}

int keep(std::string text) {
  Sentences& all = sentences();
  MutexLock lock(all.mutex);
  const int code = kFirstError + all.next;
  all.texts[static_cast<size_t>(all.next)] = std::move(text);
  all.next = (all.next + 1) % kKeptErrors;
  return code;
}

}  // namespace

int error_of(int error_class, const std::string& sentence) {
  return keep(std::string(name_of_class(error_class)) + ": " + sentence);
}

int error_of_rueda(int error) {
  return keep(std::string(rueda_error_name(error)) + ": " + rueda_last_error());
}

std::string text_of(int code) {
  if (code == MPIABI_SUCCESS) return "no error";
  if (code < kFirstError || code > kLastError) return name_of_class(code);
  Sentences& all = sentences();
  MutexLock lock(all.mutex);
  const std::string& text = all.texts[static_cast<size_t>(code - kFirstError)];
  return text.empty() ? "no error of librueda_mpi has the code " + std::to_string(code) : text;
}

}  // namespace rueda::mpi
