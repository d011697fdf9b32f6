// Makes text that came from outside fit for a log, a terminal, a reply or a metric.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rueda {

// The most bytes that are shown of names, and of sentences, that nobody has bounded before.
inline constexpr size_t kShownNameBytes = 255;
inline constexpr size_t kShownTextBytes = 1023;

// Returns whether all of the text is UTF-8 that stays in its line and does nothing to a terminal:
// without C0, DEL, C1, line and paragraph separators, and marks that turn the direction of writing.
bool is_one_line(std::string_view text);

// Returns the text as one such line of at most `max_bytes`. What may not be in it is written out,
// as \n, \x1b or \u2028; what is too long ends with "...".
std::string one_line(std::string_view text, size_t max_bytes = kShownTextBytes);

}  // namespace rueda
