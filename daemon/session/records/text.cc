#include "daemon/session/records/text.h"

#include <algorithm>
#include <cstring>

namespace rueda::session {

std::optional<std::string_view> field_text(std::span<const char> field) {
  const void* end = std::memchr(field.data(), '\0', field.size());
  if (end == nullptr) return std::nullopt;
  return std::string_view(field.data(), static_cast<const char*>(end) - field.data());
}

std::string_view truncate_utf8(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t bytes = max_bytes;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

void fill_field(std::span<char> field, std::string_view text) {
  std::string_view fitting = truncate_utf8(text, field.size() - 1);
  std::memcpy(field.data(), fitting.data(), fitting.size());
  std::fill(field.begin() + fitting.size(), field.end(), '\0');
}

}  // namespace rueda::session
