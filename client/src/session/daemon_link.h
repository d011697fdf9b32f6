// The link of a session with the daemon: the socket, the two rings, and how threads wait for what
// comes from there. It belongs to the session, and owns the mutex under which the session's threads
// work. It has no thread: one waiting thread polls the socket and the doorbell; the others sleep on
// a condition variable until it hands over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "client/abi/rueda_abi.h"
#include "client/src/session/attachment.h"
#include "client/src/session/operation.h"
#include "client/src/session/session_mutex.h"
#include "client/src/start/config.h"
#include "client/src/wire/connection.h"
#include "client/src/wire/rings.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::client {

class DaemonLink {
 public:
  // What came in the completion ring.
  struct Arrivals {
    CompletionRing::Pop popped = CompletionRing::Pop::kEmpty;
    bool has_news = false;  // an unread message lies on the socket
  };
  // The owner of the operations.
  class Host {
   public:
    // Takes all completions out of the ring, and ends their operations.
    virtual Arrivals take_completions(CompletionRing& ring) RUEDA_REQUIRES(session_mutex) = 0;
    // Ends all operations in flight with this error: no completion will come any more.
    virtual void on_over(const Status& reason) RUEDA_REQUIRES(session_mutex) = 0;

   protected:
    ~Host() = default;
  };
  // The daemon answers a request at once; a daemon that does not is stuck.
  static constexpr TicksMs kRequestTimeoutMs = 30'000;

  // The config and the host must outlive the link.
  DaemonLink(const Config& config, Attachment daemon, Host& host)
      : config_(config), daemon_(std::move(daemon)), host_(host) {}
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  Mutex& mutex() const RUEDA_RETURN_CAPABILITY(session_mutex) { return mutex_; }

  const rueda_abi_started& place() const { return daemon_.place; }
  uint32_t capacity() const { return daemon_.capacity(); }

  // Returns the reason why nothing is in flight any more, and nothing will be.
  const std::optional<Status>& over() const RUEDA_REQUIRES(session_mutex) { return over_; }
  // Ends everything that is in flight, and all that comes later, with this reason. The first call
  // decides.
  void end(Status reason) RUEDA_REQUIRES(session_mutex);

  // Makes the handle's operations, which have tickets, visible to the daemon.
  void submit(const Handle& handle) RUEDA_REQUIRES(session_mutex);
  // These count what submit() was given.
  uint64_t submissions() const RUEDA_REQUIRES(session_mutex) { return submissions_; }
  uint64_t bytes_copied_in() const RUEDA_REQUIRES(session_mutex) { return bytes_copied_in_; }

  // Waits until is_reached(), and returns true, or until the deadline, and returns false. It gives
  // the mutex up while it sleeps. is_reached() must become true once over() is set, or else there
  // must be a deadline. If is_brief, the wait may take only microseconds, and the thread yields
  // before it sleeps.
  bool wait_until(MutexLock& lock, const std::function<bool()>& is_reached,
                  std::optional<TicksMs> deadline_ms, bool is_brief = false)
      RUEDA_REQUIRES(session_mutex);
  // Wakes all threads that sleep in wait_until(), so that they look whether they have reached what
  // they wait for. It is for changes that come with no message and no completion.
  void wake_waiters() RUEDA_REQUIRES(session_mutex);
  // Says which ticket the daemon is told that this process sleeps for; 0: none.
  void set_waited_ticket(uint64_t ticket) RUEDA_REQUIRES(session_mutex) { waited_ticket_ = ticket; }
  // Has the host take what has come in the completion ring.
  void drain_completions() RUEDA_REQUIRES(session_mutex);
  // Returns true if a thread sleeps in poll, or is about to.
  bool is_polled() const RUEDA_REQUIRES(session_mutex) { return is_polled_; }
  // Reads what has come on the socket, without blocking. A caller that never waits learns of the
  // daemon's death by this.
  void read_socket() RUEDA_REQUIRES(session_mutex);

