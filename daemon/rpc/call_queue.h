// The completion queue of a gRPC server, with its one thread: gRPC reports the ends of operations
// here. The thread owns no state of the daemon's: whoever is called on it posts to a loop.
//
// gRPC's callback interface would need less code, but it keeps threads of its own, one for every
// two cores, and each wakes twice a second though nothing happens. The thread of this class sleeps
// until something does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "daemon/base/mutex.h"
#include "daemon/security/policy.h"

namespace rueda::rpc {

// It is called when an operation has ended; `ok` is that of grpc::CompletionQueue::Next().
using Ended = std::function<void(bool ok)>;

class CallQueue {
 public:
  // Must be constructed before the builder's server is built. The server must be shut down before
  // stop() is called, and destroyed before this object is.
  explicit CallQueue(grpc::ServerBuilder& builder);
  ~CallQueue() { stop(); }

  // Returns a tag to be given to gRPC with one operation. `ended` is called once, on this queue's
  // thread.
  static void* tag(Ended ended) { return new Ended(std::move(ended)); }
  grpc::ServerCompletionQueue* get() const { return queue_.get(); }

  // Sets what is told of calls that are refused, on this queue's thread: who made the call, and why
  // it was refused. Must be called before the first call is awaited.
  using Refused = std::function<void(const security::Caller&, const security::Connection&,
                                     const std::string& why)>;
  void set_on_refused(Refused refused) { refused_ = std::move(refused); }
  void note_refused(const security::Caller& caller, const security::Connection& connection,
                    const std::string& why) const {
    if (refused_) refused_(caller, connection, why);
  }

  // Sets what is asked, on this queue's thread, whether another call over the connection is taken
  // up; who says no has ended the connection. Must be called before the first call is awaited.
  using Gate =
      std::function<bool(const security::Connection&, security::Action, const security::Caller&)>;
  void set_gate(Gate gate) { gate_ = std::move(gate); }
  bool lets_in(const security::Connection& connection, security::Action action,
               const security::Caller& caller) const {
    return !gate_ || gate_(connection, action, caller);
  }

  // These two are thread-safe. A call may start operations only between its begin() and its end().
  void begin();
  void end();
  // Waits until all calls that have begun have ended, and ends the thread. Must not be called on
  // that thread.
  void stop();

 private:
  void run();

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  Refused refused_;
  Gate gate_;
  Mutex mutex_;
  Condition changed_;
  int calls_ RUEDA_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace rueda::rpc
