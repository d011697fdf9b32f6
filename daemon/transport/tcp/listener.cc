#include "daemon/transport/tcp/listener.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/clock.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/handshake.h"

namespace rueda::transport::tcp {

namespace {

constexpr size_t kMaxHandshakes = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kLeastPause{10};

}  // namespace

Listener::Listener(asio::io_context& io, std::shared_ptr<SocketTuner> tuner,
                   std::shared_ptr<Wires> wires, std::shared_ptr<Upgrader> upgrader,
                   int64_t hello_timeout_ms, Protection protection,
                   std::shared_ptr<uint64_t> forged)
    : io_(io),
      tuner_(std::move(tuner)),
      wires_(std::move(wires)),
      upgrader_(std::move(upgrader)),
      hello_timeout_ms_(hello_timeout_ms),
      protection_(protection),
      forged_(std::move(forged)),
      acceptor_(io),
      pause_timer_(io) {}

Listener::~Listener() = default;

Result<std::string> Listener::listen(const std::string& address) {
  if (acceptor_.is_open()) {
    return Status(Code::kInvalidArgument,
                  "cannot listen on " + address + ": this transport listens already");
  }
  const Result<Endpoint> endpoint = listen_endpoint(address);
  if (!endpoint.is_ok()) return endpoint.status();
  error_code error;
  const auto step = [&error](auto&& action) {
    if (!error) action();
  };
  step([&] { acceptor_.open(endpoint.value().protocol(), error); });
  step([&] { acceptor_.set_option(Acceptor::reuse_address(true), error); });
  if (!error && endpoint.value().address().is_v6()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  step([&] { tuner_->tune_listener(acceptor_, endpoint.value()); });
  step([&] { acceptor_.bind(endpoint.value(), error); });
  step([&] { acceptor_.listen(Acceptor::max_listen_connections, error); });
  Endpoint bound;
  step([&] { bound = acceptor_.local_endpoint(error); });
  if (error) {
    error_code ignored;
    acceptor_.close(ignored);
    const bool taken = error == asio::error::address_in_use;
    return Status(taken ? Code::kUnavailable : Code::kInvalidArgument,
                  "cannot listen on " + address + ": " + error.message() +
                      (taken ? "; choose another port, or 0 for any that is free" : ""));
  }
  accept();
  return to_string(bound);
}

void Listener::accept() {
  acceptor_.async_accept(io_.get_executor(),
                         [self = shared_from_this()](const error_code& error, Socket socket) {
                           self->on_accept(error, std::move(socket));
                         });
}

void Listener::on_accept(const error_code& error, Socket socket) {
  if (is_stopped_) return;
  if (error && error != asio::error::connection_aborted) return pause_accepting(error);
  if (!error) {
    tuner_->tune_accepted(socket);
    // A neighbour says its hello at once: so the newest is let in, however many say nothing.
    if (handshakes_.size() >= kMaxHandshakes) {
      evict("there are " + std::to_string(kMaxHandshakes) +
            " connections already that have not said who they are");
    }
    error_code gone;
    const Endpoint peer = socket.remote_endpoint(gone);
    handshakes_.push_back(
        std::make_shared<Handshake>(*this, wires_->accepted(std::move(socket), peer), peer, io_));
    handshakes_.back()->start(hello_timeout_ms_);
  }
  accept_in_time();
}

void Listener::accept_in_time() {
  const double price = expectations_.empty() ? 1 : kPriceWhileExpecting;
  const TicksUs now = steady_now_us();
  if (arrivals_.take(now, price)) return accept();
  is_paced_ = true;
  pause(std::max<std::chrono::microseconds>(
      kLeastPause, std::chrono::microseconds(arrivals_.wait_us(now, price))));
}

// Connections whose peers have said hello go last, because a peer may be a neighbour that comes
// early, and proven ones stay. Otherwise a connection goes whose address has the most of its kind.
bool Listener::evict(const std::string& why) {
  const auto count_of = [&](const std::shared_ptr<Handshake>& one) {
    return std::count_if(handshakes_.begin(), handshakes_.end(), [&](const auto& other) {
      return other->address() == one->address() && other->has_said_hello() == one->has_said_hello();
    });
  };
  std::shared_ptr<Handshake> victim;
  std::ptrdiff_t most = 0;
  for (const auto& handshake : handshakes_) {  // Of equals it takes the oldest.
    if (handshake->is_proven()) continue;
    if (victim && handshake->has_said_hello() && !victim->has_said_hello()) continue;
    const std::ptrdiff_t count = count_of(handshake);
    if (victim && handshake->has_said_hello() == victim->has_said_hello() && count <= most) {
      continue;
    }
    victim = handshake;
    most = count;
  }
  if (!victim) return false;
  reject(victim, Status(Code::kResourceExhausted, why));
  return true;
}

// Descriptors are out, most likely. The connection stays in the backlog, so accepting at once would
// fail at once, for ever, unless a stranger's descriptor can be had.
void Listener::pause_accepting(const error_code& error) {
  if (error == asio::error::no_descriptors && evict("no descriptor is left for the next one")) {
    return accept();
  }
  uint64_t swallowed = 0;
  if (log_limiter_.allow(steady_now_ms(), swallowed)) {
    spdlog::error("tcp: cannot accept connections: {}; trying again in {} ms", error.message(),
                  kAcceptPause.count());
  }
  pause(kAcceptPause);
}

void Listener::pause(std::chrono::microseconds time) {
  pause_timer_.expires_after(time);
  pause_timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (cancelled || self->is_stopped_) return;
    std::exchange(self->is_paced_, false) ? self->accept_in_time() : self->accept();
  });
}

