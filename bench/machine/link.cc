#include "bench/machine/link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/base/failure.h"

namespace rueda::bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Failure("TCP of the machine's limits: " + what + ": " + std::strerror(errno));
}

// Runs `work` inside a network namespace. A socket stays in the namespace that its thread was in,
// and so can be used from any thread later.
void inside(const std::string& netns, const std::function<void()>& work) {
  if (netns.empty()) return work();
  std::exception_ptr error;
  std::thread visitor([&] {
    try {
      const Socket file(open(netns.c_str(), O_RDONLY | O_CLOEXEC));
      if (file.fd() < 0 || setns(file.fd(), CLONE_NEWNET) != 0) fail("network namespace " + netns);
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  visitor.join();
  if (error) std::rethrow_exception(error);
}

sockaddr_in address_of(const Place& place) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, place.address.c_str(), &address.sin_addr) != 1) {
    throw Failure("'" + place.address + "' is no IPv4 address");
  }
  return address;
}

Socket open_stream(const std::string& congestion) {
  Socket stream(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (stream.fd() < 0) fail("socket");
  if (!congestion.empty() && setsockopt(stream.fd(), IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                                        static_cast<socklen_t>(congestion.size())) != 0) {
    fail("congestion control " + congestion + " is not allowed here");
  }
  return stream;
}

}  // namespace

std::vector<Place> parse_places(std::string_view text) {
  std::vector<Place> places;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = text.substr(0, comma);
    const size_t at = std::min(one.find('@'), one.size());
    Place place{.address = std::string(one.substr(0, at)),
                .netns = std::string(one.substr(std::min(at + 1, one.size())))};
    address_of(place);
    places.push_back(std::move(place));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return places;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Link::Link(const Place& from, const Place& to, const std::string& congestion) {
  sockaddr_in address = address_of(to);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  Socket listener;
  inside(to.netns, [&] {
    // The accepted socket inherits the congestion control.
    listener = open_stream(congestion);
    if (bind(listener.fd(), generic, length) != 0) fail("bind to " + to.address);
    if (listen(listener.fd(), 1) != 0) fail("listen");
    if (getsockname(listener.fd(), generic, &length) != 0) fail("getsockname");
  });
  inside(from.netns, [&] {
    near_ = open_stream(congestion);
    if (connect(near_.fd(), generic, length) != 0) fail("connect to " + to.address);
  });
  far_ = Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (far_.fd() < 0) fail("accept");
}

std::string Link::congestion() const {
  char name[32] = {};
  socklen_t bytes = sizeof(name) - 1;
  getsockopt(near_.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes);
  return name;
}

void Link::shut_down() const {
  shutdown(near_.fd(), SHUT_RDWR);
  shutdown(far_.fd(), SHUT_RDWR);
}

bool send_all(const Socket& socket, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(socket.fd(), data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(const Socket& socket, std::vector<char>& block, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket.fd(), block.data(), std::min(block.size(), bytes), 0);
    if (got <= 0) return false;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace rueda::bench
