// Addresses as people write them, host:port, and how gRPC is told of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace rueda {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 literal
  int port = 0;

  bool operator==(const HostPort&) const = default;
};

// "host:port" or "[v6]:port", the port from 0 to 65535; nothing if it is not one.
std::optional<HostPort> parse_host_port(std::string_view text);
// Returns "host:port", with brackets around an IPv6 literal.
std::string join_host_port(const std::string& host, int port);

// One that can be dialled: a port other than 0, and a host of the characters that names and numeric
// addresses have. What gRPC would take for a scheme of its own ("unix:/path") is refused.
Result<HostPort> parse_dial_address(const std::string& text);

// The host is an IPv4 or IPv6 address, so that resolving it waits for nobody.
bool is_numeric_host(const std::string& host);

// "localhost", or a numeric address of this machine alone.
bool is_loopback(const std::string& host);

// What gRPC is to connect to: the addresses of a host, as getaddrinfo() has them, in its order.
// gRPC's own resolver waits for name servers although /etc/hosts has the name, and takes hosts
// called "dns" or "unix" for schemes. Blocks for as long as the system's resolver does.
Result<std::string> dial_target(const HostPort& address);

}  // namespace rueda
