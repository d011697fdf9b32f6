// Holds the connections of a rendezvous: who connects, from where, to which of this machine's
// addresses, and how long a connection may stay that has not come as a node. gRPC limits none of
// that.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/process/process.h"
#include "daemon/base/clock.h"
#include "daemon/base/host_port.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::agent {

class RendezvousGate {
 public:
  // The most connections that have not come as a node, and the longest time that each may stay.
  // When there are more, the oldest is closed.
  static constexpr size_t kMaxRendezvousStrangers = 64;
  static constexpr TicksMs kStrangerMs = 15'000;

  // Hosts are numeric addresses; an IPv6 address that is mapped from IPv4 is given as the IPv4
  // address.
  struct Visitor {
    std::string from;
    std::string to;
  };

  // Listens at the endpoint's host if that is an address of this machine, otherwise at all
  // addresses: a name may be a forwarded one. kUnavailable means that the port is taken.
  static Result<std::unique_ptr<RendezvousGate>> open(const HostPort& endpoint);
  ~RendezvousGate();
  RendezvousGate(const RendezvousGate&) = delete;
  RendezvousGate& operator=(const RendezvousGate&) = delete;

  // Returns the endpoint at which a launcher of this machine connects.
  const HostPort& local_endpoint() const { return local_endpoint_; }
  // Starts to accept. `take` is called on the gate's thread with connected, non-blocking sockets,
  // which it then owns.
  void start(std::function<void(int fd)> take);
  // After this no connection is handed over any more.
  void stop();
  // Returns the addresses of the connection behind a descriptor that was handed over ("fd:N", as
  // gRPC names it).
  std::optional<Visitor> visitor(const std::string& peer) const;
  // Keeps a connection, because it has come as a node.
  void let_stay(const std::string& peer);

 private:
  struct Stranger {
    UniqueFd fd;  // another descriptor of the same connection
    TicksMs since_ms = 0;
  };

  explicit RendezvousGate(UniqueFd listener) : listener_(std::move(listener)) {}
  void serve();
  void admit(int fd);
  void send_away(int fd) RUEDA_REQUIRES(mutex_);
  // Returns the milliseconds until a stranger has stayed too long, or -1 if there is no stranger.
  int next_due_ms() const RUEDA_REQUIRES(mutex_);

  const UniqueFd listener_;
  HostPort local_endpoint_;
  UniqueFd stop_;
  std::function<void(int fd)> take_;
  mutable Mutex mutex_;
  // The connections that have not come as a node, by the descriptor that was handed over.
  std::map<int, Stranger> strangers_ RUEDA_GUARDED_BY(mutex_);
  std::map<int, Visitor> visitors_ RUEDA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rueda::agent
