// Text that crosses the ABI is UTF-8 in fixed fields, and ends with a NUL.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/one_line.h"

namespace rueda::session {

// Returns the text before the NUL of a fixed field, or nullopt if there is no NUL.
std::optional<std::string_view> field_text(std::span<const char> field);

// Returns true for valid UTF-8 without control characters, which is safe in a log line, a metric's
// label and JSON.
inline bool is_printable_utf8(std::string_view text) { return is_one_line(text); }

// Returns the longest prefix of at most max_bytes that does not cut a UTF-8 character in two.
std::string_view truncate_utf8(std::string_view text, size_t max_bytes);

// Copies the text, truncated to leave room for the NUL, and clears the rest of the field.
void fill_field(std::span<char> field, std::string_view text);

}  // namespace rueda::session
