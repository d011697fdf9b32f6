#include "daemon/base/host_port.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/base/one_line.h"

namespace rueda {
namespace {

constexpr size_t kMaxHostBytes = 253;
// A name may have many addresses; the first ones are as good as any.
constexpr size_t kMaxAddresses = 8;

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view(".-_:%").find(c) != std::string_view::npos;
}

// Returns text such as "1.2.3.4", "2001:db8::1" or "fe80::1%eth0", or "" if the address is of
// neither family.
std::string numeric_text(const sockaddr& address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> text{};
  const bool is_known = address.sa_family == AF_INET || address.sa_family == AF_INET6;
  if (!is_known ||
      ::getnameinfo(&address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

}  // namespace

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

Result<HostPort> parse_dial_address(const std::string& text) {
  std::optional<HostPort> address = parse_host_port(text);
  const bool is_right = address && address->port > 0 && address->host.size() <= kMaxHostBytes &&
                        std::all_of(address->host.begin(), address->host.end(), is_host_character);
  if (is_right) return *std::move(address);
  return Status(
      Code::kInvalidArgument,
      "\"" + one_line(text) +
          "\" is not HOST:PORT, a name or an address (IPv6 in brackets) and a port from 1 "
          "to 65535");
}

bool is_numeric_host(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  const std::string without_scope = host.substr(0, host.find('%'));
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, without_scope.c_str(), &v6) == 1;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.rfind("127.", 0) == 0 && is_numeric_host(host));
}

bool is_link_local_v4(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 169 && v6.s6_addr[13] == 254;
  }
  if (address.sa_family != AF_INET) return false;
  const in_addr& v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return ntohl(v4.s_addr) >> 16 == (169u << 8 | 254u);
}

Result<std::string> dial_target(const HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    const std::string why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return Status(Code::kUnavailable, "the host name \"" + address.host + "\" is not known here (" +
                                          why + "): see \"getent hosts " + address.host + "\"");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> holder(found, &::freeaddrinfo);
  std::vector<std::string> hosts;
  bool was_link_local = false;
  for (const addrinfo* one = found; one != nullptr && hosts.size() < kMaxAddresses;
       one = one->ai_next) {
    if (is_link_local_v4(*one->ai_addr)) {
      was_link_local = true;
      continue;
    }
    std::string host = numeric_text(*one->ai_addr, one->ai_addrlen);
    const bool is_new = std::find(hosts.begin(), hosts.end(), host) == hosts.end();
    if (!host.empty() && is_new) hosts.push_back(std::move(host));
  }
  const auto is_v6 = [](const std::string& host) { return host.find(':') != std::string::npos; };
  // A target of gRPC's is of one family. If there is an IPv6 address, IPv4 addresses are written in
  // its form, and are dialled as such.
  const bool has_v6 = std::any_of(hosts.begin(), hosts.end(), is_v6);
  std::string out;
  for (const std::string& host : hosts) {
    out += out.empty() ? (has_v6 ? "ipv6:" : "ipv4:") : ",";
    out += join_host_port(has_v6 && !is_v6(host) ? "::ffff:" + host : host, address.port);
  }
  if (!out.empty()) return out;
  if (was_link_local) {
    return Status(
        Code::kInvalidArgument,
        "\"" + address.host +
            "\" is a link-local address, which is not dialled: give the node another one");
  }
  return Status(Code::kUnavailable,
                "the host name \"" + address.host + "\" has neither an IPv4 nor an IPv6 address");
}

}  // namespace rueda
