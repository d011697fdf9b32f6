#include "daemon/transport/tcp/address.h"

#include <charconv>

#include <boost/asio/ip/address.hpp>

namespace rueda::transport::tcp {

Result<HostPort> parse_host_port(const std::string& text) {
  const Status bad(Code::kInvalidArgument,
                   "address \"" + text + "\" is not of the form host:port or [ipv6]:port");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  HostPort address;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end) return bad;
  address.host = text.substr(0, colon);
  const bool bracketed =
      address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find_first_of(":[]") != std::string::npos) {
    return bad;
  }
  return address;
}

std::optional<Endpoint> numeric_endpoint(const HostPort& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) return std::nullopt;
  return Endpoint(ip, address.port);
}

Result<Endpoint> listen_endpoint(const std::string& text) {
  Result<HostPort> address = parse_host_port(text);
  if (!address.is_ok()) return address.status();
  HostPort& parsed = address.value();
  if (parsed.host.empty() || parsed.host == "*") parsed.host = "0.0.0.0";
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  if (const auto endpoint = numeric_endpoint(parsed)) return *endpoint;
  return Status(Code::kInvalidArgument,
                "cannot listen on \"" + text +
                    "\": give a numeric address, such as 0.0.0.0:" + std::to_string(parsed.port));
}

std::string to_string(const Endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + host + "]:" + port : host + ":" + port;
}

}  // namespace rueda::transport::tcp
