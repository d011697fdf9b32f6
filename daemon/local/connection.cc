#include "daemon/local/connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "daemon/base/mutex.h"
#include "daemon/base/no_exception.h"

namespace rueda::local {
namespace {

using boost::system::error_code;
using Wait = boost::asio::posix::stream_descriptor::wait_type;

// What is read at once, and what is read beyond the call that is under way: enough to see that the
// client goes.
constexpr size_t kReadBytes = 64u << 10;
constexpr size_t kAheadBytes = kHeaderBytes + kMaxRequestBytes;
// In a turn a principal may begin so many calls, if they are short.
constexpr size_t kBytesOfAShortCall = 64u << 10;

std::string seconds(std::chrono::milliseconds time) {
  return std::to_string(std::max<int64_t>(1, time.count() / 1000)) + " s";
}

}  // namespace

// --- The call under way

// The mutex also orders what the threads do of which the call's owners are: a sanitizer does not
// see the pointers that uninstrumented code passes on.
class Connection::CallOf final : public Call, public std::enable_shared_from_this<CallOf> {
 public:
  CallOf(std::weak_ptr<Connection> connection, std::shared_ptr<LoopGate> gate,
         security::Caller caller, std::shared_ptr<Line> line)
      : connection_(std::move(connection)),
        gate_(std::move(gate)),
        caller_(std::move(caller)),
        line_(std::move(line)) {}
  ~CallOf() override { taken(0, 0); }

  const security::Caller& caller() const override { return caller_; }
  void send(const std::string& message) override {
    std::string frame = make_frame(Kind::kMessage, 0, message);
    {
      const MutexLock lock(mutex_);
      ++waiting_messages_;
      waiting_bytes_ += frame.size();
    }
    post([frame = std::move(frame)](Connection& connection,
                                    const std::shared_ptr<CallOf>& self) mutable {
      connection.queue(self, std::move(frame));
    });
  }
  size_t waiting_messages() const override {
    const MutexLock lock(mutex_);
    return waiting_messages_;
  }
  size_t waiting_bytes() const override {
    const MutexLock lock(mutex_);
    return waiting_bytes_;
  }
  void finish(const CallStatus& status) override { end(status, false); }
  void refuse(const CallStatus& status) override { end(status, true); }
  void rest(std::chrono::nanoseconds time) override {
    const MutexLock lock(mutex_);
    rest_ = time;
  }
  void next() override {
    post([](Connection& connection, const std::shared_ptr<CallOf>& self) {
      connection.on_handled(*self);
    });
  }
  void set_receiver(std::shared_ptr<Receiver> receiver) override {
    if (const auto connection = connection_.lock()) connection->receiver_ = std::move(receiver);
  }
  void set_on_gone(std::function<void()> on_gone) override {
    if (const auto connection = connection_.lock()) connection->on_gone_ = std::move(on_gone);
  }

  // So much has been taken by the client, or dropped.
  void taken(size_t messages, size_t bytes) {
    const MutexLock lock(mutex_);
    waiting_messages_ -= messages;
    waiting_bytes_ -= bytes;
  }

 private:
  template <class Work>
  void post(Work work) {
    gate_->post([self = shared_from_this(), work = std::move(work)]() mutable {
      const std::shared_ptr<Connection> connection = self->connection_.lock();
      if (connection) connection->guarded([&] { work(*connection, self); });
    });
  }
  void end(const CallStatus& status, bool is_refused) {
    gate_->post([self = shared_from_this(), status, is_refused] {
      const std::shared_ptr<Connection> connection = self->connection_.lock();
      if (connection) connection->guarded([&] { connection->end_call(*self, status, is_refused); });
      if (self->line_) self->line_->done(self->rested());
    });
  }
  std::chrono::nanoseconds rested() const {
    const MutexLock lock(mutex_);
    return rest_;
  }

