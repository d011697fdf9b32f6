#include "daemon/base/one_line.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include <boost/locale/utf.hpp>

namespace rueda {
namespace {

namespace utf = boost::locale::utf;

bool stays_in_line(utf::code_point c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;  // C0, DEL, C1
  const bool ends_line = c == 0x2028 || c == 0x2029;
  const bool turns = c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                     (c >= 0x2066 && c <= 0x2069);
  return !ends_line && !turns && c != utf::illegal && c != utf::incomplete;
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7f; }

std::string written_out(utf::code_point c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), c <= 0xff ? "\\x%02x" : "\\u%04x", c);
  return text.data();
}

}  // namespace

bool is_one_line(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (is_plain(*at)) {
      ++at;
    } else if (!stays_in_line(utf::utf_traits<char>::decode(at, end))) {
      return false;
    }
  }
  return true;
}

std::string one_line(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kCut = "...";
  if (text.size() <= max_bytes && std::all_of(text.begin(), text.end(), is_plain)) {
    return std::string(text);
  }
  std::string line;
  // The length of the longest beginning of the line behind which the mark fits that it was cut.
  size_t fits = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const char* const begin = at;
    const utf::code_point c = utf::utf_traits<char>::decode(at, end);
    if (stays_in_line(c)) {
      line.append(begin, at);
    } else if (c == utf::illegal || c == utf::incomplete) {
      at = begin + 1;  // This is no character, so it is written out byte by byte.
      line += written_out(static_cast<uint8_t>(*begin));
    } else {
      line += written_out(c);
    }
    if (line.size() > max_bytes) {
      line.resize(fits);
      return line.append(kCut.substr(0, max_bytes - fits));
    }
    if (line.size() + kCut.size() <= max_bytes) fits = line.size();
  }
  return line;
}

}  // namespace rueda
