// Addresses such as "host:port" and "[v6]:port", and Asio's form of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/tcp/asio_types.h"

namespace rueda::transport::tcp {

struct HostPort {
  std::string host;  // The host without brackets.
  uint16_t port = 0;
};

// Returns kInvalidArgument, which names the text, unless a port of 0 to 65535 follows the last
// colon, and a host that contains colons itself is in brackets.
Result<HostPort> parse_host_port(const std::string& text);

// Returns the endpoint of a numeric address, or nothing for a name, which needs a resolver.
std::optional<Endpoint> numeric_endpoint(const HostPort& address);

// Returns the endpoint to listen on: a numeric address, "localhost", or "*" or nothing for every
// IPv4 address. Names are refused, because looking one up would block the loop.
Result<Endpoint> listen_endpoint(const std::string& text);

std::string to_string(const Endpoint& endpoint);

}  // namespace rueda::transport::tcp
