#include "client/src/session/daemon_link.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "client/src/wire/errors.h"

namespace rueda::client {
namespace {

// The daemon answers after a tenth of a second, unless it is about to end.
constexpr TicksMs kNonfiniteTimeoutMs = 1'000;

timespec to_timespec(TicksMs ms) {
  ms = std::max<TicksMs>(ms, 0);
  return {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1'000'000};
}

void ring(int eventfd) {
  const uint64_t one = 1;
  while (::write(eventfd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void clear_doorbell(int eventfd) {
  uint64_t count = 0;
  while (::read(eventfd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace

void DaemonLink::submit(const Handle& handle) {
  for (const Operation& operation : handle.operations) {
    if (!daemon_.submissions.push(operation.record, operation.record.ticket)) {
      end({Code::kInternal,
           "the daemon's submission ring is damaged; restart the job, and report the daemon's log "
           "as a bug"});
      break;
    }
    ++submissions_;
  }
  bytes_copied_in_ += handle.copied_in_bytes;
  ring_daemon();
}

void DaemonLink::ring_daemon() {
  if (!daemon_.submissions.take_wakeup()) return;
  ring(daemon_.daemon_doorbell.get());
}

bool DaemonLink::wait_until(MutexLock& lock, const std::function<bool()>& is_reached,
                            std::optional<TicksMs> deadline_ms, bool is_brief) {
  // A deadline that has passed already still gets one look at the socket.
  for (bool has_looked = false;; has_looked = true) {
    drain_completions();
    if (is_reached()) return true;
    if (has_looked && deadline_ms && steady_now_ms() >= *deadline_ms) return false;
    if (!is_polled_) {
      if (!is_brief || !yield_once()) poll_once(deadline_ms);
    } else if (deadline_ms) {
      changed_.wait_until(
          lock, std::chrono::steady_clock::time_point(std::chrono::milliseconds(*deadline_ms)));
    } else {
      changed_.wait(lock);
    }
  }
}

void DaemonLink::wake_waiters() {
  if (is_polled_) ring(daemon_.wakeup.get());
  changed_.notify_all();
}

bool DaemonLink::yield_once() {
  is_polled_ = true;
  const uint64_t taken = daemon_.completions.taken();
  bool has_grown = false;
  {
    const MutexUnlock unlock(mutex());
    has_grown = yielding_.until([this, taken] { return daemon_.completions.has_grown(taken); });
  }
  is_polled_ = false;
  changed_.notify_all();
  return has_grown;
}

void DaemonLink::poll_once(std::optional<TicksMs> deadline_ms) {
  if (!daemon_.completions.announce_sleep()) return;
  is_polled_ = true;
  if (waited_ticket_ != 0) {
    daemon_.submissions.set_waits_for(waited_ticket_);
    ring_daemon();
  }
  pollfd events[3] = {{.fd = daemon_.client_doorbell.get(), .events = POLLIN, .revents = 0},
                      {.fd = daemon_.connection->fd(), .events = POLLIN, .revents = 0},
                      {.fd = daemon_.wakeup.get(), .events = POLLIN, .revents = 0}};
  int ready = 0;
  {
    const MutexUnlock unlock(mutex());
    timespec timeout = to_timespec(deadline_ms ? *deadline_ms - steady_now_ms() : 0);
    ready = ::ppoll(events, 3, deadline_ms ? &timeout : nullptr, nullptr);
    if (ready > 0 && (events[0].revents & POLLIN) != 0) clear_doorbell(events[0].fd);
    if (ready > 0 && (events[2].revents & POLLIN) != 0) clear_doorbell(events[2].fd);
  }
  daemon_.completions.awake();
  daemon_.submissions.set_waits_for(0);
  is_polled_ = false;
  if (ready > 0 && events[1].revents != 0) read_socket();
  changed_.notify_all();
}

void DaemonLink::drain_completions() {
  const Arrivals arrived = host_.take_completions(daemon_.completions);
  if (arrived.popped == CompletionRing::Pop::kEmpty) return;
  if (arrived.popped == CompletionRing::Pop::kCorrupt) {
    end({Code::kInternal,
         "the daemon's completion ring is damaged; restart the job, and report the daemon's log as "
         "a bug"});
  }
  if (arrived.has_news) read_socket();
  changed_.notify_all();
}

void DaemonLink::read_socket() {
  if (over_) return;
  Status status = daemon_.connection->receive();
  daemon_.connection->take_descriptors();  // no later message brings descriptors
  for (auto& messages = daemon_.connection->messages(); !messages.empty(); messages.pop_front()) {
    on_message(messages.front());
  }
  if (status.is_ok()) return;
  drain_completions();
  if (is_leaving_) {
    status = {Code::kShutDown, "Rueda has been shut down"};
  } else if (status.code() == Code::kDaemonLost) {
    status = {Code::kDaemonLost,
              "the node's Rueda daemon at \"" + config_.socket_path +
                  "\" died or dropped this process (" + status.message() +
                  "); inputs that are not outputs are intact; restart the daemon and the job, and "
                  "see the daemon's log"};
  }
  end(std::move(status));
}

void DaemonLink::on_message(const Message& message) {
  if (message.type == RUEDA_ABI_NONFINITE) return on_nonfinite(message);
  if (message.type == RUEDA_ABI_HOSTS_CHANGED) hosts_changed_ = true;
  if (message.type != RUEDA_ABI_REPLY && message.type != RUEDA_ABI_FAILED) return;
  rueda_abi_status status;
  if (message.body.size() != sizeof(status)) {
    end({Code::kInternal,
         "the daemon sent a message of the wrong length; install the same "
         "release of daemon and librueda"});
    return;
  }
  std::memcpy(&status, message.body.data(), sizeof(status));
  if (message.type == RUEDA_ABI_FAILED) {
    drain_completions();  // operations that were completed before the failure count as done
    end({code_from_wire(status.code),
         std::string(status.text, ::strnlen(status.text, sizeof(status.text)))});
    return;
  }
  if (pending_replies_.empty()) return;
  pending_replies_.front()->reply = status;
  pending_replies_.front()->is_answered = true;
  pending_replies_.pop_front();
}

void DaemonLink::on_nonfinite(const Message& message) {
  rueda_abi_nonfinite told;
  if (message.body.size() != sizeof(told)) return;
  std::memcpy(&told, message.body.data(), sizeof(told));
  told.tensor[sizeof(told.tensor) - 1] = '\0';
  told.text[sizeof(told.text) - 1] = '\0';
  is_nonfinite_known_ = true;
  if (told.is_found == 0) return;
  std::fprintf(stderr, "rueda: rank %d: not finite: %s\n", daemon_.place.rank, told.text);
  if (!first_nonfinite_) first_nonfinite_ = told;
}

void DaemonLink::ask_nonfinite(MutexLock& lock) {
  if ((daemon_.place.flags & RUEDA_ABI_STARTED_CHECKS_FINITE) == 0 || over_) return;
  is_nonfinite_known_ = false;
  if (!daemon_.connection->send(RUEDA_ABI_ASK_NONFINITE, nullptr, 0).is_ok()) return;
  wait_until(
      lock, [this]() RUEDA_REQUIRES(session_mutex) { return is_nonfinite_known_ || over_; },
      steady_now_ms() + kNonfiniteTimeoutMs);
}

std::optional<rueda_abi_nonfinite> DaemonLink::first_nonfinite() {
  const MutexLock lock(mutex());
  read_socket();
  return first_nonfinite_;
}

Result<bool> DaemonLink::hosts_changed() {
  const MutexLock lock(mutex());
  read_socket();
  if (over_) return *over_;
  return hosts_changed_;
}

void DaemonLink::end(Status reason) {
  if (over_) return;
  // A code of 0 would read as success.
  if (reason.is_ok()) reason = {Code::kInternal, "the daemon ended the job without a reason"};
  over_ = std::move(reason);
  host_.on_over(*over_);
  pending_replies_.clear();
  wake_waiters();
}

Result<uint32_t> DaemonLink::request(uint16_t type, const void* body, size_t body_bytes,
                                     int descriptor, TicksMs timeout_ms) {
  MutexLock lock(mutex());
  if (over_) return *over_;
  if (Status sent = daemon_.connection->send(type, body, body_bytes, descriptor); !sent.is_ok()) {
    read_socket();  // the daemon's message may give the reason
    end(sent);
    return *over_;
  }
  PendingReply pending;
  pending_replies_.push_back(&pending);
  bool is_reached = wait_until(
      lock, [&]() RUEDA_REQUIRES(session_mutex) { return pending.is_answered || over_; },
      steady_now_ms() + timeout_ms);
  if (!is_reached) {
    // Answers come in order: after a missing answer the later ones cannot be told apart.
    end({Code::kDaemonLost, "the node's Rueda daemon at \"" + config_.socket_path +
                                "\" did not answer for " + std::to_string(timeout_ms / 1000) +
                                " s; see its log, and restart it"});
    daemon_.connection->shut_down();
  }
  if (!pending.is_answered) return *over_;
  const rueda_abi_status& reply = pending.reply;
  if (reply.code == 0) return reply.value;
  return Status{code_from_wire(reply.code),
                std::string(reply.text, ::strnlen(reply.text, sizeof(reply.text)))};
}

void DaemonLink::leave(MutexLock& lock, int64_t timeout_ms) {
  ask_nonfinite(lock);
  const uint16_t type = config_.is_elastic ? RUEDA_ABI_RESET : RUEDA_ABI_DETACH;
  if (over_) {
    // Nobody answers for a job that is over. But the daemon must not take this process for dead,
    // which may take part in the next generation.
    (void)daemon_.connection->send(type, nullptr, 0);
    return;
  }
  PendingReply goodbye;
  if (!daemon_.connection->send(type, nullptr, 0).is_ok()) return;
  is_leaving_ = true;
  pending_replies_.push_back(&goodbye);
  wait_until(
      lock, [&]() RUEDA_REQUIRES(session_mutex) { return goodbye.is_answered || over_; },
      steady_now_ms() + timeout_ms);
  std::erase(pending_replies_, &goodbye);
  end({Code::kShutDown, "Rueda has been shut down"});
}

void DaemonLink::close_in_child() {
  daemon_.connection->close_in_child();
  ::close(daemon_.daemon_doorbell.get());
  ::close(daemon_.client_doorbell.get());
  ::close(daemon_.wakeup.get());
}

}  // namespace rueda::client
