#include "bench/limits.h"

#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/stats.h"

namespace rueda::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool failed(std::string* error, const char* what) {
  *error = std::string("loopback TCP: ") + what + ": " + std::strerror(errno);
  return false;
}

bool set_congestion(int fd, const std::string& name, std::string* error) {
  if (name.empty()) return true;
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return true;
  }
  return failed(error, ("congestion control " + name + " is not allowed here").c_str());
}

bool listen_on_loopback(int fd, sockaddr_in* address, std::string* error) {
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(address);
  socklen_t length = sizeof(*address);
  if (bind(fd, generic, length) != 0) return failed(error, "bind");
  if (listen(fd, 1) != 0) return failed(error, "listen");
  if (getsockname(fd, generic, &length) != 0) return failed(error, "getsockname");
  return true;
}

// Receives for `measured_s` after a start-up of the same connection, and returns bytes a second.
double receive_rate(int fd, std::vector<char>& buffer) {
  constexpr double kWarmup_s = 0.2;
  constexpr double kMeasured_s = 0.8;
  auto start = SteadyClock::now();
  bool warm = false;
  double bytes = 0;
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return 0;
    bytes += static_cast<double>(got);
    const double elapsed_s = seconds_since(start);
    if (!warm && elapsed_s > kWarmup_s) {
      warm = true;
      bytes = 0;
      start = SteadyClock::now();
    } else if (warm && elapsed_s > kMeasured_s) {
      return bytes / elapsed_s;
    }
  }
}

constexpr size_t kTcpBlockBytes = 256u << 10;  // stays in cache, as the chunks of a good ring do

}  // namespace

double memcpy_GBps(int threads, size_t bytes) {
  constexpr int kPasses = 7;
  std::vector<double> rates;
  std::barrier gate(threads);
  SteadyClock::time_point start;
  const auto work = [&](int thread) {
    const auto from = std::make_unique<char[]>(bytes);  // zeroed: the pages are there
    const auto to = std::make_unique<char[]>(bytes);
    for (int pass = 0; pass < kPasses; ++pass) {
      gate.arrive_and_wait();
      if (thread == 0) start = SteadyClock::now();
      std::memcpy(to.get(), from.get(), bytes);
      // Without a use of the copy the compiler may leave it out.
      asm volatile("" : : "r"(to.get()) : "memory");
      gate.arrive_and_wait();
      if (thread != 0) continue;
      rates.push_back(static_cast<double>(bytes) * threads / seconds_since(start) / 1e9);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return median(rates);
}

std::optional<TcpLimit> loopback_tcp_GBps(const std::string& congestion, std::string* error) {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Socket sender(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  if (!set_congestion(sender.fd(), congestion, error) ||
      !listen_on_loopback(listener.fd(), &address, error)) {
    return std::nullopt;
  }
  if (connect(sender.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    failed(error, "connect");
    return std::nullopt;
  }
  const Socket receiver(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (receiver.fd() < 0) {
    failed(error, "accept");
    return std::nullopt;
  }
  char name[32] = {};
  socklen_t name_bytes = sizeof(name) - 1;
  getsockopt(sender.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes);

  std::thread sending([&sender] {
    const std::vector<char> block(kTcpBlockBytes, 1);
    while (send(sender.fd(), block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  std::vector<char> buffer(kTcpBlockBytes);
  const double rate = receive_rate(receiver.fd(), buffer);
  shutdown(receiver.fd(), SHUT_RDWR);
  shutdown(sender.fd(), SHUT_RDWR);
  sending.join();
  return TcpLimit{rate / 1e9, name};
}

}  // namespace rueda::bench
