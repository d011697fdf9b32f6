// Small conversions between bytes, addresses and text, and the system's random bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace rueda::agent {

std::string to_hex(std::string_view bytes);

// From the kernel's generator; kInternal if it has none to give.
Result<std::string> random_bytes(size_t count_bytes);

struct HostPort {
  std::string host;  // without the brackets of an IPv6 literal
  int port = 0;

  bool operator==(const HostPort&) const = default;
};

// "host:port" or "[v6]:port", the port from 0 to 65535; nothing if it is not one.
std::optional<HostPort> parse_host_port(std::string_view text);
// With brackets around an IPv6 literal.
std::string join_host_port(const std::string& host, int port);

// "unix:PATH" or, for "@name", "unix-abstract:name".
std::string grpc_target_of_socket(const std::string& socket);

}  // namespace rueda::agent
