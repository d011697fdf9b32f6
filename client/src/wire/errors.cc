#include "client/src/wire/errors.h"

#include "client/include/rueda/rueda.h"

namespace rueda::client {
namespace {

// The flag is apart from the text because every use of the text asks whether this thread has one
// yet.
thread_local bool g_has_failed = false;
thread_local std::string g_last_error;

}  // namespace

int report(const Status& status) {
  g_has_failed = true;
  g_last_error = status.message();
  return -static_cast<int>(status.code());
}

void clear_last_error() {
  if (g_has_failed) g_last_error.clear();
  g_has_failed = false;
}

const char* last_error() { return g_last_error.c_str(); }

Code code_from_wire(int32_t code) {
  if (code > 0 || code < RUEDA_ERR_INTERNAL) return Code::kInternal;
  return static_cast<Code>(-code);
}

}  // namespace rueda::client
