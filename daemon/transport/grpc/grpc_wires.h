// Wires that gRPC carries: a connection is made or accepted as over TCP, and handed to gRPC.
#pragma once

#include <map>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "daemon/base/fd.h"
#include "daemon/base/loop_gate.h"
#include "daemon/rpc/call_queue.h"
#include "daemon/rpc/stream.h"
#include "daemon/transport/grpc/stream_link.h"
#include "daemon/transport/tcp/wire.h"

namespace rueda::transport::grpc_data {

class GrpcWire;

// A server of gRPC for connections that come, and a queue for those that go. It belongs to the
// loop; its wires and their channels hold it.
class GrpcWires final : public tcp::Wires, public std::enable_shared_from_this<GrpcWires> {
 public:
  explicit GrpcWires(boost::asio::io_context& io);
  ~GrpcWires() override;

  const char* name() const override { return "grpc"; }
  std::shared_ptr<tcp::Wire> connected(tcp::Socket socket) override;
  std::shared_ptr<tcp::Wire> accepted(tcp::Socket socket, const tcp::Endpoint& peer) override;

  boost::asio::io_context& io() const { return io_; }
  // The wire that was accepted from this peer has closed.
  void forget(const tcp::Endpoint& peer, const GrpcWire* wire);

 private:
  class Service;

  // The stream of an accepted connection has come, which is called on gRPC's thread, ...
  void arrive(std::unique_ptr<rpc::ByteArrival> arrival);
  // ... and belongs to the wire of that connection.
  void deliver(const std::string& peer, const rpc::AcceptedStream& stream);

  boost::asio::io_context& io_;
  const std::shared_ptr<LoopGate> gate_;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<rpc::CallQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  // The accepted wires whose streams have not come.
  std::map<tcp::Endpoint, std::weak_ptr<GrpcWire>> waiting_;
};

}  // namespace rueda::transport::grpc_data