  const std::weak_ptr<Connection> connection_;
  const std::shared_ptr<LoopGate> gate_;
  const security::Caller caller_;
  const std::shared_ptr<Line> line_;  // Null unless calls of this kind are taken in turn.
  mutable Mutex mutex_;
  size_t waiting_messages_ RUEDA_GUARDED_BY(mutex_) = 0;
  size_t waiting_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  std::chrono::nanoseconds rest_ RUEDA_GUARDED_BY(mutex_){0};
};

// --- The connection

Connection::Connection(boost::asio::io_context& loop, ConnectionOwner& owner, UniqueFd socket,
                       security::Caller caller, std::shared_ptr<Party> party)
    : owner_(owner),
      socket_(loop, socket.get()),
      timer_(loop),
      caller_(std::move(caller)),
      party_(std::move(party)) {
  (void)socket.release();  // It is the descriptor's now.
}

void Connection::guarded(const std::function<void()>& work) {
  without_exception(work, [this](const char* what) {
    spdlog::error("a connection of {} ends: {}", caller_.principal.to_string(), what);
    close();
  });
}

void Connection::close() {
  if (std::exchange(is_closed_, true)) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  party_->requests.leave(this);
  release_request();
  for (const Outgoing& one : std::exchange(output_, {})) {
    if (one.is_charged) party_->replies.remove(one.bytes.size());
    if (one.call) one.call->taken(1, one.bytes.size());
  }
  input_ = {};
  let_go(true);
  owner_.on_closed(*this);
}

// --- What comes in

void Connection::go_on() {
  if (is_closed_ || is_closing_) return watch();
  read_more();
  const bool is_full = output_bytes_ > owner_.options().max_reply_bytes && !is_stream();
  if (is_busy_ || is_full) return watch();
  if (!header_ && input_.size() >= kHeaderBytes && !take_header()) return watch();
  if (!header_ || input_.size() < kHeaderBytes + header_->bytes) {
    if (has_ended_) return close();
    read_more();
    return watch();
  }
  is_busy_ = true;
  has_moved_ = true;
  const auto cost = static_cast<int64_t>(1 + header_->bytes / kBytesOfAShortCall);
  const auto work = [self = shared_from_this(), cost] {
    if (self->is_closed_ || self->is_closing_) return;
    self->party_->turns->charge(cost);
    self->guarded([&] { self->handle(); });
  };
  watch();
  party_->turns->may_work() ? work() : party_->turns->wait(work);
}

void Connection::read_more() {
  if (is_closed_ || is_closing_ || is_reading_ || has_ended_) return;
  if (input_.size() >= (header_ ? kHeaderBytes + header_->bytes : kAheadBytes)) return;
  is_reading_ = true;
  socket_.async_wait(Wait::wait_read, [self = shared_from_this()](error_code error) {
    self->is_reading_ = false;
    if (!error) self->guarded([&] { self->on_readable(); });
  });
}

void Connection::on_readable() {
  if (is_closed_ || is_closing_) return;
  static thread_local std::array<char, kReadBytes> bytes;
  const size_t most = header_ ? kHeaderBytes + header_->bytes : kAheadBytes;
  if (input_.size() >= most) return;
  const ssize_t got = ::recv(socket_.native_handle(), bytes.data(),
                             std::min(bytes.size(), most - input_.size()), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return read_more();
  if (got <= 0) return on_end_of_input();
  input_.append(bytes.data(), static_cast<size_t>(got));
  go_on();
}

// Of a stream all is heard that was sent. Who asks for a reply, and goes, wants none.
void Connection::on_end_of_input() {
  has_ended_ = true;
  is_stream() ? go_on() : close();
}

bool Connection::take_header() {
  const Result<Header> header = decode(input_);
  if (header.status().code() == Code::kVersion) {
    refuse({CallCode::kFailedPrecondition,
            "the program speaks version " + header.status().message() +
                " of the protocol of calls at the daemon's socket, and this daemon (ruedad " +
                RUEDA_VERSION + ") version " + std::to_string(kVersion) +
                ": upgrade the older of the two"});
    return false;
  }
  if (!header.is_ok()) {
    refuse({CallCode::kInvalidArgument, header.status().message()});
    return false;
  }
  if (const CallStatus right = check(header.value()); !right.is_ok()) {
    refuse(right);
    return false;
  }
  if (owner_.is_stopping() && header.value().kind == Kind::kCall) {
    reject({CallCode::kUnavailable, "the daemon is stopping"});
    return false;
  }
  if (!has_room_for(header.value())) return false;
  header_ = header.value();
  return true;
}

CallStatus Connection::check(const Header& header) const {
  if (header.kind == Kind::kCall) return check_call(header);
  if (header.kind == Kind::kStatus) {
    return {CallCode::kInvalidArgument, "a client has sent what daemons send"};
  }
  if (!is_stream() || has_said_end_) {
    return {CallCode::kInvalidArgument, "a message has come that belongs to no call"};
  }
  const size_t most = header.kind == Kind::kMessage ? kMaxRequestBytes : 0;
  if (header.bytes <= most) return {};
  return {CallCode::kResourceExhausted, "a message of " + std::to_string(header.bytes) +
                                            " bytes has come where " + std::to_string(most) +
                                            " are the most"};
}

CallStatus Connection::check_call(const Header& header) const {
  if (is_stream()) {
    return {CallCode::kInvalidArgument,
            "a call has come while another is under way: open a connection for each"};
  }
  const auto method = static_cast<Method>(header.code);
  const ConnectionOwner::Served* const served = owner_.find(method);
  if (served == nullptr) {
    return {CallCode::kUnimplemented, "this daemon (ruedad " RUEDA_VERSION
                                      ") has no method with the number " +
                                          std::to_string(header.code) + ": upgrade it"};
  }
  if (const Status may = security::check(served->action, caller_); !may.is_ok()) {
    return {CallCode::kPermissionDenied, may.message()};
  }
  if (header.bytes <= max_request_bytes(method)) return {};
  return {CallCode::kResourceExhausted,
          "a request of " + std::to_string(header.bytes) + " bytes for " +
              std::string(name_of(method)) + " has come, and " +
              std::to_string(max_request_bytes(method)) + " are the most"};
}

bool Connection::has_room_for(const Header& header) {
  if (header.bytes <= kMaxRequestBytes) return true;
  if (party_->requests.has_room()) {
    charged_request_bytes_ = header.bytes;
    party_->requests.add(header.bytes);
    return true;
  }
  is_busy_ = true;
  party_->requests.wait(this, [self = shared_from_this()] {
    self->guarded([&] {
      self->is_busy_ = false;
      self->go_on();
    });
  });
  return false;
}

void Connection::handle() {
  const Header header = *std::exchange(header_, std::nullopt);
  std::string payload = input_.substr(kHeaderBytes, header.bytes);
  input_.erase(0, kHeaderBytes + header.bytes);
  if (input_.capacity() > 2 * kAheadBytes) input_.shrink_to_fit();
  const std::shared_ptr<Receiver> receiver = receiver_;
  switch (header.kind) {
    case Kind::kCall: begin_call(static_cast<Method>(header.code), std::move(payload)); break;
    case Kind::kMessage: receiver->on_message(payload); break;
    case Kind::kEnd:
      has_said_end_ = true;
      is_busy_ = false;
      receiver->on_end();
      break;
    case Kind::kStatus: break;  // It has been refused.
  }
  release_request();
  go_on();
}

// --- Calls

void Connection::begin_call(Method method, std::string request) {
  // It was there when the header came.
  const Service& service = owner_.find(method)->service;
  call_ = std::make_shared<CallOf>(weak_from_this(), owner_.gate(), caller_,
                                   service.is_in_turn ? owner_.line() : nullptr);
  if (method == Method::kRun) return hand_over(service, request);
  begin_with_room(service, std::move(request));
}

void Connection::begin_with_room(const Service& service, std::string request) {
  if (!party_->replies.has_room()) {
    // Others of the principal's have to take their answers first.
    party_->replies.wait(this, [self = shared_from_this(), &service, request = std::move(request)] {
      self->guarded([&] { self->begin_with_room(service, request); });
    });
  } else if (service.is_in_turn) {
    // Whose call has ended has left the line.
    owner_.line()->enter(party_->name, this,
                         [self = shared_from_this(), &service, request = std::move(request)] {
                           self->guarded([&] { self->hand_over(service, request); });
                         });
  } else {
    hand_over(service, request);
  }
}

void Connection::hand_over(const Service& service, const std::string& request) {
  const std::shared_ptr<CallOf> call = call_;
  without_exception([&] { service.begin(call, request); },
                    [&](const char* what) {
                      call->finish({CallCode::kResourceExhausted,
                                    std::string("the daemon cannot serve this: ") + what});
                    });
}

void Connection::queue(const std::shared_ptr<CallOf>& call, std::string frame) {
  if (is_closed_ || call_ != call) return;
  const bool is_of_stream = is_stream();
  if (is_of_stream && call->waiting_bytes() > owner_.options().max_stream_bytes) {
    owner_.on_refused(caller_, "it takes nothing of what its job tells it, and " +
                                   std::to_string(call->waiting_bytes() >> 20) + " MiB wait");
    return close();
  }
  put_out({std::move(frame), 0, call, !is_of_stream});
}

void Connection::on_handled(const CallOf& call) {
  if (is_closed_ || call_.get() != &call) return;
  is_busy_ = false;
  go_on();
}

void Connection::end_call(const CallOf& call, const CallStatus& status, bool is_refused) {
  if (is_closed_ || call_.get() != &call) return;
  is_closing_ = is_stream() || is_refused || owner_.is_stopping();
  if (is_refused) owner_.on_refused(caller_, status.text);
  let_go(false);
  is_busy_ = false;
  put_out({make_frame(status), 0, nullptr, false});
}

void Connection::let_go(bool is_gone) {
  const std::shared_ptr<CallOf> call = std::exchange(call_, nullptr);
  if (!call) return;
  owner_.line()->leave(party_->name, this);
  party_->replies.leave(this);
  const std::shared_ptr<Receiver> receiver = std::exchange(receiver_, nullptr);
  const std::function<void()> on_gone = std::exchange(on_gone_, nullptr);
  const bool has_said_end = std::exchange(has_said_end_, false);
  if (is_gone && receiver && !has_said_end) receiver->on_end();
  if (is_gone && on_gone) on_gone();
  call->taken(0, 0);
  owner_.on_call_ended();
}

void Connection::release_request() {
  party_->requests.remove(std::exchange(charged_request_bytes_, 0));
}

// --- What goes out

void Connection::refuse(const CallStatus& status) {
  owner_.on_refused(caller_, status.text);
  reject(status);
}

void Connection::reject(const CallStatus& status) {
  is_closing_ = true;
  let_go(true);
  put_out({make_frame(status), 0, nullptr, false});
}

void Connection::put_out(Outgoing outgoing) {
  if (is_closed_) return;
  output_bytes_ += outgoing.bytes.size();
  if (outgoing.is_charged) party_->replies.add(outgoing.bytes.size());
  output_.push_back(std::move(outgoing));
  if (!is_writing_) flush();
}

void Connection::flush() {
  while (!is_closed_ && !output_.empty()) {
    Outgoing& first = output_.front();
    const ssize_t sent = ::send(socket_.native_handle(), first.bytes.data() + first.sent_bytes,
                                first.bytes.size() - first.sent_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return wait_writable();
    if (sent < 0) return close();
    has_moved_ = true;
    first.sent_bytes += static_cast<size_t>(sent);
    if (first.sent_bytes < first.bytes.size()) continue;
    const Outgoing done = std::move(first);
    output_.pop_front();
    output_bytes_ -= done.bytes.size();
    if (done.call) done.call->taken(1, done.bytes.size());
    if (done.is_charged) party_->replies.remove(done.bytes.size());
  }
  if (is_closed_) return;
  is_closing_ ? close() : go_on();
}

void Connection::wait_writable() {
  is_writing_ = true;
  socket_.async_wait(Wait::wait_write, [self = shared_from_this()](error_code error) {
    self->is_writing_ = false;
    if (!error) self->guarded([&] { self->flush(); });
  });
  go_on();
}

// --- Time

Connection::Awaited Connection::awaited() const {
  if (is_closed_) return Awaited::kNothing;
  // A launcher that was stopped is waited for; what it is told is bounded.
  if (!output_.empty()) return is_stream() ? Awaited::kNothing : Awaited::kAnswerTaken;
  if (is_busy_ || (has_call() && !is_stream())) return Awaited::kNothing;
  if (!input_.empty()) return Awaited::kFrame;
  return is_stream() ? Awaited::kNothing : Awaited::kCall;
}

void Connection::watch() {
  const Awaited now = awaited();
  if (now == timed_ && !has_moved_) return;
  has_moved_ = false;
  timed_ = now;
  if (now == Awaited::kNothing) {
    timer_.cancel();
    return;
  }
  const Options& options = owner_.options();
  timer_.expires_after(now == Awaited::kCall ? options.idle_timeout : options.frame_timeout);
  timer_.async_wait([self = shared_from_this(), now](error_code error) {
    // A timer that was set anew when it had expired already may still call.
    if (error || self->is_closed_ || self->timed_ != now) return;
    if (self->timer_.expiry() > std::chrono::steady_clock::now()) return;
    self->guarded([&] { self->on_timeout(now); });
  });
}

void Connection::on_timeout(Awaited awaited) {
  const std::string time = seconds(owner_.options().frame_timeout);
  if (awaited == Awaited::kFrame) {
    return refuse({CallCode::kDeadlineExceeded, "a message has begun, and not ended in " + time});
  }
  if (awaited == Awaited::kAnswerTaken) {
    owner_.on_refused(caller_, "it has not taken an answer in " + time);
  }
  close();
}

}  // namespace rueda::local
