// One accepted connection, from its first byte until it becomes a channel or is closed.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "daemon/transport/tcp/listener.h"
#include "daemon/transport/tcp/wire.h"

namespace rueda::transport::tcp {

// Its listener's set holds a handshake, and so do the operations under way.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(Listener& listener, std::shared_ptr<Wire> wire, const Endpoint& peer,
            asio::io_context& io);

  void start(int64_t timeout_ms);
  // Says that the channel that this waits for has been announced. The answer leaves from a fresh
  // turn of the loop.
  void announce();
  // Closes the connection; the listener hears nothing more of it.
  void abandon();
  const std::string& peer() const { return peer_; }
  const boost::asio::ip::address& address() const { return address_; }
  // Returns true if the hello has come, and nothing yet that its sender could not have recorded.
  bool has_said_hello() const { return is_early_ || answered_ != nullptr; }
  // Returns true if the peer has proven that it has the token, and is there now.
  bool is_proven() const { return claimed_ != nullptr; }
  // Returns true if a hello for this channel has come before the channel was announced.
  bool waits_for(const ChannelId& id) const { return is_early_ && hello_.id == id; }
  // Gives the wire away, which is not closed with the handshake then.
  std::shared_ptr<Wire> take_wire() { return std::exchange(wire_, nullptr); }
  // Returns true if the peer was told that its offer of an upgrade is taken up.
  bool upgrades() const { return reply_.answer == HelloAnswer::kUpgrade; }
  // Returns the keys of what goes over the wire from now on.
  ChannelKeys keys() const { return make_keys(hello_, reply_, answered_->options.token); }

 private:
  void set_deadline(int64_t after_ms);
  void read_rest();
  void on_hello();
  void wait_for_announcement();
  void answer(HelloAnswer answer);
  void await_confirm();
  void on_confirm();
  Status open_already() const;
  void fail(const Status& why);
  void fail(const error_code& error);

  Listener* listener_;          // Null once abandoned.
  std::shared_ptr<Wire> wire_;  // Null once taken, or once abandoned.
  asio::io_context& io_;
  Timer deadline_;
  std::string peer_;
  boost::asio::ip::address address_;
  int64_t timeout_ms_ = 0;
  Hello hello_;
  bool is_early_ = false;
  bool has_grace_ = false;  // The deadline of the confirmation has passed once.
  HelloReply reply_;
  HelloConfirm confirm_;
  Listener::ExpectationPtr answered_;  // The channel that the peer is being answered as.
  Listener::ExpectationPtr claimed_;   // The same, once the peer has confirmed.
};

}  // namespace rueda::transport::tcp
