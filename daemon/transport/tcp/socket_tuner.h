// Socket options of the data path, the choice of congestion control among them.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/tcp/asio_types.h"

namespace rueda::transport::tcp {

// Belongs to one loop.
class SocketTuner {
 public:
  // "auto": reno between two daemons on one host, because bbr, made for long paths, caps loopback;
  // "system": whatever the kernel's default is; anything else: that algorithm, for every peer.
  explicit SocketTuner(std::string congestion) : congestion_(std::move(congestion)) {}

  // kInvalidArgument, naming the algorithm, when this kernel does not let us use it.
  Status is_viable() const;
  // To be called on an open socket before it connects: a congestion control that was in force at
  // the handshake leaves its pacing behind.
  void tune_connecting(Socket& socket, const Endpoint& peer);
  void tune_listener(Acceptor& acceptor, const Endpoint& local);
  void tune_accepted(Socket& socket);

 private:
  void tune(int descriptor, bool same_host);
  void choose_congestion(int descriptor, bool same_host);

  const std::string congestion_;
  bool has_logged_ = false;
};

// Whether a peer's address is one of this machine's. Sends nothing.
bool is_same_host(const Endpoint& peer);

}  // namespace rueda::transport::tcp
