// Text that crosses the ABI: fixed fields, NUL-terminated, UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/one_line.h"

namespace rueda::session {

// What stands before the NUL of a fixed field; nullopt when there is no NUL.
std::optional<std::string_view> field_text(std::span<const char> field);

// Valid UTF-8 without control characters: safe in a log line, a metric's label and JSON.
inline bool is_printable_utf8(std::string_view text) { return is_one_line(text); }

// The longest prefix of at most max_bytes that does not cut a UTF-8 character in two.
std::string_view truncate_utf8(std::string_view text, size_t max_bytes);

// Truncates to leave room for the NUL, and clears the rest of the field.
void fill_field(std::span<char> field, std::string_view text);

}  // namespace rueda::session
