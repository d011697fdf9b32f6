#include "daemon/local/client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

namespace rueda::local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64u << 10;

CallStatus broken(const std::string& why) { return {CallCode::kUnavailable, why}; }

// A daemon that does not know this protocol closes the connection without a word.
CallStatus closed() {
  return broken(
      "it has closed the connection without an answer: see its log, and whether it is of this "
      "program's version (" RUEDA_VERSION ")");
}

// A frame that has come whole.
struct Frame {
  Header header;
  std::string payload;
};

// Takes the first frame out of `input`, if it is there. Returns false if what is there is none, and
// says so in `trouble`.
bool take_frame(std::string& input, std::optional<Frame>& frame, CallStatus& trouble) {
  if (input.size() < kHeaderBytes) return true;
  const Result<Header> header = decode(input);
  if (header.status().code() == Code::kVersion) {
    trouble = {CallCode::kFailedPrecondition,
               "the daemon speaks version " + header.status().message() +
                   " of the protocol of calls at its socket, and this program (" RUEDA_VERSION
                   ") version " +
                   std::to_string(kVersion) + ": upgrade the older of the two"};
    return false;
  }
  if (!header.is_ok() || header.value().bytes > kMaxReplyBytes) {
    trouble = broken("what it answers is not of the protocol of calls at its socket: upgrade it");
    return false;
  }
  const size_t bytes = kHeaderBytes + header.value().bytes;
  if (input.size() < bytes) return true;
  frame = Frame{header.value(), input.substr(kHeaderBytes, bytes - kHeaderBytes)};
  input.erase(0, bytes);
  return true;
}

// What one call over a connection knows.
class Exchange {
 public:
  Exchange(int socket, Clock::time_point deadline) : socket_(socket), deadline_(deadline) {}

  // Sends all of it. What the daemon has said before it took all is read by receive().
  CallStatus send(const std::string& bytes) const {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t sent =
          ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) {
        done += static_cast<size_t>(sent);
        continue;
      }
      if (errno == EPIPE || errno == ECONNRESET) return {};
      if (errno != EAGAIN && errno != EINTR) return broken(errno_text("it cannot be told", errno));
      // Who refuses a request need not take it first.
      const CallStatus status = wait(POLLIN | POLLOUT);
      if (!status.is_ok()) return status;
      if (is_readable_) return {};
    }
    return {};
  }

  CallStatus receive(Frame& to) {
    for (;;) {
      std::optional<Frame> frame;
      CallStatus trouble;
      if (!take_frame(input_, frame, trouble)) return trouble;
      if (frame) {
        to = *std::move(frame);
        return {};
      }
      if (CallStatus status = wait(POLLIN); !status.is_ok()) return status;
      std::array<char, 4096> bytes;
      const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) return closed();
      input_.append(bytes.data(), static_cast<size_t>(got));
    }
  }

 private:
  CallStatus wait(short events) const {
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) return {CallCode::kDeadlineExceeded, "it has not answered in time"};
      pollfd one{socket_, events, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::min<int64_t>(left, INT32_MAX)));
      is_readable_ = ready > 0 && (one.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
      if (ready > 0) return {};
    }
  }

  const int socket_;
  const Clock::time_point deadline_;
  mutable bool is_readable_ = false;
  std::string input_;
};

}  // namespace

CallStatus ask_bytes(int socket, Method method, const std::string& request, std::string& reply,
                     std::chrono::milliseconds timeout) {
  Exchange exchange(socket, Clock::now() + timeout);
  CallStatus status = exchange.send(make_frame(method, request));
  bool has_reply = false;
  while (status.is_ok()) {
    Frame frame;
    status = exchange.receive(frame);
    if (!status.is_ok()) break;
    if (frame.header.kind == Kind::kStatus) {
      status = status_of(frame.header, frame.payload);
      if (status.is_ok() && !has_reply) return broken("it has ended the call without an answer");
      break;
    }
    if (frame.header.kind != Kind::kMessage || has_reply) {
      return broken("what it answers is out of order");
    }
    has_reply = true;
    reply = std::move(frame.payload);
  }
  return status;
}

Stream::Stream(UniqueFd socket, Method method, const std::string& request, Events events)
    : socket_(std::move(socket)),
      waker_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      events_(std::move(events)) {
  queue(make_frame(method, request));
}

Stream::~Stream() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void Stream::start() {
  thread_ = std::thread([this] { run(); });
}

void Stream::send(const std::string& message) { queue(make_frame(Kind::kMessage, 0, message)); }

void Stream::finish() {
  {
    const MutexLock lock(mutex_);
    if (is_finished_) return;
    is_finished_ = true;
    output_.push_back(make_frame(Kind::kEnd, 0, {}));
  }
  wake();
}

void Stream::cancel() {
  {
    const MutexLock lock(mutex_);
    is_cancelled_ = true;
  }
  wake();
}

void Stream::queue(std::string frame) {
  {
    const MutexLock lock(mutex_);
    if (is_finished_) return;
    output_.push_back(std::move(frame));
  }
  wake();
}

void Stream::wake() const {
  const uint64_t one = 1;
  (void)!::write(waker_.get(), &one, sizeof(one));
}

void Stream::run() {
  ::pthread_setname_np(::pthread_self(), "rueda-calls");
  CallStatus end;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (is_cancelled_) end = {CallCode::kCancelled, "it was broken off"};
    }
    if (!end.is_ok()) break;
    write();
    if (read(end)) break;
    wait();
  }
  // The daemon sees at once that nobody listens any more.
  ::shutdown(socket_.get(), SHUT_RDWR);
  events_.on_end(end);
}

void Stream::wait() {
  bool has_more = false;
  {
    const MutexLock lock(mutex_);
    has_more = !output_.empty() && !is_deaf_;
  }
  const auto events = static_cast<short>(has_more ? POLLIN | POLLOUT : POLLIN);
  std::array<pollfd, 2> both{pollfd{socket_.get(), events, 0}, pollfd{waker_.get(), POLLIN, 0}};
  (void)::poll(both.data(), both.size(), -1);
  uint64_t count = 0;
  (void)!::read(waker_.get(), &count, sizeof(count));
}

bool Stream::read(CallStatus& end) {
  static thread_local std::array<char, kReadBytes> bytes;
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    end = has_heard_ ? broken("its connection has ended") : closed();
    return true;
  }
  input_.append(bytes.data(), static_cast<size_t>(got));
  return take_frames(end);
}

bool Stream::take_frames(CallStatus& end) {
  for (;;) {
    std::optional<Frame> frame;
    if (!take_frame(input_, frame, end)) return true;
    if (!frame) return false;
    if (frame->header.kind == Kind::kStatus) {
      end = status_of(frame->header, frame->payload);
      return true;
    }
    has_heard_ = true;
    events_.on_message(frame->payload);
    const MutexLock lock(mutex_);
    if (is_cancelled_) return false;
  }
}

void Stream::write() {
  const MutexLock lock(mutex_);
  while (!output_.empty() && !is_deaf_) {
    const std::string& first = output_.front();
    const ssize_t sent = ::send(socket_.get(), first.data() + sent_bytes_,
                                first.size() - sent_bytes_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // What the daemon has said last is still to be read.
      is_deaf_ = errno != EAGAIN;
      return;
    }
    sent_bytes_ += static_cast<size_t>(sent);
    if (sent_bytes_ < first.size()) continue;
    sent_bytes_ = 0;
    output_.pop_front();
  }
}

}  // namespace rueda::local
