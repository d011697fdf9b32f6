// The client's side of calls at the daemon's unix socket, for ruedactl and ruedarun. It has nothing
// of the daemon's.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/local/wire.h"
#include "daemon/rpc/call_status.h"

namespace rueda::local {

// Makes one call over a connection (connect_to_daemon(), daemon/base/os/daemon_socket.h), and waits
// for its reply, whose bytes are put into `reply`. Several calls may be made one after the other.
//
// Statuses beside those that the daemon gives: kUnavailable (the connection has ended, or what
// comes is no answer), kDeadlineExceeded, kFailedPrecondition (the daemon speaks another version).
CallStatus ask_bytes(int socket, Method method, const std::string& request, std::string& reply,
                     std::chrono::milliseconds timeout);

// The same with messages of protobuf.
template <class Request, class Reply>
CallStatus ask(int socket, Method method, const Request& request, Reply& reply,
               std::chrono::milliseconds timeout) {
  std::string bytes;
  const CallStatus status = ask_bytes(socket, method, request.SerializeAsString(), bytes, timeout);
  if (!status.is_ok() || reply.ParseFromString(bytes)) return status;
  return {CallCode::kUnavailable, "its answer is none that this program knows: upgrade it"};
}

// A call with messages in both directions, and a thread, which sleeps in poll(). Methods may be
// called on any thread.
class Stream {
 public:
  // These are called on the stream's thread.
  struct Events {
    std::function<void(const std::string& message)> on_message;
    // The daemon has ended the call, the connection has broken, or the stream was cancelled. It is
    // called once, and last.
    std::function<void(const CallStatus&)> on_end;
  };

  // Takes over the connection for one call.
  Stream(UniqueFd socket, Method method, const std::string& request, Events events);
  // Cancels the call, and returns once on_end() has returned, if it has begun: must not run on the
  // stream's thread.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Begins the call. Must be called once; events come from here on.
  void start();
  // Queues a message.
  void send(const std::string& message);
  // Says, behind what is queued, that no further message comes. The daemon ends the call then.
  void finish();
  // Breaks the call off.
  void cancel();

 private:
  void run();
  // Waits until something can be read, written, or has been asked for by another thread.
  void wait();
  // Returns true once the call is over, with its status in `end`.
  bool read(CallStatus& end);
  bool take_frames(CallStatus& end);
  void write();
  void queue(std::string frame);
  void wake() const;

  const UniqueFd socket_;
  const UniqueFd waker_;
  const Events events_;
  // These two belong to the thread.
  std::string input_;
  bool has_heard_ = false;
  Mutex mutex_;
  std::deque<std::string> output_ RUEDA_GUARDED_BY(mutex_);
  size_t sent_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;  // Of the first of them.
  bool is_finished_ RUEDA_GUARDED_BY(mutex_) = false;
  bool is_cancelled_ RUEDA_GUARDED_BY(mutex_) = false;
  bool is_deaf_ RUEDA_GUARDED_BY(mutex_) = false;  // The daemon takes nothing more.
  std::thread thread_;
};

}  // namespace rueda::local
