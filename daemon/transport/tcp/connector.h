// Opens one channel: it resolves the name, connects, says hello, and tries again until the
// deadline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/tcp/hello.h"
#include "daemon/transport/tcp/socket_tuner.h"
#include "daemon/transport/tcp/upgrade.h"
#include "daemon/transport/tcp/wire.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

// A connector belongs to one loop. Its transport holds it, and so do the operations under way.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  // `done` is called once, and never from inside start(), unless the connector is cancelled before.
  // `upgrader` may be null. `forged` counts credits that do not open.
  Connector(asio::io_context& io, ConnectOptions options, std::shared_ptr<SocketTuner> tuner,
            std::shared_ptr<Wires> wires, std::shared_ptr<const RegionTable> regions,
            std::shared_ptr<Upgrader> upgrader, Protection protection,
            std::shared_ptr<uint64_t> forged, ConnectHandler done);

  void start();
  void cancel();
  const ConnectOptions& options() const { return options_; }

 private:
  void attempt();
  void refuse();
  void on_resolved(const error_code& error, const Resolver::results_type& results);
  void try_next_endpoint();
  void on_connected(const error_code& error);
  void say_hello();
  void on_reply(const error_code& error);
  // Returns ok if what the peer has answered may be confirmed, or why not.
  Status check_answer() const;
  // Confirms the answer, once the hello is off: a wire writes one thing at a time.
  void confirm();
  void on_confirmed();
  void on_upgraded(Result<std::unique_ptr<SendChannel>> result);
  void close();
  // Remembers the cause, and goes on with the next endpoint or with a later attempt.
  void on_failure(std::string cause);
  void on_deadline();
  void finish(Result<std::unique_ptr<SendChannel>> result);

  asio::io_context& io_;
  const ConnectOptions options_;
  const std::shared_ptr<SocketTuner> tuner_;
  const std::shared_ptr<Wires> wires_;
  const std::shared_ptr<const RegionTable> regions_;
  const std::shared_ptr<Upgrader> upgrader_;
  const Protection protection_;
  const std::shared_ptr<uint64_t> forged_;
  std::shared_ptr<Upgrade> upgrade_;  // Set while an upgrade is under way.
  ConnectHandler done_;               // Null once finished or cancelled.
  HostPort address_;
  Resolver resolver_;
  Socket socket_;               // It is what connects.
  std::shared_ptr<Wire> wire_;  // It is what is connected, and null before.
  std::string peer_;            // The address that it is connected to.
  Timer deadline_;
  Timer retry_timer_;
  int64_t retry_ms_;
  std::vector<Endpoint> endpoints_;
  size_t next_endpoint_ = 0;
  std::string last_cause_;
  Hello hello_;
  bool is_hello_written_ = false;
  bool is_answer_good_ = false;
  HelloReply reply_;
  HelloConfirm confirm_;
};

}  // namespace rueda::transport::tcp
