// "host:port", "[v6]:port" and what Asio makes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/tcp/asio_types.h"

namespace rueda::transport::tcp {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};

// kInvalidArgument, naming the text, unless it has a port of 0 to 65535 behind the last colon and
// brackets around a host that contains colons itself.
Result<HostPort> parse_host_port(const std::string& text);

// The endpoint of a numeric address; nothing for a name, which needs a resolver.
std::optional<Endpoint> numeric_endpoint(const HostPort& address);

// Where to listen: a numeric address, "localhost", or "*" or nothing for every IPv4 address. Names
// are refused, because looking one up would block the loop.
Result<Endpoint> listen_endpoint(const std::string& text);

std::string to_string(const Endpoint& endpoint);

}  // namespace rueda::transport::tcp
