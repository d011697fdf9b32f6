// Sets the socket options of the data path, and chooses the congestion control.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/tcp/asio_types.h"

namespace rueda::transport::tcp {

// A tuner belongs to one loop.
class SocketTuner {
 public:
  // "auto" is reno between two daemons on one host, because bbr, made for long paths, caps
  // loopback; "system" is the kernel's default; any other text names the algorithm for every peer.
  explicit SocketTuner(std::string congestion) : congestion_(std::move(congestion)) {}

  // Returns kInvalidArgument, which names the algorithm, if this kernel does not let the daemon use
  // it.
  Status is_viable() const;
  // Call this on an open socket before it connects: a congestion control that was in force during
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

// Returns true if the peer's address is one of this machine's. The call sends nothing.
bool is_same_host(const Endpoint& peer);

}  // namespace rueda::transport::tcp
