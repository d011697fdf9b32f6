// The data plane over TCP, on Boost.Asio. Wire format: docs/protocol.md, "Frames" and "Hello".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/transport.h"

namespace rueda::transport {

struct TcpOptions {
  // "auto": reno for peers on this same host, the system's for others; "system"; or the name of an
  // algorithm, for all peers.
  std::string congestion = "auto";
  // How long an accepted connection may take to say who it is.
  int64_t hello_timeout_ms = 3000;
};

// `io` outlives the transport and its channels, and is run by one thread. Channels may outlive the
// transport.
std::unique_ptr<Transport> make_tcp_transport(boost::asio::io_context& io, TcpOptions options = {});

}  // namespace rueda::transport
