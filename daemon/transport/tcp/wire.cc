#include "daemon/transport/tcp/wire.h"

#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "daemon/transport/tcp/receive_channel.h"
#include "daemon/transport/tcp/send_channel.h"

namespace rueda::transport::tcp {

namespace {

class TcpWire final : public Wire {
 public:
  explicit TcpWire(Socket socket) : socket_(std::move(socket)) {}

  void read(void* to, size_t bytes, Handler handler) override {
    asio::async_read(
        socket_, asio::buffer(to, bytes),
        [handler = std::move(handler)](const error_code& error, size_t) { handler(error); });
  }
  void write(const void* from, size_t bytes, Handler handler) override {
    asio::async_write(
        socket_, asio::buffer(from, bytes),
        [handler = std::move(handler)](const error_code& error, size_t) { handler(error); });
  }
  void wait_for_more(Handler handler) override {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }
  void cancel_wait() override {
    error_code ignored;
    socket_.cancel(ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }
  std::unique_ptr<SendChannel> make_sender(const ConnectOptions& options,
                                           std::shared_ptr<const RegionTable> regions,
                                           std::string peer, const ChannelKeys& keys) override {
    return make_send_channel(std::move(socket_), options, std::move(regions), std::move(peer),
                             keys);
  }
  std::unique_ptr<ReceiveChannel> make_receiver(const AcceptOptions& options, std::string peer,
                                                const ChannelKeys& keys) override {
    return make_receive_channel(std::move(socket_), options, std::move(peer), keys);
  }
  Socket take_socket() override { return std::move(socket_); }

 private:
  Socket socket_;
};

class TcpWires final : public Wires {
 public:
  const char* name() const override { return "tcp"; }
  std::shared_ptr<Wire> connected(Socket socket) override {
    return std::make_shared<TcpWire>(std::move(socket));
  }
  std::shared_ptr<Wire> accepted(Socket socket, const Endpoint& /*peer*/) override {
    return std::make_shared<TcpWire>(std::move(socket));
  }
};

}  // namespace

std::shared_ptr<Wires> make_tcp_wires() { return std::make_shared<TcpWires>(); }

}  // namespace rueda::transport::tcp
