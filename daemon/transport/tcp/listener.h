// Accepts connections, lets them prove who they are, and matches them with the channels that have
// been announced.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/base/strangers/token_bucket.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/tcp/hello.h"
#include "daemon/transport/tcp/log_limiter.h"
#include "daemon/transport/tcp/socket_tuner.h"
#include "daemon/transport/tcp/upgrade.h"
#include "daemon/transport/tcp/wire.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

class Handshake;

// A listener belongs to one loop. It is held by shared_ptr, because operations under way refer to
// it.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // `upgrader` may be null. `forged` counts frames that do not open.
  Listener(asio::io_context& io, std::shared_ptr<SocketTuner> tuner, std::shared_ptr<Wires> wires,
           std::shared_ptr<Upgrader> upgrader, int64_t hello_timeout_ms, Protection protection,
           std::shared_ptr<uint64_t> forged);
  ~Listener();

  // Returns the bound address, or a Status that names the address and the cause.
  Result<std::string> listen(const std::string& address);
  // If `checked` is not ok, the options are wrong, and the handler gets this status.
  void expect(AcceptOptions options, const Status& checked, AcceptHandler handler);
  void cancel_expect(const ChannelId& id);
  uint64_t rejected() const { return rejected_; }
  // Returns null if there is none.
  const Upgrader* upgrader() const { return upgrader_.get(); }
  // Closes the port and every connection that is not a channel yet. No handler is called any more.
  void stop();

 private:
  friend class Handshake;

  struct Expectation {
    Expectation(AcceptOptions o, AcceptHandler h, asio::io_context& io)
        : options(std::move(o)), handler(std::move(h)), deadline(io) {}
    AcceptOptions options;
    AcceptHandler handler;
    Timer deadline;
    // True while a connection is being answered, or if the slots are wrong.
    bool is_claimed = false;
    std::string last_rejection;  // The reason why the last attempt to open the channel failed.
    // The upgrade of the connection that became the channel, if it is under way.
    std::shared_ptr<Upgrade> upgrade;
  };
  using ExpectationPtr = std::shared_ptr<Expectation>;

  void accept();
  void on_accept(const error_code& error, Socket socket);
  void pause_accepting(const error_code& error);
  // Accepts the next connection when strangers have not come too fast: what they cost is done on
  // the loop that reduces.
  void accept_in_time();
  void pause(std::chrono::microseconds time);
  // Closes one of the connections that have not proven who they are, the one that is missed the
  // least. Returns false if there is no such connection.
  bool evict(const std::string& why);
  void on_deadline(const ExpectationPtr& expectation);
  void on_upgraded(const ExpectationPtr& expectation, const std::string& peer,
                   Result<std::unique_ptr<ReceiveChannel>> result);
  // Ends whatever waits for the expectation.
  static void withdraw(const ExpectationPtr& expectation);
  // Takes the expectation out of the table and tells its handler the result.
  void finish(const ExpectationPtr& expectation, Result<std::unique_ptr<ReceiveChannel>> result);

  // A Handshake calls these.
  ExpectationPtr find(const ChannelId& id);
  Geometry geometry_of(const AcceptOptions& options) const {
    return transport::geometry_of(options, protection_);
  }
  void reject(const std::shared_ptr<Handshake>& handshake, const Status& why);
  void welcome(const std::shared_ptr<Handshake>& handshake, const ExpectationPtr& expectation);
  void count_rejection(const std::string& peer, const Status& why);

  asio::io_context& io_;
  const std::shared_ptr<SocketTuner> tuner_;
  const std::shared_ptr<Wires> wires_;
  const std::shared_ptr<Upgrader> upgrader_;
  const int64_t hello_timeout_ms_;
  const Protection protection_;
  const std::shared_ptr<uint64_t> forged_;
  Acceptor acceptor_;
  Timer pause_timer_;
  // The connections that may come, until they have said who they are. While channels are expected
  // somebody may wait behind strangers, so these cost little then.
  TokenBucket arrivals_{256, 400};
  static constexpr double kPriceWhileExpecting = 0.2;
  bool is_paced_ = false;  // A pause is for strangers who come too fast.
  std::map<ChannelId, ExpectationPtr> expectations_;
  std::vector<std::shared_ptr<Handshake>> handshakes_;  // They are in the order of their arrival.
  LogLimiter log_limiter_;
  uint64_t rejected_ = 0;
  bool is_stopped_ = false;
};

}  // namespace rueda::transport::tcp
