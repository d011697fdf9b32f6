// The data plane over TCP, on Boost.Asio. The wire format is in docs/protocol.md, "Frames" and
// "Hello".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/seal.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

struct TcpOptions {
  // "auto" is reno for peers on this same host, and the system's algorithm for others; "system" is
  // the system's algorithm, and any other text names an algorithm, for all peers.
  std::string congestion = "auto";
  // The time that an accepted connection has to say who it is.
  int64_t hello_timeout_ms = 3000;
  // The same at both ends. Upgraders protect nothing, so there is none with it.
  Protection protection = Protection::kNone;
};

namespace tcp {
class Upgrader;
class Wires;
}  // namespace tcp

// `io` must outlive the transport and its channels, and one thread must run it. Channels may
// outlive the transport. `upgrader` makes more of connections whose other end has one of its kind;
// null: all channels are over TCP. `wires` carry hello and frames; null: the connections themselves
// do.
std::unique_ptr<Transport> make_tcp_transport(boost::asio::io_context& io, TcpOptions options = {},
                                              std::shared_ptr<tcp::Upgrader> upgrader = nullptr,
                                              std::shared_ptr<tcp::Wires> wires = nullptr);

}  // namespace rueda::transport
