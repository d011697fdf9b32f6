#include "agent/base/text.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/random.h>

namespace rueda::agent {

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char buffer[4096];
  // read() does not throw where the system cannot read the file; the stream's iterators do.
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
  }
  return text;
}

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (unsigned char byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Result<std::string> random_bytes(size_t count_bytes) {
  std::string out(count_bytes, '\0');
  size_t filled = 0;
  while (filled < count_bytes) {
    const ssize_t got = ::getrandom(out.data() + filled, count_bytes - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Status(Code::kInternal,
                    std::string("the system gives no random bytes: ") + std::strerror(errno));
    }
    filled += static_cast<size_t>(got);
  }
  return out;
}

}  // namespace rueda::agent
