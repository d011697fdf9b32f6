// Reads and writes addresses as people write them, host:port, and finds out how to tell gRPC of
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include "daemon/base/status.h"

namespace rueda {

struct HostPort {
  std::string host;  // It has no brackets around an IPv6 literal.
  int port = 0;

  bool operator==(const HostPort&) const = default;
};

// Reads "host:port" or "[v6]:port", with a port from 0 to 65535. Returns nothing if the text is not
// such an address.
std::optional<HostPort> parse_host_port(std::string_view text);
// Returns "host:port", with brackets around an IPv6 literal.
std::string join_host_port(const std::string& host, int port);

// Reads an address that can be dialled: its port is not 0, and its host has only characters that
// names and numeric addresses have. Addresses that gRPC would take for a scheme of its own
// ("unix:/path") are refused.
Result<HostPort> parse_dial_address(const std::string& text);

// Returns whether the host is an IPv4 or IPv6 address, so that resolving it waits for nobody.
bool is_numeric_host(const std::string& host);

// Returns whether the host is "localhost", or a numeric address of this machine alone.
bool is_loopback(const std::string& host);

// Returns whether the address is a link-local one of IPv4, also in the form of IPv6. No node is
// reached at such an address, but clouds give a machine's credentials away there (169.254.169.254)
// to whoever asks from it.
bool is_link_local_v4(const sockaddr& address);

// Returns what gRPC has to connect to: the addresses of a host, as getaddrinfo() has them, in its
// order. gRPC's own resolver waits for name servers although /etc/hosts has the name, and takes
// hosts called "dns" or "unix" for schemes. Link-local addresses of IPv4 are left out. The call
// blocks for as long as the system's resolver does.
Result<std::string> dial_target(const HostPort& address);

}  // namespace rueda
