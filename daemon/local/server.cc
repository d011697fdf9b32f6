#include "daemon/local/server.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "daemon/base/check.h"
#include "daemon/local/connection.h"

namespace rueda::local {
namespace {

// What a principal may begin before others have their turn: so many calls, if they are short.
constexpr int64_t kCallsPerTurn = 8;
constexpr std::chrono::milliseconds kLongestTurn{1};

}  // namespace

class Server::Impl final : public ConnectionOwner, public std::enable_shared_from_this<Impl> {
 public:
  Impl(boost::asio::io_context& loop, const Options& options)
      : loop_(loop),
        options_(options),
        gate_(std::make_shared<LoopGate>(loop)),
        line_(std::make_shared<Line>(loop)),
        turns_(loop, kCallsPerTurn, kLongestTurn),
        stopping_timer_(loop) {}

  void serve(security::Action action, Service service) {
    const auto method = find_method(security::rules().at(static_cast<size_t>(action)).method);
    RUEDA_CHECK(method.has_value());
    services_.at(static_cast<size_t>(*method) - 1) = Served{action, std::move(service)};
  }
  void set_on_refused(Refused refused) { refused_ = std::move(refused); }

  void adopt(UniqueFd socket, security::Caller caller);
  void stop(std::function<void()> done);
  // Closes everything, and calls what waits for the end.
  void end();

  const Options& options() const override { return options_; }
  const std::shared_ptr<LoopGate>& gate() const override { return gate_; }
  const std::shared_ptr<Line>& line() const override { return line_; }
  const Served* find(Method method) const override {
    const size_t index = static_cast<size_t>(method) - 1;
    return index < services_.size() && services_[index] ? &*services_[index] : nullptr;
  }
  bool is_stopping() const override { return on_stopped_ != nullptr; }
  void on_refused(const security::Caller& caller, const std::string& why) override {
    if (refused_) refused_(caller, why);
  }
  void on_call_ended() override;
  void on_closed(Connection& connection) override { connections_.erase(&connection); }

 private:
  void adopt_in_loop(UniqueFd socket, const security::Caller& caller);
  std::shared_ptr<Party> party_of(const Principal& principal);
  void close_idle();
  bool has_calls() const;

  boost::asio::io_context& loop_;
  const Options options_;
  const std::shared_ptr<LoopGate> gate_;
  const std::shared_ptr<Line> line_;
  std::array<std::optional<Served>, kMethods> services_;
  Refused refused_;
  Turns turns_;
  std::map<std::string, std::weak_ptr<Party>> parties_;
  std::map<Connection*, std::shared_ptr<Connection>> connections_;
  boost::asio::steady_timer stopping_timer_;
  std::function<void()> on_stopped_;
};

void Server::Impl::adopt(UniqueFd socket, security::Caller caller) {
  // std::function wants what can be copied.
  gate_->post([self = weak_from_this(), caller = std::move(caller),
               socket = std::make_shared<UniqueFd>(std::move(socket))] {
    const std::shared_ptr<Impl> impl = self.lock();
    if (impl) impl->adopt_in_loop(std::move(*socket), caller);
  });
}

void Server::Impl::adopt_in_loop(UniqueFd socket, const security::Caller& caller) {
  if (is_stopping()) return;
  const auto connection = std::make_shared<Connection>(loop_, *this, std::move(socket), caller,
                                                       party_of(caller.principal));
  connections_.emplace(connection.get(), connection);
  connection->start();
}

std::shared_ptr<Party> Server::Impl::party_of(const Principal& principal) {
  std::string name = principal.label();
  std::weak_ptr<Party>& known = parties_[name];
  std::shared_ptr<Party> found = known.lock();
  if (found) return found;
  std::erase_if(parties_,
                [&](const auto& entry) { return entry.second.expired() && entry.first != name; });
  found =
      std::make_shared<Party>(Party{name, turns_.party(name), Budget(options_.max_principal_bytes),
                                    Budget(options_.max_principal_bytes)});
  known = found;
  return found;
}

void Server::Impl::stop(std::function<void()> done) {
  gate_->post([weak = weak_from_this(), done = std::move(done)] {
    const std::shared_ptr<Impl> self = weak.lock();
    if (!self) return;
    self->on_stopped_ = done;
    self->close_idle();
    if (!self->has_calls()) return self->end();
    self->stopping_timer_.expires_after(self->options_.stop_timeout);
    self->stopping_timer_.async_wait([weak](const boost::system::error_code& error) {
      const std::shared_ptr<Impl> late = weak.lock();
      if (late && !error) late->end();
    });
  });
}

void Server::Impl::close_idle() {
  for (const auto& [key, connection] : std::map(connections_)) {
    if (!connection->has_call()) connection->close();
  }
}

bool Server::Impl::has_calls() const {
  for (const auto& [key, connection] : connections_) {
    if (connection->has_call()) return true;
  }
  return false;
}

void Server::Impl::on_call_ended() {
  if (!is_stopping() || has_calls()) return;
  // What has just been answered is still to be sent.
  gate_->post([weak = weak_from_this()] {
    if (const std::shared_ptr<Impl> self = weak.lock()) self->end();
  });
}

void Server::Impl::end() {
  for (const auto& [key, connection] : std::exchange(connections_, {})) connection->close();
  gate_->close();
  stopping_timer_.cancel();
  if (const std::function<void()> done = std::exchange(on_stopped_, nullptr)) done();
}

Server::Server(boost::asio::io_context& loop, const Options& options)
    : impl_(std::make_shared<Impl>(loop, options)) {}

Server::~Server() { impl_->end(); }

void Server::serve(security::Action action, Service service) {
  impl_->serve(action, std::move(service));
}

void Server::set_on_refused(Refused refused) { impl_->set_on_refused(std::move(refused)); }

void Server::adopt(UniqueFd socket, security::Caller caller) {
  impl_->adopt(std::move(socket), std::move(caller));
}

void Server::stop(std::function<void()> done) { impl_->stop(std::move(done)); }

}  // namespace rueda::local
