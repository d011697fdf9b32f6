// Opens one TCP connection inside this process, between two places of this machine: its loopback,
// or network namespaces that somebody has joined. Its bare sockets measure the limits that a result
// is put beside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

// Names an end of a link.
struct Place {
  std::string address = "127.0.0.1";
  std::string netns;  // the namespace's file; if empty, the namespace of this process
};

// Parses "10.0.0.1@/run/netns/a,10.0.0.2@/run/netns/b", or addresses alone. Throws Failure.
std::vector<Place> parse_places(std::string_view text);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// A TCP connection of which this process has both ends. Throws Failure when a call fails, as when
// the congestion control is not allowed.
class Link {
 public:
  // Connects the places. An empty `congestion` means the system's choice.
  Link(const Place& from, const Place& to, const std::string& congestion);

  const Socket& near() const { return near_; }
  const Socket& far() const { return far_; }
  // Returns the congestion control that the kernel reports.
  std::string congestion() const;
  // Ends what waits for either socket.
  void shut_down() const;

 private:
  Socket near_;
  Socket far_;
};

// Sends all bytes. Returns false if the connection ended before.
bool send_all(const Socket& socket, const char* data, size_t bytes);
// Receives `bytes` and throws them away, one block at a time, so that the block stays in cache.
// Returns false if the connection ended before.
bool receive_all(const Socket& socket, std::vector<char>& block, size_t bytes);

}  // namespace rueda::bench
