#include "client/src/session/operation.h"

namespace rueda::client {

void Operation::begin(Handle& of) {
  handle = &of;
  record = {};
  staging = output = nullptr;
  result = nullptr;
  output_bytes = bytes = 0;
  arena_data[0] = arena_data[1] = nullptr;
  on_device = {};
  is_done = is_ok = is_on_device = is_result_on_own_stream = holds_tensor = false;
  stream_wait = 0;
}

bool Operation::has_staged_result() const {
  return staged && !on_device[1].empty() && (!is_done || is_ok);
}

}  // namespace rueda::client
