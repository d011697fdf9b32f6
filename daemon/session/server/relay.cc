#include "daemon/session/server/relay.h"

#include <array>
#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include "daemon/session/records/wire.h"

namespace rueda::session {
namespace {

// The most bytes that a connection passes on in one turn.
constexpr size_t kRelayBytes = 64 * 1024;

}  // namespace

Relay::Relay(boost::asio::io_context& loop, ForeignSocket client, const Credentials& peer,
             OnEnd on_end)
    : client_(loop, std::move(client)), served_(loop), peer_(peer), on_end_(std::move(on_end)) {}

UniqueFd Relay::start() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return {};
  served_.assign(pair[0]);
  wait(Way::kIn, ForeignStream::Wait::wait_read);
  wait(Way::kOut, ForeignStream::Wait::wait_read);
  return UniqueFd(pair[1]);
}

// Waits for the socket that `way` and `what` name: the sender to become readable, or the receiver
// to become writable.
void Relay::wait(Way way, ForeignStream::Wait what) {
  auto then = [self = shared_from_this(), way](boost::system::error_code error) {
    if (!error) self->pass(way);
  };
  const bool is_client = (way == Way::kIn) == (what == ForeignStream::Wait::wait_read);
  if (is_client) {
    client_.async_wait(what, std::move(then));
  } else {
    served_.async_wait(what, std::move(then));
  }
}

void Relay::pass(Way way) {
  if (!client_.is_open() || !served_.is_open()) return;
  static thread_local std::array<std::byte, kRelayBytes> bytes;
  const int from = way == Way::kIn ? client_.fd() : served_.native_handle();
  const int to = way == Way::kIn ? served_.native_handle() : client_.fd();
  bool has_descriptors = false;
  const auto seen = peek_without_descriptors(from, bytes.data(), bytes.size(), has_descriptors);
  if (!seen && errno == EAGAIN) return wait(way, ForeignStream::Wait::wait_read);
  if (has_descriptors) {
    return end(Status(Code::kInvalidArgument, "it sent descriptors where none are wanted"));
  }
  if (!seen || *seen == 0) {
    ::shutdown(to, SHUT_WR);
    is_over_[static_cast<size_t>(way)] = true;
    // Once the server has closed its side, nobody is left who could listen to the client.
    if (way == Way::kOut || is_over_[static_cast<size_t>(Way::kOut)]) end(Status::ok());
    return;
  }
  const ssize_t sent = ::send(to, bytes.data(), *seen, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) return wait(way, ForeignStream::Wait::wait_write);
  if (sent < 0 && errno != EINTR) {
    // A server that refuses what is too long says so, and does not take it.
    if (way == Way::kIn) pass_last_answers();
    return end(Status::ok());
  }
  // Consumes only bytes that have been looked at, with which no descriptors come.
  if (sent > 0) (void)!::recv(from, bytes.data(), static_cast<size_t>(sent), MSG_DONTWAIT);
  wait(way, ForeignStream::Wait::wait_read);
}

void Relay::close() {
  on_end_ = nullptr;
  if (!client_.is_open()) return;
  pass_last_answers();
  end(Status::ok());
}

void Relay::pass_last_answers() {
  std::array<std::byte, 4096> bytes;
  for (;;) {
    const ssize_t got = ::recv(served_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    const ssize_t sent =
        ::send(client_.fd(), bytes.data(), static_cast<size_t>(got), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != got) break;
  }
}

void Relay::end(const Status& why) {
  boost::system::error_code ignored;
  client_.close();
  served_.close(ignored);
  // The callback comes last, because the owner forgets this object in it.
  if (const OnEnd on_end = std::exchange(on_end_, nullptr)) on_end(*this, why);
}

}  // namespace rueda::session
