// Takes the connections of the control port and hands them to gRPC, on a thread of its own. gRPC's
// own listener is deaf for good once descriptors have run out, and takes whatever comes.
//
// Whose connection no job needs is a stranger. There are so many strangers at a time, and each may
// have sent so much: gRPC keeps a message until all of it is here, however long it says it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/base/crowd.h"
#include "daemon/base/fd.h"
#include "daemon/base/limits.h"
#include "daemon/base/status.h"

namespace rueda::service {

struct AcceptorLimits {
  size_t strangers = limits::kMaxStrangers;
  // What one may have sent at once, and what all of them may; the first goes on by
  // `bytes_a_second`.
  int64_t bytes = static_cast<int64_t>(limits::kMaxControlMessageBytes);
  int64_t all_bytes = int64_t{32} << 20;
  int64_t bytes_a_second = 64 << 10;
  std::chrono::milliseconds retry =
      std::chrono::milliseconds(100);  // where descriptors have run out
};

// As many strangers as descriptors allow, an eighth of which they may take.
AcceptorLimits acceptor_limits();

class Acceptor {
 public:
  // Owns a connection from here on.
  using Take = std::function<void(UniqueFd)>;

  explicit Acceptor(AcceptorLimits limits = acceptor_limits()) : limits_(limits) {}
  ~Acceptor() { stop(); }

  // Returns the port that was bound; 0 takes a free one. Connections wait until start().
  Result<uint16_t> bind(const std::string& host, uint16_t port);
  // `take` is called on the thread.
  void start(Take take);
  // Nothing is taken any more. Those that were live on.
  void stop();

  // Thread-safe: jobs need the connection of that peer, as gRPC calls it, or none does any more.
  void keep(const std::string& peer, bool needed);
  // Thread-safe.
  size_t strangers() const;
  uint64_t thrown_out() const;

 private:
  struct Connection {
    UniqueFd socket;  // of the same connection: to end it, and to see that it has ended
    std::string peer;
    std::string address;
    bool needed = false;
    int64_t base_bytes = 0;  // what it had sent when it became a stranger
    std::chrono::steady_clock::time_point since;
    int64_t held_bytes = 0;
  };

  void run();
  // False: there are no descriptors left.
  bool accept_all();
  void look_at(uint64_t id, uint32_t events);
  void become_stranger(uint64_t id, Connection& connection);
  void throw_out(uint64_t id);
  void forget(uint64_t id);

  const AcceptorLimits limits_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  Take take_;
  std::thread thread_;
  mutable std::mutex mutex_;  // guards what follows
  uint64_t last_id_ = 0;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, uint64_t> by_peer_;
  Crowd<uint64_t> strangers_;
  int64_t held_bytes_ = 0;  // of all strangers
  uint64_t thrown_out_ = 0;
};

// What stands for a peer's machine: its IPv4 address, or the network of its IPv6 address. Of gRPC's
// names, "ipv4:10.0.0.1:4711".
std::string machine_of(const std::string& peer);

}  // namespace rueda::service
