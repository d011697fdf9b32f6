#include "daemon/transport/tcp/handshake.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/transport/frame_check.h"
#include "daemon/transport/tcp/address.h"

namespace rueda::transport::tcp {

namespace {

// A neighbour sends its hello with its first packet.
constexpr int64_t kMaxHelloMs = 1'000;
constexpr int64_t kGraceMs = 100;

}  // namespace

Handshake::Handshake(Listener& listener, std::shared_ptr<Wire> wire, const Endpoint& peer,
                     asio::io_context& io)
    : listener_(&listener),
      wire_(std::move(wire)),
      io_(io),
      deadline_(io),
      peer_(peer.port() == 0 ? "a peer that has left" : to_string(peer)),
      address_(peer.address()) {}

void Handshake::set_deadline(int64_t after_ms) {
  deadline_.expires_after(std::chrono::milliseconds(after_ms));
  deadline_.async_wait([self = shared_from_this(), after_ms](const error_code& cancelled) {
    if (cancelled || self->listener_ == nullptr) return;
    // This process may not have run for a while. Then the confirmation has come, most likely, and
    // whoever sent it takes the channel for open: it is read first.
    if (self->answered_ != nullptr && !std::exchange(self->has_grace_, true)) {
      return self->set_deadline(kGraceMs);
    }
    const std::string within = " within " + std::to_string(after_ms) + " ms";
    self->fail(self->is_early_ ? Status(Code::kNotFound, describe(self->hello_.id) +
                                                             " was not expected here" + within)
                               : Status(Code::kTimeout, "it did not finish its hello" + within));
  });
}

void Handshake::start(int64_t timeout_ms) {
  timeout_ms_ = timeout_ms;
  set_deadline(std::min(timeout_ms, kMaxHelloMs));
  // A stranger is known by its first bytes: no need to wait for more of them.
  wire_->read(&hello_, kHelloPrefixBytes, [self = shared_from_this()](const error_code& error) {
    if (self->listener_ == nullptr) return;
    if (error) return self->fail(error);
    self->read_rest();
  });
}

void Handshake::read_rest() {
  auto* const bytes = reinterpret_cast<std::byte*>(&hello_);
  const Status status = check_hello_prefix(std::span<const std::byte>(bytes, kHelloPrefixBytes));
  if (!status.is_ok()) return fail(status);
  wire_->read(bytes + kHelloPrefixBytes, sizeof(hello_) - kHelloPrefixBytes,
              [self = shared_from_this()](const error_code& error) {
                if (self->listener_ == nullptr) return;
                if (error) return self->fail(error);
                self->on_hello();
              });
}

void Handshake::on_hello() {
  const Listener::ExpectationPtr expectation = listener_->find(hello_.id);
  if (expectation == nullptr) return wait_for_announcement();
  if (!is_authentic(hello_, expectation->options.token)) {
    const Status why(Code::kPermission, "it does not have the token of " + describe(hello_.id));
    expectation->last_rejection = peer_ + ": " + why.message();
    return fail(why);
  }
  if (expectation->is_claimed) return fail(open_already());
  answered_ = expectation;
  set_deadline(timeout_ms_);
  const Upgrader* const upgrader = listener_->upgrader();
  if (!(geometry_of(hello_) == listener_->geometry_of(expectation->options))) {
    answer(HelloAnswer::kOtherGeometry);
  } else if (upgrader != nullptr && hello_.offers_upgrade != 0) {
    answer(HelloAnswer::kUpgrade);
  } else if (upgrader != nullptr && upgrader->is_required()) {
    fail(Status(Code::kUnavailable, "it does not speak " + std::string(upgrader->name()) +
                                        ", which this daemon insists on: start all daemons with "
                                        "the same --transport"));
  } else {
    answer(HelloAnswer::kWelcome);
  }
}

Status Handshake::open_already() const {
  return {Code::kNotFound, describe(hello_.id) + " is open already"};
}

// Neighbours begin an epoch each at its own time, so a hello may come before its channel is
// announced. Without the token nothing can be said of it yet: it waits among those that have not
// said who they are, and under their bounds.
void Handshake::wait_for_announcement() {
  is_early_ = true;
  set_deadline(timeout_ms_);
  wire_->wait_for_more([self = shared_from_this()](const error_code& cancelled) {
    if (cancelled || self->listener_ == nullptr) return;
    self->fail(Status(Code::kNodeLost,
                      "it did not wait until " + describe(self->hello_.id) + " was expected here"));
  });
}

void Handshake::announce() {
  is_early_ = false;
  wire_->cancel_wait();
  asio::post(io_, [self = shared_from_this()] {
    if (self->listener_ != nullptr) self->on_hello();
  });
}

void Handshake::answer(HelloAnswer answer) {
  const AcceptOptions& options = answered_->options;
  const Geometry geometry = listener_->geometry_of(options);
  reply_.answer = answer;
  reply_.slot_count = geometry.slot_count;
  reply_.slot_bytes = geometry.slot_bytes;
  reply_.streams = static_cast<uint16_t>(geometry.streams);
  reply_.protection = geometry.protection;
  sign(reply_, hello_, options.token);
  wire_->write(&reply_, sizeof(reply_), [self = shared_from_this()](const error_code& error) {
    if (self->listener_ == nullptr) return;
    if (error) return self->fail(error);
    self->await_confirm();
  });
}

// Whoever has recorded a hello can say it again. So until the answer is confirmed the channel is
// not the peer's, and somebody else may still be it.
void Handshake::await_confirm() {
  wire_->read(&confirm_, sizeof(confirm_), [self = shared_from_this()](const error_code& error) {
    if (self->listener_ == nullptr) return;
    if (error) return self->fail(error);
    self->on_confirm();
  });
}

void Handshake::on_confirm() {
  const Listener::ExpectationPtr expectation = answered_;
  const Status status = check_confirm(confirm_, hello_, reply_, expectation->options.token);
  if (!status.is_ok()) {
    expectation->last_rejection = peer_ + ": " + status.message();
    return fail(status);
  }
  if (listener_->find(hello_.id) != expectation) {
    return fail(Status(Code::kNotFound, describe(hello_.id) + " is not expected any more"));
  }
  if (expectation->is_claimed) return fail(open_already());
  expectation->is_claimed = true;
  claimed_ = expectation;
  // The handlers called at the end of both ways may destroy the transport.
  const std::shared_ptr<Listener> listener = listener_->shared_from_this();
  if (reply_.answer != HelloAnswer::kOtherGeometry) {
    return listener->welcome(shared_from_this(), expectation);
  }
  const Status why = geometry_mismatch(hello_.id, geometry_of(hello_), geometry_of(reply_));
  // It has the token, so it is what was expected, and trying again cannot help.
  listener->reject(shared_from_this(), why);
  listener->finish(expectation, why);
}

void Handshake::fail(const Status& why) { listener_->reject(shared_from_this(), why); }

void Handshake::fail(const error_code& error) {
  const std::string cause = error == asio::error::eof ? "it hung up" : error.message();
  fail(Status(Code::kNodeLost, cause + " before its hello was done"));
}

void Handshake::abandon() {
  listener_ = nullptr;
  if (claimed_ != nullptr) claimed_->is_claimed = false;
  claimed_ = nullptr;
  deadline_.cancel();
  if (wire_ != nullptr) wire_->close();
}

}  // namespace rueda::transport::tcp
