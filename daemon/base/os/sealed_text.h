// A short text in memory that a child process inherits by a descriptor, and that nobody can change
// any more.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda {

// Returns the descriptor of a sealed memfd with the text; it closes on exec. `name` is for people,
// who see it in /proc/PID/fd.
Result<UniqueFd> make_sealed_text(const char* name, std::string_view text);

// Returns the text behind a descriptor of which only the number is known. kNotFound means that it
// is not open, or that make_sealed_text() has not made it with a text of `bytes` bytes: the number
// may belong to any file by now. The position of the descriptor is left alone, because processes
// share it.
Result<std::string> read_sealed_text(int fd, size_t bytes);

}  // namespace rueda
