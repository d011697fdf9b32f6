// The data plane inside one process.
//
// It keeps the whole contract of transport.h, token and slot checks included, without a system
// call. The two ends of a channel may belong to different io_contexts, each run by a thread of its
// own. Stop all the loops of a network before any of its io_contexts is destroyed.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/transport.h"

namespace rueda::transport {

// The directory of the addresses that transports listen on. It is thread-safe, and shared by the
// transports that can reach each other.
class MemNetwork;
std::shared_ptr<MemNetwork> make_mem_network();

// An address is any text; a port of 0 behind its last colon stands for a free one. `io` must
// outlive the transport and its channels. Channels may outlive the transport.
std::unique_ptr<Transport> make_mem_transport(boost::asio::io_context& io,
                                              std::shared_ptr<MemNetwork> network);

}  // namespace rueda::transport
