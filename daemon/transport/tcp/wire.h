// A connection while its two ends tell each other who they are, before it becomes a channel. The
// hello and the reply are the same on every kind of wire; what carries them, and then the frames,
// is the wire's business: TCP itself (make_tcp_wires), or gRPC (transport/grpc).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

// A wire belongs to its transport's loop. Its handlers are called on the loop, never from inside a
// call, and all of them are called: after close() with operation_aborted.
class Wire {
 public:
  using Handler = std::function<void(const error_code&)>;

  virtual ~Wire() = default;
  // Reads, or writes, exactly so many bytes, which must live until the handler is called. There is
  // one read and one write at a time.
  virtual void read(void* to, size_t bytes, Handler handler) = 0;
  virtual void write(const void* from, size_t bytes, Handler handler) = 0;
  // Calls the handler when the peer has sent more than was read, or has hung up.
  virtual void wait_for_more(Handler handler) = 0;
  // Ends the wait_for_more() that is under way.
  virtual void cancel_wait() = 0;
  virtual void close() = 0;

  // Makes a channel of the wire, which is of no other use then. `peer` names the other end, and
  // `keys` protect what goes over it.
  virtual std::unique_ptr<SendChannel> make_sender(const ConnectOptions& options,
                                                   std::shared_ptr<const RegionTable> regions,
                                                   std::string peer, const ChannelKeys& keys) = 0;
  virtual std::unique_ptr<ReceiveChannel> make_receiver(const AcceptOptions& options,
                                                        std::string peer,
                                                        const ChannelKeys& keys) = 0;
  // Gives the connection away, for an upgrade. Only the wires of TCP can.
  virtual Socket take_socket() = 0;
};

// Makes wires of one kind.
class Wires {
 public:
  virtual ~Wires() = default;
  // Returns the transport's name with these wires, such as "tcp".
  virtual const char* name() const = 0;
  virtual std::shared_ptr<Wire> connected(Socket socket) = 0;
  virtual std::shared_ptr<Wire> accepted(Socket socket, const Endpoint& peer) = 0;
};

// Returns the wires that are the connections themselves.
std::shared_ptr<Wires> make_tcp_wires();

}  // namespace rueda::transport::tcp
