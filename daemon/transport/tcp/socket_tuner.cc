#include "daemon/transport/tcp/socket_tuner.h"

#include <cerrno>
#include <system_error>

#include <boost/asio/ip/udp.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rueda::transport::tcp {

namespace {

constexpr const char* kSameHostCongestion = "reno";
// The socket buffers of peers on this host: smaller ones cost more wake-ups, larger ones fall out
// of the cache. For other peers the kernel's own tuning follows the length of the path.
constexpr int kSocketBufferBytes = 1 << 20;

bool set_congestion(int descriptor, const std::string& name) {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string last_error() { return std::generic_category().message(errno); }

// A daemon that starts other programs must not hand its connections down to them.
void set_close_on_exec(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

void set_buffers(int descriptor) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    ::setsockopt(descriptor, SOL_SOCKET, option, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  }
}

void set_no_delay(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

bool is_same_host(const Endpoint& peer) {
  if (peer.address().is_loopback()) return true;
  // Connecting a datagram socket asks for the route alone: a local address is reached from itself.
  asio::io_context unused;
  asio::ip::udp::socket probe(unused);
  error_code error;
  const asio::ip::udp::endpoint target(peer.address(), peer.port());
  probe.open(target.protocol(), error);
  if (!error) probe.connect(target, error);
  if (error) return false;
  const auto local = probe.local_endpoint(error);
  return !error && local.address() == peer.address();
}

Status SocketTuner::is_viable() const {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    return {Code::kResourceExhausted, "cannot make a TCP socket: " + last_error()};
  }
  Status status;
  const bool named = congestion_ != "auto" && congestion_ != "system";
  if (named && !set_congestion(descriptor, congestion_)) {
    status =
        Status(Code::kInvalidArgument,
               "TCP congestion control \"" + congestion_ + "\" cannot be used: " + last_error() +
                   "; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists what can");
  }
  ::close(descriptor);
  return status;
}

void SocketTuner::tune_connecting(Socket& socket, const Endpoint& peer) {
  tune(socket.native_handle(), is_same_host(peer));
}

void SocketTuner::tune_listener(Acceptor& acceptor, const Endpoint& local) {
  const int descriptor = acceptor.native_handle();
  set_close_on_exec(descriptor);
  choose_congestion(descriptor, local.address().is_loopback());
}

void SocketTuner::tune_accepted(Socket& socket) {
  error_code error;
  const Endpoint peer = socket.remote_endpoint(error);
  const Endpoint local = error ? Endpoint() : socket.local_endpoint(error);
  tune(socket.native_handle(),
       !error && (peer.address().is_loopback() || peer.address() == local.address()));
}

void SocketTuner::tune(int descriptor, bool same_host) {
  set_close_on_exec(descriptor);
  set_no_delay(descriptor);
  if (same_host) set_buffers(descriptor);
  choose_congestion(descriptor, same_host);
}

void SocketTuner::choose_congestion(int descriptor, bool same_host) {
  if (congestion_ == "system") return;
  const bool is_auto = congestion_ == "auto";
  if (is_auto && !same_host) return;
  const std::string name = is_auto ? kSameHostCongestion : congestion_;
  const bool done = set_congestion(descriptor, name);
  if (has_logged_) return;
  has_logged_ = true;
  const char* const peers = is_auto ? "peers on this host" : "all peers";
  if (done) {
    spdlog::info("tcp: congestion control {} for {}", name, peers);
  } else {
    spdlog::info("tcp: congestion control {} for {} is not allowed ({}), the system's stays", name,
                 peers, last_error());
  }
}

}  // namespace rueda::transport::tcp
