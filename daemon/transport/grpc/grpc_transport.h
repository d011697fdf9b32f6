// The data plane over gRPC: each frame is a message of a bidirectional stream, and each channel a
// connection of HTTP/2 with one such stream. It is there for networks that let nothing but HTTP/2
// pass, and as the baseline that the literature compares with
// (docs/decisions/0068-frames-in-grpc.md).
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/tcp/tcp_transport.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

// `io` must outlive the transport and its channels, and one thread must run it. Channels may
// outlive the transport. It has one thread more, on which gRPC works.
std::unique_ptr<Transport> make_grpc_transport(boost::asio::io_context& io,
                                               TcpOptions options = {});

}  // namespace rueda::transport