  // Sends a message, and waits for its answer. An error is the daemon's, or says why there will be
  // no answer.
  Result<uint32_t> request(uint16_t type, const void* body, size_t body_bytes, int descriptor,
                           TicksMs timeout_ms = kRequestTimeoutMs) RUEDA_EXCLUDES(session_mutex);
  // Returns the first value that was not finite, if this process has been told of one; it reads the
  // socket for news.
  std::optional<rueda_abi_nonfinite> first_nonfinite() RUEDA_EXCLUDES(session_mutex);
  // Returns whether the daemon has said, in an elastic job, that processes wait to take part. It
  // reads the socket for news.
  // Returns the reason if the session is over.
  Result<bool> hosts_changed() RUEDA_EXCLUDES(session_mutex);
  // Leaves the job, and waits at most timeout_ms for the answer. Everything in flight ends. In an
  // elastic job the daemon keeps the arenas as long as the connection is open.
  void leave(MutexLock& lock, int64_t timeout_ms) RUEDA_REQUIRES(session_mutex);
  // Returns the connection of a link that has left and is not used any more.
  int socket() const { return daemon_.connection->fd(); }
  std::unique_ptr<Connection> take_connection() { return std::move(daemon_.connection); }

  // Wakes a thread that sleeps on the socket, on which nothing comes any more.
  void shut_down() { daemon_.connection->shut_down(); }
  // Closes the inherited descriptors in a forked child, where another thread may have held the
  // mutex. Async-signal-safe.
  void close_in_child();

 private:
  // A request that the daemon has not answered yet.
  struct PendingReply {
    bool is_answered = false;
    rueda_abi_status reply{};
  };

  void ring_daemon() RUEDA_REQUIRES(session_mutex);
  // Yields for a while, without the mutex. Returns true if a completion came before it was time to
  // sleep.
  bool yield_once() RUEDA_REQUIRES(session_mutex);
  // Sleeps without the mutex.
  void poll_once(std::optional<TicksMs> deadline_ms) RUEDA_REQUIRES(session_mutex);
  void on_message(const Message& message) RUEDA_REQUIRES(session_mutex);
  void on_nonfinite(const Message& message) RUEDA_REQUIRES(session_mutex);
  // Waits a moment, before the session leaves a job whose values are checked, for a report that may
  // be on its way.
  void ask_nonfinite(MutexLock& lock) RUEDA_REQUIRES(session_mutex);

  const Config& config_;
  // The thread that polls asks without the mutex whether something has come; place and descriptors
  // do not change. All else is done with the mutex held.
  Attachment daemon_;
  Host& host_;

  mutable Mutex mutex_;  // is known as session_mutex
  Condition changed_;
  // The session has said goodbye: the end of the socket's stream is expected.
  bool is_leaving_ RUEDA_GUARDED_BY(session_mutex) = false;
  bool is_polled_ RUEDA_GUARDED_BY(session_mutex) = false;
  YieldingWait yielding_;  // belongs to the thread that polls
  uint64_t waited_ticket_ RUEDA_GUARDED_BY(session_mutex) = 0;
  std::optional<Status> over_ RUEDA_GUARDED_BY(session_mutex);
  std::deque<PendingReply*> pending_replies_ RUEDA_GUARDED_BY(session_mutex);
  uint64_t submissions_ RUEDA_GUARDED_BY(session_mutex) = 0;
  uint64_t bytes_copied_in_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // The daemon has reported the first such value or, asked, that there is none.
  bool hosts_changed_ RUEDA_GUARDED_BY(session_mutex) = false;
  bool is_nonfinite_known_ RUEDA_GUARDED_BY(session_mutex) = false;
  std::optional<rueda_abi_nonfinite> first_nonfinite_ RUEDA_GUARDED_BY(session_mutex);
};

}  // namespace rueda::client
