// Accepts the connections of the control port and hands them to gRPC, on a thread of its own.
// gRPC's own listener is deaf for good once descriptors have run out, and takes every connection.
//
// A connection that no job needs is a stranger. The number of strangers is bounded, and so is what
// each may have sent: gRPC keeps a message until all of it has arrived, whatever length it
// announces. So are how fast they may come and how fast each may call, because what a stranger does
// costs the daemon more than the stranger, and jobs want the same processors. Where they come
// faster, their machines are let in by turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "daemon/base/fd.h"
#include "daemon/base/limits.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"
#include "daemon/base/strangers/crowd.h"
#include "daemon/base/strangers/fair_queue.h"
#include "daemon/base/strangers/token_bucket.h"

namespace rueda::service {

struct AcceptorLimits {
  size_t strangers = limits::kMaxStrangers;
  // The bytes that one stranger may have sent at once, and the bytes that all may have sent; a
  // stranger's own limit grows by `bytes_a_second`.
  int64_t bytes = static_cast<int64_t>(limits::kMaxControlMessageBytes);
  int64_t all_bytes = int64_t{32} << 20;
  int64_t bytes_a_second = 64 << 10;
  // So many strangers may come at once, and so many a second; others wait. (What that costs jobs is
  // measured by bench/fairness.py.)
  double arrivals = 128;
  double arrivals_a_second = 30;
  // So many wait accepted, by machine, and more in the listener's queue.
  size_t waiting = 256;
  // What calls a stranger may make at once, and a second, in units of may_call().
  double calls = 32;
  double calls_a_second = 20;
  std::chrono::milliseconds retry =
      std::chrono::milliseconds(100);  // The pause after descriptors have run out.
};

// Returns limits for as many strangers as descriptors allow: strangers may take an eighth of them.
AcceptorLimits acceptor_limits();

// A control port that is open. Connections wait in it.
struct Listener {
  UniqueFd socket;
  uint16_t port = 0;
};
// Opens the port; port 0 takes a free one. Errors: kUnavailable, with what to do.
Result<Listener> listen_on(const std::string& host, uint16_t port);

class Acceptor {
 public:
  // Takes over the ownership of a connection.
  using Take = std::function<void(UniqueFd)>;

  explicit Acceptor(AcceptorLimits limits = acceptor_limits())
      : limits_(limits),
        waiting_(limits.waiting),
        arrivals_(limits.arrivals, limits.arrivals_a_second) {}
  ~Acceptor() { stop(); }

  // Opens the port and returns it. The errors are those of listen_on(). Connections wait until
  // start().
  Result<uint16_t> bind(const std::string& host, uint16_t port);
  // Does so with a port that is open already.
  Result<uint16_t> take(Listener listener);
  // Starts the thread. `take` is called on it.
  void start(Take take);
  // Accepts nothing any more. Connections that were accepted stay open.
  void stop();

  // Says whether jobs need the connection of this peer, which is named as gRPC names it.
  // Thread-safe.
  void keep(const std::string& peer, bool needed);
  // Counts a call of this peer, which costs so many units. Returns false, and ends the connection,
  // if it is a stranger's who calls too fast. Thread-safe.
  bool may_call(const std::string& peer, double units);

 private:
  struct Connection {
    explicit Connection(const AcceptorLimits& limits)
        : calls(limits.calls, limits.calls_a_second) {}
    // A descriptor of the same connection as gRPC's, by which the acceptor ends it and sees its
    // end.
    UniqueFd socket;
    std::string peer;
    std::string address;
    bool needed = false;
    TokenBucket calls;
    int64_t base_bytes = 0;  // Bytes that it had sent when it became a stranger.
    std::chrono::steady_clock::time_point since;
    int64_t held_bytes = 0;
  };

  // A connection that has been accepted, and has not been let in.
  struct Arrival {
    UniqueFd socket;
    std::string peer;
    std::string address;
  };

  void run();
  // Accepts what has come, and lets in who may come. Returns how long nothing is to be accepted:
  // descriptors have run out, or strangers come too fast. 0 if it may go on.
  std::chrono::milliseconds accept_all();
  // Accepts one connection, which then waits. Returns 0, or errno.
  int accept_one();
  // Returns false if the connection cannot be watched for want of a descriptor; it is closed.
  bool let_in(Arrival arrival);
  // Returns how long it takes until another stranger may come; 0 if one may come now.
  std::chrono::milliseconds take_arrival();
  void look_at(uint64_t id, uint32_t events);
  void become_stranger(uint64_t id, Connection& connection) RUEDA_REQUIRES(mutex_);
  void throw_out(uint64_t id) RUEDA_REQUIRES(mutex_);
  void forget(uint64_t id) RUEDA_REQUIRES(mutex_);

  const AcceptorLimits limits_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  Take take_;
  std::thread thread_;
  FairQueue<Arrival> waiting_;  // By machine; of the thread.
  mutable Mutex mutex_;
  uint64_t last_id_ RUEDA_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Connection> connections_ RUEDA_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> by_peer_ RUEDA_GUARDED_BY(mutex_);
  Crowd<uint64_t> strangers_ RUEDA_GUARDED_BY(mutex_);
  TokenBucket arrivals_ RUEDA_GUARDED_BY(mutex_);
  int64_t held_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;  // The bytes of all strangers.
};

// Returns a name for a peer's machine: its IPv4 address, or the network of its IPv6 address. The
// peer is named as gRPC names it, such as "ipv4:10.0.0.1:4711".
std::string machine_of(const std::string& peer);

}  // namespace rueda::service
