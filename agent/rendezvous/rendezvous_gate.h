// The door of a rendezvous: who connects, from where, to which of this machine's addresses, and how
// long one may stay without having come as a node. gRPC bounds none of that.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/process/process.h"
#include "daemon/base/clock.h"
#include "daemon/base/host_port.h"
#include "daemon/base/status.h"

namespace rueda::agent {

class RendezvousGate {
 public:
  // Connections that have not come as a node: so many, for so long. When there are more, the
  // oldest one goes.
  static constexpr size_t kMostStrangers = 64;
  static constexpr TicksMs kStrangerMs = 15'000;

  // Hosts as numeric addresses; of IPv6 ones mapped from IPv4, that.
  struct Visitor {
    std::string from;
    std::string to;
  };

  // Listens at the endpoint's host if that is an address of this machine, else at all of them: a
  // name may be a forwarded one. kUnavailable if the port is taken.
  static Result<std::unique_ptr<RendezvousGate>> open(const HostPort& endpoint);
  ~RendezvousGate();
  RendezvousGate(const RendezvousGate&) = delete;
  RendezvousGate& operator=(const RendezvousGate&) = delete;

  // Where a launcher of this machine connects.
  const HostPort& local_endpoint() const { return local_endpoint_; }
  // `take` is called on the gate's thread with connected sockets that do not block, and owns them.
  void start(std::function<void(int fd)> take);
  // Nothing is handed over any more.
  void stop();
  // Who is behind a descriptor that was handed over ("fd:N", as gRPC calls it).
  std::optional<Visitor> visitor(const std::string& peer) const;
  // It has come as a node, and stays.
  void let_stay(const std::string& peer);

 private:
  struct Stranger {
    UniqueFd fd;  // the same connection
    TicksMs since_ms = 0;
  };

  explicit RendezvousGate(UniqueFd listener) : listener_(std::move(listener)) {}
  void serve();
  void admit(int fd);
  void send_away(int fd);
  // Milliseconds until somebody has stayed too long; -1: nobody is there.
  int next_due_ms() const;

  const UniqueFd listener_;
  HostPort local_endpoint_;
  UniqueFd stop_;
  std::function<void(int fd)> take_;
  mutable std::mutex mutex_;
  // By the descriptor that was handed over.
  std::map<int, Stranger> strangers_;
  std::map<int, Visitor> visitors_;
  std::thread thread_;
};

}  // namespace rueda::agent
