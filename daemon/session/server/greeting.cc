#include "daemon/session/server/greeting.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "client/abi/rueda_abi.h"

namespace rueda::session {
namespace {

using boost::system::error_code;

// What a connection opens with. HTTP/2's connection preface begins "PRI * HTTP/2.0" (RFC 9113,
// section 3.4); older launchers and tools spoke gRPC here.
struct Opening {
  std::string_view bytes;
  Greeting::Protocol protocol;
};
constexpr size_t kOpeningBytes = 4;
constexpr std::array<Opening, 3> kOpenings{{
    {"RUDA", Greeting::Protocol::kLocal},
    {"RUDG", Greeting::Protocol::kCalls},  // It is local::kMagic.
    {"PRI ", Greeting::Protocol::kHttp2},
}};
static_assert(RUEDA_ABI_MAGIC == ('R' | 'U' << 8 | 'D' << 16 | 'A' << 24));
// A peeked byte stays readable, so waiting for the next byte by readiness would spin; the greeting
// looks again after this time.
constexpr std::chrono::milliseconds kRetryInterval{20};

bool will_say_no_more(int socket) {
  pollfd one{socket, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0;
}

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
  char opening[kOpeningBytes];
  ssize_t got = ::recv(connection_.fd(), opening, sizeof(opening), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return wait_readable();
  }
  if (got <= 0) return decide(Protocol::kGone);
  const std::string_view seen(opening, static_cast<size_t>(got));
  bool may_become_one = false;
  for (const Opening& one : kOpenings) {
    if (seen == one.bytes) return decide(one.protocol);
    may_become_one |= one.bytes.starts_with(seen);
  }
  if (!may_become_one || will_say_no_more(connection_.fd())) return decide(Protocol::kUnknown);
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
