// A call at the unix socket, as whoever serves its method sees it. It is bytes here: messages are
// parsed by who knows them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "daemon/rpc/call_status.h"
#include "daemon/security/policy.h"

namespace rueda::local {

// Hears what the client of a stream says, on the server's loop.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Gets a further message. The next one comes once Call::next() has been called.
  virtual void on_message(const std::string& message) = 0;
  // The client will send nothing more: it has said so, or it has gone. This is called once, unless
  // the call was finished before. Call::finish() must still be called.
  virtual void on_end() = 0;
};

// Thread-safe, but for the two methods that say otherwise. finish() must be called once, and
// nothing after it. What is said of a call whose client has gone is dropped.
class Call {
 public:
  virtual ~Call() = default;
  virtual const security::Caller& caller() const = 0;
  // Queues a message for the client.
  virtual void send(const std::string& message) = 0;
  // What is queued, and has not been taken yet.
  virtual size_t waiting_messages() const = 0;
  virtual size_t waiting_bytes() const = 0;
  virtual void finish(const CallStatus& status) = 0;
  // Ends the call because of what its client has sent: that is counted and logged, and the
  // connection is closed. It is called in place of finish().
  virtual void refuse(const CallStatus& status) = 0;
  // Sets how long no other call is taken after this one, if calls of its kind are taken in turn.
  virtual void rest(std::chrono::nanoseconds time) = 0;
  // The request of a stream, or its last message, has been handled.
  virtual void next() = 0;

  // These may be called by Service::begin alone. The first makes the call a stream; the other sets
  // what is called, on the server's loop, if the client of another call goes before its end.
  virtual void set_receiver(std::shared_ptr<Receiver> receiver) = 0;
  virtual void set_on_gone(std::function<void()> on_gone) = 0;
};

// Who serves a method.
struct Service {
  // Calls that are taken in turn are answered one at a time, each after a rest that it has asked
  // for, and principals take turns.
  bool is_in_turn = false;
  // Begins a call, on the server's loop. What it throws ends the call with RESOURCE_EXHAUSTED.
  std::function<void(const std::shared_ptr<Call>& call, const std::string& request)> begin;
};

}  // namespace rueda::local