void Listener::expect(AcceptOptions options, const Status& checked, AcceptHandler handler) {
  const ChannelId id = options.id;
  const int64_t timeout_ms = options.timeout_ms;
  auto expectation = std::make_shared<Expectation>(std::move(options), std::move(handler), io_);
  if (!expectations_.emplace(id, expectation).second) {
    asio::post(io_, [expectation] { expectation->handler(taken(expectation->options.id)); });
    return;
  }
  if (!checked.is_ok()) {
    expectation->is_claimed = true;
    asio::post(io_, [self = shared_from_this(), expectation, checked] {
      self->finish(expectation, checked);
    });
    return;
  }
  expectation->deadline.expires_after(std::chrono::milliseconds(timeout_ms));
  expectation->deadline.async_wait(
      [self = shared_from_this(), expectation](const error_code& cancelled) {
        if (!cancelled) self->on_deadline(expectation);
      });
  for (const auto& handshake : handshakes_) {
    if (handshake->waits_for(id)) handshake->announce();
  }
  // Whoever is expected may wait behind strangers.
  if (is_paced_) pause(std::chrono::microseconds(0));
}

void Listener::on_deadline(const ExpectationPtr& expectation) {
  const AcceptOptions& options = expectation->options;
  if (find(options.id) != expectation) return;
  std::string message = "node " + std::to_string(options.id.from_node) + " did not open " +
                        describe(options.id) + " within " + std::to_string(options.timeout_ms) +
                        " ms";
  if (!expectation->last_rejection.empty()) {
    message += " (the last attempt was refused, " + expectation->last_rejection + ")";
  }
  finish(expectation, Status(Code::kTimeout, std::move(message)));
}

void Listener::finish(const ExpectationPtr& expectation,
                      Result<std::unique_ptr<ReceiveChannel>> result) {
  if (find(expectation->options.id) != expectation) return;
  withdraw(expectation);
  expectations_.erase(expectation->options.id);
  expectation->handler(std::move(result));
}

void Listener::cancel_expect(const ChannelId& id) {
  const auto found = expectations_.find(id);
  if (found == expectations_.end()) return;
  withdraw(found->second);
  expectations_.erase(found);
}

void Listener::withdraw(const ExpectationPtr& expectation) {
  expectation->deadline.cancel();
  if (expectation->upgrade != nullptr) std::exchange(expectation->upgrade, nullptr)->cancel();
}

Listener::ExpectationPtr Listener::find(const ChannelId& id) {
  const auto found = expectations_.find(id);
  return found == expectations_.end() ? nullptr : found->second;
}

void Listener::count_rejection(const std::string& peer, const Status& why) {
  ++rejected_;
  uint64_t swallowed = 0;
  if (!log_limiter_.allow(steady_now_ms(), swallowed)) return;
  if (swallowed == 0) {
    spdlog::warn("tcp: closed a connection from {}: {}", peer, why.message());
  } else {
    spdlog::warn("tcp: closed a connection from {}: {} (and {} more, not logged)", peer,
                 why.message(), swallowed);
  }
}

void Listener::reject(const std::shared_ptr<Handshake>& handshake, const Status& why) {
  count_rejection(handshake->peer(), why);
  std::erase(handshakes_, handshake);
  handshake->abandon();
}

void Listener::welcome(const std::shared_ptr<Handshake>& handshake,
                       const ExpectationPtr& expectation) {
  std::erase(handshakes_, handshake);
  arrivals_.give_back();
  if (find(expectation->options.id) != expectation) {
    handshake->abandon();
    return;
  }
  const std::string peer =
      "node " + std::to_string(expectation->options.id.from_node) + " (" + handshake->peer() + ")";
  const std::shared_ptr<Wire> wire = handshake->take_wire();
  const bool upgrades = handshake->upgrades();
  ChannelKeys keys = handshake->keys();
  keys.forged = forged_;
  handshake->abandon();
  if (!upgrades) {
    finish(expectation, wire->make_receiver(expectation->options, peer, keys));
    return;
  }
  expectation->is_claimed = true;
  expectation->upgrade =
      upgrader_->upgrade_receiver(wire->take_socket(), expectation->options, peer,
                                  [self = shared_from_this(), expectation,
                                   peer](Result<std::unique_ptr<ReceiveChannel>> result) {
                                    self->on_upgraded(expectation, peer, std::move(result));
                                  });
}

// A connection that breaks while it is upgraded is one that failed: the peer may try again.
void Listener::on_upgraded(const ExpectationPtr& expectation, const std::string& peer,
                           Result<std::unique_ptr<ReceiveChannel>> result) {
  expectation->upgrade = nullptr;
  if (result.is_ok()) return finish(expectation, std::move(result));
  expectation->is_claimed = false;
  expectation->last_rejection = peer + ": " + result.status().message();
  count_rejection(peer, result.status());
}

void Listener::stop() {
  is_stopped_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_timer_.cancel();
  for (const auto& [id, expectation] : expectations_) withdraw(expectation);
  expectations_.clear();
  for (const auto& handshake : std::exchange(handshakes_, {})) handshake->abandon();
}

}  // namespace rueda::transport::tcp
