#include "agent/text.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <sys/random.h>

namespace rueda::agent {

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

std::optional<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  HostPort out;
  out.host = host;
  const char* const end = port_text.data() + port_text.size();
  const auto [stop, error] = std::from_chars(port_text.data(), end, out.port);
  if (error != std::errc() || stop != end || out.port < 0 || out.port > 65535) return std::nullopt;
  return out;
}

std::string join_host_port(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string grpc_target_of_socket(const std::string& socket) {
  if (!socket.empty() && socket.front() == '@') return "unix-abstract:" + socket.substr(1);
  return "unix:" + socket;
}

}  // namespace rueda::agent
