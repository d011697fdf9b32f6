#include "agent/base/network.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "daemon/base/host_port.h"

namespace rueda::agent {

namespace asio = boost::asio;

Result<std::string> address_towards(const std::string& host, int port) {
  asio::io_context context;
  boost::system::error_code error;
  asio::ip::udp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port), error);
  if (!error) {
    for (const auto& entry : found) {
      asio::ip::udp::socket probe(context);
      probe.connect(entry.endpoint(), error);
      if (error) continue;
      const auto local = probe.local_endpoint(error);
      if (!error) return local.address().to_string();
    }
  }
  return Status(Code::kNotFound, "there is no way to the rendezvous host \"" + host + "\" (" +
                                     error.message() + "): check its name in --rdzv-endpoint");
}

Result<OwnHost> own_host_towards(const std::string& host, int port) {
  const Result<std::string> own = address_towards(host, port);
  if (!own.is_ok()) return own.status();
  if (!is_loopback(own.value()) || is_loopback(host)) return OwnHost{own.value(), false};
  // 192.0.2.1 belongs to no machine (RFC 5737), and nothing is sent to it.
  const Result<std::string> outward = address_towards("192.0.2.1", 9);
  return OwnHost{outward.is_ok() ? outward.value() : own.value(), true};
}

Result<int> free_port() {
  asio::io_context context;
  boost::system::error_code error;
  asio::ip::tcp::acceptor acceptor(context);
  acceptor.open(asio::ip::tcp::v4(), error);
  if (!error) acceptor.bind({asio::ip::tcp::v4(), 0}, error);
  const auto local = error ? asio::ip::tcp::endpoint() : acceptor.local_endpoint(error);
  if (error) {
    return Status(Code::kResourceExhausted, "no free port for MASTER_PORT: " + error.message());
  }
  return static_cast<int>(local.port());
}

bool is_listening(const std::string& socket) {
  if (socket.empty()) return false;
  std::string path = socket;
  if (path.front() == '@') path.front() = '\0';
  asio::io_context context;
  boost::system::error_code error;
  asio::local::stream_protocol::socket probe(context);
  try {
    probe.connect(asio::local::stream_protocol::endpoint(path), error);
  } catch (const boost::system::system_error&) {
    // The path is too long for a unix socket.
    return false;
  }
  return !error;
}

}  // namespace rueda::agent
