// The session server accepts connections, finds out which protocol they speak, and keeps the
// sessions.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/limits.h"
#include "daemon/base/os/groups.h"
#include "daemon/base/strangers/token_bucket.h"
#include "daemon/session/memory/kept_arenas.h"
#include "daemon/session/memory/sigbus_guard.h"
#include "daemon/session/server/arena_lease.h"
#include "daemon/session/server/greeting.h"
#include "daemon/session/server/listener.h"
#include "daemon/session/server/relay.h"
#include "daemon/session/server/session_impl.h"

namespace rueda::session {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Wait = asio::posix::stream_descriptor::wait_type;

constexpr int kAcceptsPerTurn = 64;
// The most connections that have not attached yet.
constexpr size_t kMaxPending = limits::kMaxSessions;
constexpr std::chrono::microseconds kAcceptRetryInterval{100'000};
// So many connections, and so many a second, are taken as they come. Where they come faster, those
// of this pause are taken together, because each waking of the loop costs the jobs beside it more
// than what a connection needs (bench/fairness.py).
constexpr double kArrivals = 1024;
constexpr double kArrivalsASecond = 50;
constexpr std::chrono::microseconds kPause{50'000};
constexpr std::chrono::milliseconds kRejectionLogInterval{1000};

bool has_gone(int connection) {
  pollfd one{connection, 0, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
}

class Server final : public SessionOwner, public std::enable_shared_from_this<Server> {
 public:
  Server(asio::io_context& loop, ServerOptions options, SessionEvents& events, CallHandoff handoff)
      : loop_(loop),
        options_(std::move(options)),
        events_(events),
        handoff_(std::move(handoff)),
        lost_memory_(loop),
        log_pause_(loop),
        turns_(loop, kRecordsPerTurn, kLongestTurn) {
    for (const SocketPlace& place : options_.sockets) entrances_.emplace_back(loop, place);
  }

  Status listen();
  ServerStats stats() const;
  void stop();

  Status check_room() const override;
  void on_rejected(const Credentials& peer, const Status& why) override;
  void on_closed(SessionImpl& session) override;
  bool keeps_watch(SessionImpl& session) override;
  void keep(ForeignSocket connection, const Credentials& peer,
            const std::vector<std::shared_ptr<Arena>>& arenas) override;

  void watch() { is_watching_ = true; }
  bool look();
  void rest();

 private:
  // A socket that is listened on.
  struct Entrance {
    Entrance(asio::io_context& loop, SocketPlace listened)
        : place(std::move(listened)), acceptor(loop), retry(loop) {}
    const SocketPlace place;
    std::optional<ListeningSocket> listener;
    asio::posix::stream_descriptor acceptor;
    asio::steady_timer retry;
  };

  Status listen_at(Entrance& entrance);
  void wait_acceptable(Entrance& entrance);
  void accept_some(Entrance& entrance);
  void accept_later(Entrance& entrance, std::chrono::microseconds after);
  void greet(UniqueFd connection, const SocketPlace& at);
  // The charges for a connection and for its wait to attach. take() returns them, or the error that
  // says why the connection is not taken.
  struct Taken {
    std::shared_ptr<void> until_closed;
    Charge waiting;
  };
  Result<Taken> take(const Credentials& peer);
  void on_decided(Greeting& greeting, Greeting::Protocol protocol, ForeignSocket connection);
  void hand_to_calls(ForeignSocket connection, const Credentials& peer);
  void wait_lost_memory();
  void pause_log();
  size_t attached() const;

  asio::io_context& loop_;
  const ServerOptions options_;
  SessionEvents& events_;
  CallHandoff handoff_;
  std::list<Entrance> entrances_;  // Filled by the constructor.
  TokenBucket arrivals_{kArrivals, kArrivalsASecond};
  asio::posix::stream_descriptor lost_memory_;
  struct Greeted {
    std::shared_ptr<Greeting> greeting;
    Charge waiting;
  };
  std::map<Greeting*, Greeted> greetings_;
  std::map<Relay*, std::shared_ptr<Relay>> relays_;
  std::map<SessionImpl*, std::shared_ptr<SessionImpl>> sessions_;
  bool is_watching_ = false;
  // An entry is null if the session has closed meanwhile.
  std::vector<std::shared_ptr<SessionImpl>> watched_;
  std::shared_ptr<ArenaTotals> arena_totals_ = std::make_shared<ArenaTotals>();
  std::shared_ptr<KeptArenas> kept_arenas_ = std::make_shared<KeptArenas>();
  std::map<ArenaLease*, std::shared_ptr<ArenaLease>> leases_;
  std::shared_ptr<uint64_t> last_content_ = std::make_shared<uint64_t>(0);
  std::shared_ptr<LoopGate> gate_ = std::make_shared<LoopGate>(loop_);
  uint64_t rejected_ = 0;
  asio::steady_timer log_pause_;
  bool is_log_paused_ = false;
  uint64_t unlogged_ = 0;
  Turns turns_;
};

Status Server::listen() {
  if (!std::has_single_bit(options_.ring_capacity) || options_.ring_capacity > (1u << 20)) {
    return Status(Code::kInvalidArgument, "a ring of " + std::to_string(options_.ring_capacity) +
                                              " records is not possible: use a power of two up to "
                                              "1048576");
  }
  if (Status status = install_sigbus_guard(); !status.is_ok()) return status;
  for (Entrance& entrance : entrances_) {
    if (Status status = listen_at(entrance); !status.is_ok()) return status;
  }
  int lost = ::fcntl(sigbus_event_fd(), F_DUPFD_CLOEXEC, 0);
  if (lost < 0) {
    return Status(Code::kResourceExhausted,
                  "no descriptor is left for the session server: raise the limit of open files");
  }
  lost_memory_.assign(lost);
  wait_lost_memory();
  for (Entrance& entrance : entrances_) wait_acceptable(entrance);
  return Status::ok();
}

Status Server::listen_at(Entrance& entrance) {
  Result<ListeningSocket> listener =
      ListeningSocket::open(entrance.place.path, options_.refuses_early_descriptors);
  if (!listener.is_ok()) return listener.status();
  entrance.listener.emplace(std::move(listener).value());
  entrance.acceptor.assign(entrance.listener->release_fd());
  return Status::ok();
}

void Server::stop() {
  error_code ignored;
  gate_->close();
  for (Entrance& entrance : entrances_) {
    // A listener is closed at a door: that also closes the connections that were not accepted, with
    // the descriptors that came over them.
    if (entrance.acceptor.is_open()) {
      ForeignFd(UniqueFd(entrance.acceptor.release()), principal_at(entrance.place, ::getuid()));
    }
    entrance.retry.cancel();
    entrance.listener.reset();
  }
  lost_memory_.close(ignored);
  log_pause_.cancel();
  for (auto& [key, greeted] : std::exchange(greetings_, {})) greeted.greeting->cancel();
  for (auto& [key, relay] : std::exchange(relays_, {})) relay->close();
  for (auto& [key, lease] : std::exchange(leases_, {})) lease->close();
  // Each close() takes its session out of the map.
  while (!sessions_.empty()) {
    std::shared_ptr<SessionImpl> session = sessions_.begin()->second;
    session->close();
  }
}

// --- Accepting.

void Server::wait_acceptable(Entrance& entrance) {
  entrance.acceptor.async_wait(Wait::wait_read,
                               [self = shared_from_this(), &entrance](error_code error) {
                                 if (!error) self->accept_some(entrance);
                               });
}

void Server::accept_some(Entrance& entrance) {
  asio::posix::stream_descriptor& acceptor = entrance.acceptor;
  bool comes_fast = false;
  for (int i = 0; i < kAcceptsPerTurn && acceptor.is_open(); ++i) {
    UniqueFd connection(
        ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.is_open()) {
      comes_fast = !arrivals_.take(steady_now_us());
      greet(std::move(connection), entrance.place);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // The daemon is out of descriptors or memory. The connection stays in the backlog and keeps the
    // listener readable, so accepting pauses.
    spdlog::warn("cannot accept a connection on {}: {}; raise the limit of open files",
                 entrance.place.path, std::strerror(errno));
    return accept_later(entrance, kAcceptRetryInterval);
  }
  if (!acceptor.is_open()) return;
  comes_fast ? accept_later(entrance, kPause) : wait_acceptable(entrance);
}

void Server::accept_later(Entrance& entrance, std::chrono::microseconds after) {
  entrance.retry.expires_after(after);
  entrance.retry.async_wait([self = shared_from_this(), &entrance](error_code error) {
    if (!error && entrance.acceptor.is_open()) self->accept_some(entrance);
  });
}

void Server::greet(UniqueFd accepted, const SocketPlace& at) {
  ucred found{};
  socklen_t found_bytes = sizeof(found);
  // Descriptors that the connection brings are not received here, but whoever closes the connection
  // also closes them, and may sleep.
  const bool is_known =
      ::getsockopt(accepted.get(), SOL_SOCKET, SO_PEERCRED, &found, &found_bytes) == 0;
  const Credentials peer{found.pid, found.uid, found.gid, principal_at(at, found.uid)};
  // Whoever has gone meanwhile takes nothing of what his user may have.
  if (is_known && has_gone(accepted.get()) && !Doors::of_process().is_refused(peer.principal)) {
    const ForeignFd closed(std::move(accepted), peer.principal);
    return;
  }
  Result<Taken> taken = take(peer);
  auto connection = std::make_shared<ForeignFd>(
      std::move(accepted), peer.principal,
      taken.is_ok() ? std::move(taken.value().until_closed) : std::shared_ptr<void>());
  if (!is_known || !taken.is_ok()) ::shutdown(connection->get(), SHUT_RDWR);
  if (!is_known) return;
  if (!taken.is_ok()) return on_rejected(peer, taken.status());
  auto greeting = std::make_shared<Greeting>(
      loop_, std::move(connection), peer,
      [self = shared_from_this()](Greeting& decided, Greeting::Protocol protocol,
                                  ForeignSocket socket) {
        self->on_decided(decided, protocol, std::move(socket));
      });
  greetings_.emplace(greeting.get(), Greeted{greeting, std::move(taken.value().waiting)});
  greeting->start(options_.handshake_timeout_ms);
}

Result<Server::Taken> Server::take(const Credentials& peer) {
  if (Doors::of_process().is_refused(peer.principal)) {
    return Status(Code::kResourceExhausted,
                  "descriptors that " + peer.principal.to_string() +
                      " has sent keep whoever closes them waiting: close their other ends");
  }
  if (greetings_.size() + sessions_.size() - attached() >= kMaxPending) {
    return Status(Code::kResourceExhausted,
                  std::to_string(kMaxPending) +
                      " connections of all users wait to attach, which is the limit of a daemon: "
                      "attach at once, or close");
  }
  const Account account{options_.ledger, peer.principal};
  Result<Charge> open = charge(account, Resource::kConnections, 1);
  if (!open.is_ok()) return open.status();
  Result<Charge> waiting = charge(account, Resource::kUnattached, 1);
  if (!waiting.is_ok()) return waiting.status();
  return Taken{std::make_shared<Charge>(std::move(open).value()), std::move(waiting).value()};
}

void Server::on_decided(Greeting& greeting, Greeting::Protocol protocol, ForeignSocket connection) {
  Credentials peer = greeting.peer();
  Charge waiting = std::move(greetings_.at(&greeting).waiting);
  greetings_.erase(&greeting);
  switch (protocol) {
    case Greeting::Protocol::kCalls: return hand_to_calls(std::move(connection), peer);
    case Greeting::Protocol::kHttp2:
      ::shutdown(connection->get(), SHUT_RDWR);
      return on_rejected(peer, Status(Code::kVersion,
                                      "it speaks gRPC, which the unix socket has no more: use "
                                      "ruedarun and ruedactl of this daemon's version "
                                      "(" RUEDA_VERSION
                                      "), /healthz of the HTTP port, or gRPC at the control port"));
    case Greeting::Protocol::kUnknown:
      ::shutdown(connection->get(), SHUT_RDWR);
      return on_rejected(
          peer, Status(Code::kInvalidArgument, "it speaks none of Rueda's local protocols"));
    case Greeting::Protocol::kSilent:
      ::shutdown(connection->get(), SHUT_RDWR);
      return on_rejected(peer, Status(Code::kTimeout, "it said nothing"));
    case Greeting::Protocol::kGone: return;
    case Greeting::Protocol::kLocal: break;
  }
  auto session = std::make_shared<SessionImpl>(
      SessionSetup{loop_, events_, *this, options_, arena_totals_, kept_arenas_, last_content_,
                   gate_, turns_.party(peer.principal.label())},
      std::move(connection), peer, std::move(waiting));
  sessions_.emplace(session.get(), session);
  session->start();
}

void Server::hand_to_calls(ForeignSocket connection, const Credentials& peer) {
  if (!handoff_) return on_rejected(peer, Status(Code::kUnavailable, "calls are not served here"));
  const std::vector<gid_t> groups = groups_behind(connection->get());
  auto relay =
      std::make_shared<Relay>(loop_, std::move(connection), peer,
                              [self = shared_from_this()](Relay& ended, const Status& why) {
                                if (!why.is_ok()) self->on_rejected(ended.peer(), why);
                                self->relays_.erase(&ended);
                              });
  UniqueFd served = relay->start();
  if (!served.is_open()) {
    return on_rejected(peer, Status(Code::kResourceExhausted,
                                    "no descriptor is left: raise the limit of open files"));
  }
  relays_.emplace(relay.get(), relay);
  handoff_(std::move(served), peer, groups);
}

size_t Server::attached() const {
  return std::count_if(sessions_.begin(), sessions_.end(),
                       [](const auto& entry) { return entry.second->is_attached(); });
}

Status Server::check_room() const {
  if (attached() < limits::kMaxSessions) return Status::ok();
  return Status(Code::kResourceExhausted,
                "this daemon serves " + std::to_string(limits::kMaxSessions) +
                    " training processes of all users already, which is the limit: end a "
                    "job first");
}

// --- Rings that are watched.

bool Server::keeps_watch(SessionImpl& session) {
  if (is_watching_) watched_.push_back(sessions_.at(&session));
  return is_watching_;
}

bool Server::look() {
  bool has_found = false;
  // The loop goes by index and ends at the present size: the work may close any of the sessions, or
  // add one.
  for (size_t i = 0, count = watched_.size(); i < count; ++i) {
    const std::shared_ptr<SessionImpl> session = watched_[i];
    if (session != nullptr) has_found |= session->look_at_ring();
  }
  return has_found;
}

void Server::rest() {
  is_watching_ = false;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (const std::shared_ptr<SessionImpl> session = watched_[i]) session->rest();
  }
  watched_.clear();
}

void Server::on_closed(SessionImpl& session) {
  const auto found = sessions_.find(&session);
  if (found == sessions_.end()) return;
  std::replace(watched_.begin(), watched_.end(), found->second, {});
  sessions_.erase(found);
}

void Server::keep(ForeignSocket connection, const Credentials& peer,
                  const std::vector<std::shared_ptr<Arena>>& arenas) {
  auto lease = std::make_shared<ArenaLease>(
      loop_, std::move(connection), peer, kept_arenas_,
      [self = shared_from_this()](ArenaLease& ended) { self->leases_.erase(&ended); });
  leases_.emplace(lease.get(), lease);
  lease->start(arenas);
}

// --- Watching.

void Server::on_rejected(const Credentials& peer, const Status& why) {
  ++rejected_;
  if (is_log_paused_) {
    ++unlogged_;
    return;
  }
  spdlog::warn("rejected pid {} (uid {}) of {}: {}", peer.pid, peer.uid, peer.principal.to_string(),
               why.message());
  pause_log();
}

void Server::pause_log() {
  is_log_paused_ = true;
  log_pause_.expires_after(kRejectionLogInterval);
  log_pause_.async_wait([self = shared_from_this()](error_code error) {
    self->is_log_paused_ = false;
    uint64_t unlogged = std::exchange(self->unlogged_, 0);
    if (error || unlogged == 0) return;
    spdlog::warn("rejected {} more connections", unlogged);
    self->pause_log();
  });
}

void Server::wait_lost_memory() {
  lost_memory_.async_wait(Wait::wait_read, [self = shared_from_this()](error_code error) {
    if (error || !self->lost_memory_.is_open()) return;
    uint64_t ranges = 0;
    // The read cannot block: the eventfd is nonblocking, and no other process has it.
    [[maybe_unused]] ssize_t got =
        ::read(self->lost_memory_.native_handle(), &ranges, sizeof(ranges));
    for (auto& [key, session] : self->sessions_) session->check_memory();
    self->wait_lost_memory();
  });
}

ServerStats Server::stats() const {
  ServerStats stats;
  stats.sessions = attached();
  stats.rejected = rejected_;
  stats.abandoned_doors = Doors::of_process().abandoned();
  stats.arenas = arena_totals_->arenas.load(std::memory_order_relaxed);
  stats.arena_bytes = arena_totals_->bytes.load(std::memory_order_relaxed);
  for (const auto& [key, session] : sessions_) {
    stats.submission_queue_depth += session->submissions_in_flight();
  }
  return stats;
}

// Handlers that are still queued hold the server; destroying this handle stops it.
class ServerHandle final : public SessionServer {
 public:
  explicit ServerHandle(std::shared_ptr<Server> server) : server_(std::move(server)) {}
  ~ServerHandle() override { server_->stop(); }

  Status listen() override { return server_->listen(); }
  ServerStats stats() const override { return server_->stats(); }
  void stop() override { server_->stop(); }
  void watch() override { server_->watch(); }
  bool look() override { return server_->look(); }
  void rest() override { server_->rest(); }

 private:
  std::shared_ptr<Server> server_;
};

}  // namespace

std::unique_ptr<SessionServer> SessionServer::create(asio::io_context& loop, ServerOptions options,
                                                     SessionEvents& events,
                                                     CallHandoff call_handoff) {
  return std::make_unique<ServerHandle>(
      std::make_shared<Server>(loop, std::move(options), events, std::move(call_handoff)));
}

}  // namespace rueda::session
