#include "daemon/session/server/greeting.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include "client/abi/rueda_abi.h"

namespace rueda::session {
namespace {

using boost::system::error_code;

// HTTP/2's connection preface begins "PRI * HTTP/2.0" (RFC 9113, section 3.4).
constexpr std::string_view kHttp2Opening = "PRI ";
// A peeked byte stays readable, so waiting for the next byte by readiness would spin; the greeting
// looks again after this time.
constexpr std::chrono::milliseconds kRetryInterval{20};

}  // namespace

Greeting::Greeting(boost::asio::io_context& loop, ForeignSocket connection, const Credentials& peer,
                   OnDecided on_decided)
    : connection_(loop, std::move(connection)),
      deadline_(loop),
      retry_(loop),
      peer_(peer),
      on_decided_(std::move(on_decided)) {}

void Greeting::start(int64_t timeout_ms) {
  deadline_.expires_after(std::chrono::milliseconds(timeout_ms));
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->decide(Protocol::kSilent);
  });
  wait_readable();
}

void Greeting::cancel() {
  is_done_ = true;
  connection_.close();
  deadline_.cancel();
  retry_.cancel();
}

void Greeting::wait_readable() {
  connection_.async_wait(ForeignStream::Wait::wait_read,
                         [self = shared_from_this()](error_code error) {
                           if (!error) self->look();
                         });
}

void Greeting::look() {
  if (is_done_) return;
  char opening[4];
  static_assert(sizeof(opening) == sizeof(RUEDA_ABI_MAGIC));
  ssize_t got = ::recv(connection_.fd(), opening, sizeof(opening), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return wait_readable();
  }
  if (got <= 0) return decide(Protocol::kGone);
  std::string_view seen(opening, static_cast<size_t>(got));
  uint32_t magic = RUEDA_ABI_MAGIC;
  // A part of the magic number is enough: the session's own reader waits for the rest.
  if (std::memcmp(&magic, seen.data(), seen.size()) == 0) return decide(Protocol::kLocal);
  if (seen != kHttp2Opening.substr(0, seen.size())) return decide(Protocol::kUnknown);
  if (seen.size() == kHttp2Opening.size()) return decide(Protocol::kGrpc);
  retry_.expires_after(kRetryInterval);
  retry_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->look();
  });
}

void Greeting::decide(Protocol protocol) {
  if (std::exchange(is_done_, true)) return;
  deadline_.cancel();
  retry_.cancel();
  ForeignSocket connection = connection_.release();
  // The callback comes last, because the owner forgets this object in it.
  OnDecided on_decided = std::move(on_decided_);
  on_decided(*this, protocol, std::move(connection));
}

}  // namespace rueda::session
