#include "agent/rendezvous/rendezvous_gate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/mutex.h"

namespace rueda::agent {
namespace {

constexpr int kAcceptRetryMs = 200;

std::string numeric_host(const sockaddr_storage& address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  const std::string host = text.data();
  constexpr std::string_view kMapped = "::ffff:";
  return host.starts_with(kMapped) && host.find('.') != std::string::npos
             ? host.substr(kMapped.size())
             : host;
}

Status in_use(int port) {
  return Status(Code::kUnavailable, "cannot listen at the rendezvous port " + std::to_string(port) +
                                        ": it is in use; end what uses it, or give all nodes "
                                        "another --rdzv-endpoint");
}

// Returns a socket that listens at a numeric host, or -1 with errno.
UniqueFd listen_at(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return UniqueFd();
  }
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  bool listens = fd.get() >= 0;
  if (listens) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (found->ai_family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    listens = ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
              ::listen(fd.get(), SOMAXCONN) == 0;
  }
  const int error = errno;
  ::freeaddrinfo(found);
  if (!listens) fd.reset();
  errno = error;
  return fd;
}

}  // namespace

Result<std::unique_ptr<RendezvousGate>> RendezvousGate::open(const HostPort& endpoint) {
  std::vector<HostPort> places;  // where to listen; `nearby` has where this machine then connects
  std::vector<std::string> nearby;
  const auto add = [&](const std::string& host, const std::string& own) {
    places.push_back({host, endpoint.port});
    nearby.push_back(own);
  };
  if (is_loopback(endpoint.host)) {
    const std::string host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host;
    add(host, host);
  } else {
    if (is_numeric_host(endpoint.host)) add(endpoint.host, endpoint.host);
    add("::", "127.0.0.1");
    add("0.0.0.0", "127.0.0.1");
  }
  std::string why;
  for (size_t i = 0; i < places.size(); ++i) {
    UniqueFd fd = listen_at(places[i].host, places[i].port);
    if (fd.get() >= 0) {
      std::unique_ptr<RendezvousGate> gate(new RendezvousGate(std::move(fd)));
      gate->local_endpoint_ = {nearby[i], endpoint.port};
      gate->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
      return gate;
    }
    if (errno == EADDRINUSE) return in_use(endpoint.port);
    why = std::strerror(errno);
  }
  return Status(Code::kUnavailable, "cannot listen at the rendezvous " +
                                        join_host_port(endpoint.host, endpoint.port) + ": " + why);
}

RendezvousGate::~RendezvousGate() { stop(); }

void RendezvousGate::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void RendezvousGate::start(std::function<void(int fd)> take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { serve(); });
}

void RendezvousGate::serve() {
  bool may_accept = true;
  for (;;) {
    std::vector<pollfd> waits{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                              {.fd = listener_.get(),
                               .events = static_cast<short>(may_accept ? POLLIN : 0),
                               .revents = 0}};
    std::vector<int> keys;
    int due_ms = may_accept ? -1 : kAcceptRetryMs;
    {
      const MutexLock lock(mutex_);
      for (const auto& [fd, stranger] : strangers_) {
        keys.push_back(fd);
        waits.push_back({.fd = stranger.fd.get(), .events = 0, .revents = 0});
      }
      const int stranger_ms = next_due_ms();
      if (stranger_ms >= 0) due_ms = due_ms < 0 ? stranger_ms : std::min(due_ms, stranger_ms);
    }
    ::poll(waits.data(), waits.size(), due_ms);
    if (waits[0].revents != 0) return;
    {
      const MutexLock lock(mutex_);
      for (size_t i = 0; i < keys.size(); ++i) {
        if (waits[i + 2].revents != 0) strangers_.erase(keys[i]);  // the stranger has hung up
      }
      const TicksMs now = steady_now_ms();
      std::vector<int> overdue;
      for (const auto& [fd, stranger] : strangers_) {
        if (now - stranger.since_ms >= kStrangerMs) overdue.push_back(fd);
      }
      for (const int fd : overdue) send_away(fd);
    }
    may_accept = true;
    if ((waits[1].revents & POLLIN) == 0) continue;
    int fd = -1;
    while ((fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
      admit(fd);
    }
    // The process has no descriptor or memory left: to try again at once would spin.
    may_accept = errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
  }
}

void RendezvousGate::admit(int fd) {
  sockaddr_storage from{};
  sockaddr_storage to{};
  socklen_t from_bytes = sizeof(from);
  socklen_t to_bytes = sizeof(to);
  Stranger stranger{UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)), steady_now_ms()};
  const bool is_known = stranger.fd.get() >= 0 &&
                        ::getpeername(fd, reinterpret_cast<sockaddr*>(&from), &from_bytes) == 0 &&
                        ::getsockname(fd, reinterpret_cast<sockaddr*>(&to), &to_bytes) == 0;
  if (!is_known) {
    ::close(fd);
    return;
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  {
    const MutexLock lock(mutex_);
    if (strangers_.size() >= kMaxRendezvousStrangers) {
      const auto oldest = std::min_element(
          strangers_.begin(), strangers_.end(),
          [](const auto& a, const auto& b) { return a.second.since_ms < b.second.since_ms; });
      send_away(oldest->first);
    }
    // The stranger that had this descriptor's number before has hung up.
    strangers_[fd] = std::move(stranger);
    visitors_[fd] = {numeric_host(from, from_bytes), numeric_host(to, to_bytes)};
  }
  take_(fd);
}

// Shuts the connection down; gRPC, which owns the descriptor, sees that as the end of the other
// side.
void RendezvousGate::send_away(int fd) {
  ::shutdown(strangers_.at(fd).fd.get(), SHUT_RDWR);
  strangers_.erase(fd);
}

int RendezvousGate::next_due_ms() const {
  if (strangers_.empty()) return -1;
  TicksMs due = steady_now_ms() + kStrangerMs;
  for (const auto& [fd, stranger] : strangers_)
    due = std::min(due, stranger.since_ms + kStrangerMs);
  return static_cast<int>(std::max<TicksMs>(due - steady_now_ms(), 0)) + 1;
}

std::optional<RendezvousGate::Visitor> RendezvousGate::visitor(const std::string& peer) const {
  if (!peer.starts_with("fd:")) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto found = visitors_.find(std::atoi(peer.c_str() + 3));
  return found == visitors_.end() ? std::nullopt : std::optional(found->second);
}

void RendezvousGate::let_stay(const std::string& peer) {
  if (!peer.starts_with("fd:")) return;
  const MutexLock lock(mutex_);
  strangers_.erase(std::atoi(peer.c_str() + 3));
}

}  // namespace rueda::agent
