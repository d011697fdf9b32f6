// Fuzzes what a stranger may send to the HTTP port: bytes of a client go to a server that serves,
// over a connection of their own. Whatever they are, the connection ends, each answer is one that
// the server gives, and another client is told at once that the daemon is well.
//
// The first byte of an input chooses how the rest is cut into writes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "daemon/base/check.h"
#include "daemon/base/fd.h"
#include "daemon/observe/http_server.h"

namespace rueda::observe {
namespace {

constexpr int kPatienceMs = 20'000;
constexpr std::string_view kAsksHealth = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";

// A server with all pages, which lives as long as the process.
class Target {
 public:
  Target() {
    HttpHandlers handlers;
    handlers.metrics = [] { return std::string("# a metric\nx 1\n"); };
    handlers.ready = [] { return true; };
    server_ = HttpServer::create(std::move(handlers));
    const Result<std::string> bound = server_->start("127.0.0.1:0");
    RUEDA_CHECK(bound.is_ok());
    port_ = static_cast<uint16_t>(std::stoi(bound.value().substr(bound.value().rfind(':') + 1)));
  }

  // Sends the bytes in pieces, then the end, and returns all that comes back until the server
  // closes.
  std::string ask(std::string_view bytes, size_t piece_bytes) {
    const UniqueFd socket = connect();
    const int at_once = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    std::string answers;
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, piece_bytes);
      // The server may have closed; what it said before is read below.
      if (!send(socket.get(), piece, answers)) break;
      bytes.remove_prefix(piece.size());
    }
    ::shutdown(socket.get(), SHUT_WR);
    while (receive(socket.get(), answers)) {
    }
    return answers;
  }

 private:
  // Each connection is of another address of this machine, because the ports of one would be used
  // up: a port that was used rests for a minute.
  UniqueFd connect() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ++connections_ % 250);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    RUEDA_CHECK(::bind(socket.get(), name, sizeof(address)) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    RUEDA_CHECK(::connect(socket.get(), name, sizeof(address)) == 0);
    return socket;
  }
  // Waits for the socket as poll() does, but for signals: the fuzzer's own clock, which bounds each
  // input, sends one every few seconds.
  static int await(pollfd& ready) { return TEMP_FAILURE_RETRY(::poll(&ready, 1, kPatienceMs)); }
  // Answers are taken meanwhile, because a server that is not read from reads no more.
  static bool send(int fd, std::string_view piece, std::string& answers) {
    while (!piece.empty()) {
      pollfd ready{fd, POLLIN | POLLOUT, 0};
      RUEDA_CHECK(await(ready) == 1);
      if ((ready.revents & POLLIN) != 0 && !receive(fd, answers)) return false;
      if ((ready.revents & POLLOUT) == 0) continue;
      const ssize_t sent = ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return false;
      piece.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Returns false at the end.
  static bool receive(int fd, std::string& answers) {
    pollfd ready{fd, POLLIN, 0};
    RUEDA_CHECK(await(ready) == 1);  // A connection ends within 10 seconds.
    std::array<char, 4096> buffer;
    const ssize_t bytes = TEMP_FAILURE_RETRY(::recv(fd, buffer.data(), buffer.size(), 0));
    if (bytes <= 0) return false;
    answers.append(buffer.data(), static_cast<size_t>(bytes));
    return true;
  }

  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  uint32_t connections_ = 0;
};

// Returns whether the answers begin as one that the server gives.
bool is_known(std::string_view answers) {
  static constexpr std::array<std::string_view, 6> kStatuses = {"200", "400", "404",
                                                                "405", "431", "503"};
  if (answers.substr(0, 7) != "HTTP/1.") return false;
  const std::string_view status = answers.substr(9, 3);
  return std::find(kStatuses.begin(), kStatuses.end(), status) != kStatuses.end();
}

}  // namespace
}  // namespace rueda::observe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rueda::observe;
  if (size == 0) return 0;
  static auto& target = *new Target;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string answers = target.ask(bytes, size_t{1} << (data[0] % 14));
  RUEDA_CHECK(answers.empty() || is_known(answers));
  const std::string health = target.ask(kAsksHealth, kAsksHealth.size());
  RUEDA_CHECK(health.starts_with("HTTP/1.1 200 "));
  return 0;
}
