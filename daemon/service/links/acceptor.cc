#include "daemon/service/links/acceptor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/rpc/peer_name.h"

namespace rueda::service {
namespace {

// Whoever waits here behind strangers waits for all of them.
constexpr int kBacklog = 1024;
constexpr uint64_t kStopId = 0;
constexpr uint64_t kListenerId = 1;
// So many connections are accepted before other descriptors get their turn.
constexpr int kAtOnce = 64;
// The shortest pause of a listener: what has come meanwhile is accepted at once.
constexpr std::chrono::milliseconds kLeastPause{10};

struct Address {
  std::array<uint8_t, 16> bytes{};
  bool is_v6 = false;
  uint16_t port = 0;
};

std::optional<Address> address_of(const sockaddr_storage& from) {
  Address to;
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    std::memcpy(to.bytes.data(), &v4.sin_addr, 4);
    to.port = ntohs(v4.sin_port);
    return to;
  }
  if (from.ss_family != AF_INET6) return std::nullopt;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  to.port = ntohs(v6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(to.bytes.data(), v6.sin6_addr.s6_addr + 12, 4);
  } else {
    to.is_v6 = true;
    std::memcpy(to.bytes.data(), &v6.sin6_addr, 16);
  }
  return to;
}

// Reads gRPC's name of a peer: "ipv4:10.0.0.1:4711" or "ipv6:%5Bfe80::1%25eth0%5D:4711".
std::optional<Address> address_of(const std::string& peer) {
  const bool is_v6 = peer.starts_with("ipv6:");
  if (!is_v6 && !peer.starts_with("ipv4:")) return std::nullopt;
  std::string text = rpc::percent_decoded(peer.substr(5));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Address to;
  to.port = static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
  text.resize(colon);
  std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
  text.resize(std::min(text.size(), text.find('%')));  // This drops the network interface.
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, text.c_str(), to.bytes.data()) != 1) {
    return std::nullopt;
  }
  to.is_v6 = is_v6;
  return to;
}

// Names the machine of an address. A whole /64 network of IPv6 counts as one machine, which may
// have all its addresses.
std::string name_of_machine(const Address& address) {
  return {reinterpret_cast<const char*>(address.bytes.data()), size_t{address.is_v6 ? 8u : 4u}};
}

std::string name_of_peer(const Address& address) {
  return std::string(address.bytes.begin(), address.bytes.end()) + std::to_string(address.port);
}

int64_t bytes_received(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

void watch_for(int epoll, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  (void)::epoll_ctl(epoll, operation, fd, &event);
}

// Returns whether the peer has closed the connection.
bool has_gone(int socket) {
  pollfd one{socket, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) == 1;
}

bool is_exhausted(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Status cannot_listen(const std::string& host, uint16_t port, const std::string& why) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return {Code::kUnavailable, "cannot listen on control address " +
                                  (is_v6 ? '[' + host + ']' : host) + ':' + std::to_string(port) +
                                  ": " + why};
}

}  // namespace

AcceptorLimits acceptor_limits() {
  AcceptorLimits limits;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    // Each stranger takes two descriptors.
    limits.strangers = std::clamp<size_t>(descriptors.rlim_cur / 16, 8, limits.strangers);
    limits.waiting = std::clamp<size_t>(descriptors.rlim_cur / 32, 8, limits.waiting);
  }
  return limits;
}

std::string machine_of(const std::string& peer) {
  const std::optional<Address> address = address_of(peer);
  return address ? name_of_machine(*address) : peer;
}

