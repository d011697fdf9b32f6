// One accepted connection from its first byte until it is a channel or is closed.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/tcp/listener.h"

namespace rueda::transport::tcp {

// Held by its listener's set, and by the operations under way.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(Listener& listener, Socket socket, asio::io_context& io);

  void start(int64_t timeout_ms);
  // What it waits for has been announced: answers, from a fresh turn of the loop.
  void announce();
  // Closes the connection; the listener hears nothing more of it.
  void abandon();
  const std::string& peer() const { return peer_; }
  const boost::asio::ip::address& address() const { return address_; }
  // It has said hello, and waits until its channel is announced.
  bool is_early() const { return is_early_; }
  // It has the token, and is being answered.
  bool is_proven() const { return claimed_ != nullptr; }
  // It has said hello, and its channel has not been announced.
  bool waits_for(const ChannelId& id) const { return is_early_ && hello_.id == id; }
  Socket& socket() { return socket_; }

 private:
  void set_deadline(int64_t after_ms);
  void read_rest();
  void on_hello();
  void wait_for_announcement();
  void answer(HelloAnswer answer);
  void on_answered(const error_code& error, HelloAnswer answer);
  void fail(const Status& why);
  void fail(const error_code& error);

  Listener* listener_;  // null once abandoned
  Socket socket_;
  Timer deadline_;
  std::string peer_;
  boost::asio::ip::address address_;
  int64_t timeout_ms_ = 0;
  Hello hello_;
  bool is_early_ = false;
  HelloReply reply_;
  Listener::ExpectationPtr claimed_;  // the channel it is being answered as
};

}  // namespace rueda::transport::tcp