Result<Listener> listen_on(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  if (error != 0) {
    return cannot_listen(host, port,
                         std::string(::gai_strerror(error)) +
                             "; give an address of this machine with --listen-host");
  }
  UniqueFd socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const int on = 1;
  const int off = 0;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (found->ai_family == AF_INET6) {
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int reason = errno;
    const bool is_taken = reason == EADDRINUSE;
    if (is_taken && port == 0) {
      return cannot_listen(host, port,
                           "no free port is left; see net.ipv4.ip_local_port_range, and what has "
                           "them all (ss -tan)");
    }
    return cannot_listen(
        host, port,
        is_taken ? "the port is taken by another program; choose another with --control-port"
                 : std::string(std::strerror(reason)) +
                       "; choose another address of this machine with --listen-host, or another "
                       "port with --control-port");
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  (void)::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  return Listener{std::move(socket), address_of(bound).value_or(Address{}).port};
}

Result<uint16_t> Acceptor::bind(const std::string& host, uint16_t port) {
  Result<Listener> listener = listen_on(host, port);
  return listener.is_ok() ? take(std::move(listener).value()) : listener.status();
}

Result<uint16_t> Acceptor::take(Listener listener) {
  listener_ = std::move(listener.socket);
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.is_open() || !stop_.is_open()) {
    return Status(Code::kUnavailable, errno_text("cannot accept connections", errno));
  }
  watch_for(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), EPOLLIN, kStopId);
  watch_for(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenerId);
  const MutexLock lock(mutex_);
  last_id_ = kListenerId;
  return listener.port;
}

void Acceptor::start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "rueda-accept");
    run();
  });
}

void Acceptor::stop() {
  if (thread_.joinable()) {
    (void)::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  listener_.reset();
  const MutexLock lock(mutex_);
  waiting_.clear();
  connections_.clear();
  by_peer_.clear();
  strangers_ = {};
}

void Acceptor::run() {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> listens_at;  // Nothing while the listener is watched.
  std::array<epoll_event, 64> events{};
  const auto accept = [&] {
    const auto pause = accept_all();
    if (pause.count() > 0) {
      // If the listener stayed in the set, the thread would be woken at once, again and again.
      if (!listens_at) watch_for(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), 0, kListenerId);
      listens_at = Clock::now() + pause;
    } else if (std::exchange(listens_at, std::nullopt)) {
      watch_for(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenerId);
    }
  };
  for (;;) {
    const auto left = [&] {
      return std::chrono::ceil<std::chrono::milliseconds>(*listens_at - Clock::now()).count();
    };
    const int wait_ms = listens_at ? static_cast<int>(std::max<int64_t>(0, left())) : -1;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kStopId) return;
      if (event.data.u64 == kListenerId) {
        accept();
      } else {
        look_at(event.data.u64, event.events);
      }
    }
    if (listens_at && left() <= 0) accept();
  }
}

std::chrono::milliseconds Acceptor::take_arrival() {
  const MutexLock lock(mutex_);
  const TicksUs now = steady_now_us();
  if (arrivals_.take(now)) return std::chrono::milliseconds(0);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::microseconds(arrivals_.wait_us(now)));
  // Strangers who turn out to be none make room earlier.
  return std::clamp(wait, kLeastPause, std::max(kLeastPause, limits_.retry));
}

std::chrono::milliseconds Acceptor::accept_all() {
  int error = 0;
  for (int i = 0; i < kAtOnce && error == 0; ++i) error = accept_one();
  while (waiting_.size() > 0) {
    if (const auto pause = take_arrival(); pause.count() > 0) return pause;
    Arrival next = *waiting_.pop();
    if (has_gone(next.socket.get())) {
      const MutexLock lock(mutex_);
      arrivals_.give_back();
    } else if (!let_in(std::move(next))) {
      return limits_.retry;
    }
  }
  return is_exhausted(error) ? limits_.retry : std::chrono::milliseconds(0);
}

int Acceptor::accept_one() {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  Arrival arrival;
  arrival.socket = UniqueFd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &size,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!arrival.socket.is_open()) return errno;
  const std::optional<Address> address = address_of(from);
  if (!address) return 0;
  arrival.peer = name_of_peer(*address);
  arrival.address = name_of_machine(*address);
  const std::string machine = arrival.address;
  (void)waiting_.push(machine, std::move(arrival));  // Whoever finds no place is closed.
  return 0;
}

bool Acceptor::let_in(Arrival arrival) {
  const int on = 1;
  (void)::setsockopt(arrival.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Connection connection(limits_);
  connection.socket = UniqueFd(::fcntl(arrival.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!connection.socket.is_open()) return false;
  connection.peer = std::move(arrival.peer);
  connection.address = std::move(arrival.address);
  {
    const MutexLock lock(mutex_);
    const uint64_t id = ++last_id_;
    // The peer uses a port again, and the end of its last connection has not been seen yet.
    if (const auto old = by_peer_.find(connection.peer); old != by_peer_.end()) {
      forget(old->second);
    }
    by_peer_[connection.peer] = id;
    Connection& kept = connections_.emplace(id, std::move(connection)).first->second;
    watch_for(epoll_.get(), EPOLL_CTL_ADD, kept.socket.get(), EPOLLIN | EPOLLET, id);
    become_stranger(id, kept);
  }
  take_(std::move(arrival.socket));
  return true;
}

void Acceptor::become_stranger(uint64_t id, Connection& connection) {
  connection.needed = false;
  connection.base_bytes = bytes_received(connection.socket.get());
  connection.since = std::chrono::steady_clock::now();
  connection.held_bytes = 0;
  strangers_.add(id, connection.address);
  while (strangers_.size() > limits_.strangers) throw_out(*strangers_.next_to_go());
}

void Acceptor::look_at(uint64_t id, uint32_t events) {
  const MutexLock lock(mutex_);
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return forget(id);
  Connection& connection = it->second;
  if (connection.needed) return;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - connection.since);
  const int64_t sent = bytes_received(connection.socket.get()) - connection.base_bytes;
  const int64_t held = std::max<int64_t>(0, sent - age.count() * limits_.bytes_a_second);
  held_bytes_ += held - std::exchange(connection.held_bytes, held);
  if (held > limits_.bytes) return throw_out(id);
  while (held_bytes_ > limits_.all_bytes) {
    const auto most = std::max_element(
        connections_.begin(), connections_.end(),
        [](const auto& a, const auto& b) { return a.second.held_bytes < b.second.held_bytes; });
    throw_out(most->first);
  }
}

void Acceptor::throw_out(uint64_t id) {
  (void)::shutdown(connections_.at(id).socket.get(), SHUT_RDWR);
  forget(id);
}

void Acceptor::forget(uint64_t id) {
  const auto it = connections_.find(id);
  held_bytes_ -= it->second.held_bytes;
  strangers_.remove(id);
  // Another connection may have the same name by now.
  const auto named = by_peer_.find(it->second.peer);
  if (named != by_peer_.end() && named->second == id) by_peer_.erase(named);
  // gRPC has the same connection open, so closing this descriptor does not take it out of the set.
  watch_for(epoll_.get(), EPOLL_CTL_DEL, it->second.socket.get(), 0, id);
  connections_.erase(it);
}

bool Acceptor::may_call(const std::string& peer, double units) {
  const std::optional<Address> address = address_of(peer);
  if (!address) return true;
  const MutexLock lock(mutex_);
  const auto named = by_peer_.find(name_of_peer(*address));
  if (named == by_peer_.end()) return true;
  Connection& connection = connections_.at(named->second);
  if (connection.needed || connection.calls.take(steady_now_us(), units)) return true;
  throw_out(named->second);
  return false;
}

void Acceptor::keep(const std::string& peer, bool needed) {
  const std::optional<Address> address = address_of(peer);
  if (!address) return;
  const MutexLock lock(mutex_);
  const auto named = by_peer_.find(name_of_peer(*address));
  if (named == by_peer_.end()) return;
  const uint64_t id = named->second;
  Connection& connection = connections_.at(id);
  if (connection.needed == needed) return;
  if (!needed) {
    watch_for(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), EPOLLIN | EPOLLET, id);
    return become_stranger(id, connection);
  }
  connection.needed = true;
  arrivals_.give_back();
  strangers_.remove(id);
  held_bytes_ -= std::exchange(connection.held_bytes, 0);
  // From here on only the end of the connection is of interest.
  watch_for(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), 0, id);
}

}  // namespace rueda::service
