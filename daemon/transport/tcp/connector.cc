#include "daemon/transport/tcp/connector.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/host_port.h"
#include "daemon/transport/frame_check.h"

namespace rueda::transport::tcp {

namespace {

constexpr int64_t kFirstRetryMs = 20;
constexpr int64_t kMaxRetryMs = 500;

}  // namespace

Connector::Connector(asio::io_context& io, ConnectOptions options,
                     std::shared_ptr<SocketTuner> tuner, std::shared_ptr<Wires> wires,
                     std::shared_ptr<const RegionTable> regions, std::shared_ptr<Upgrader> upgrader,
                     Protection protection, std::shared_ptr<uint64_t> forged, ConnectHandler done)
    : io_(io),
      options_(std::move(options)),
      tuner_(std::move(tuner)),
      wires_(std::move(wires)),
      regions_(std::move(regions)),
      upgrader_(std::move(upgrader)),
      protection_(protection),
      forged_(std::move(forged)),
      done_(std::move(done)),
      resolver_(io),
      socket_(io),
      deadline_(io),
      retry_timer_(io),
      retry_ms_(kFirstRetryMs),
      last_cause_("the attempt was still under way") {}

void Connector::start() {
  Status status = check_geometry(options_.id, options_.slot_count);
  Result<HostPort> address = parse_host_port(options_.address);
  if (status.is_ok()) status = address.status();
  if (!status.is_ok()) {
    asio::post(io_, [self = shared_from_this(), status] { self->finish(status); });
    return;
  }
  address_ = std::move(address).value();
  deadline_.expires_after(std::chrono::milliseconds(options_.timeout_ms));
  deadline_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled) self->on_deadline();
  });
  attempt();
}

void Connector::attempt() {
  endpoints_.clear();
  next_endpoint_ = 0;
  if (auto endpoint = numeric_endpoint(address_)) {
    if (is_link_local_v4(*endpoint->data())) return refuse();
    endpoints_.push_back(*endpoint);
    try_next_endpoint();
    return;
  }
  // Names are looked up anew each time: they may change, or appear late.
  resolver_.async_resolve(
      address_.host, std::to_string(address_.port), Resolver::numeric_service,
      [self = shared_from_this()](const error_code& error, Resolver::results_type results) {
        self->on_resolved(error, results);
      });
}

void Connector::on_resolved(const error_code& error, const Resolver::results_type& results) {
  if (!done_) return;
  if (error) return on_failure("the name cannot be resolved: " + error.message());
  for (const auto& entry : results) {
    Endpoint endpoint = entry.endpoint();
    if (!is_link_local_v4(*endpoint.data())) endpoints_.push_back(endpoint);
  }
  endpoints_.empty() ? refuse() : try_next_endpoint();
}

void Connector::refuse() {
  const Status why(Code::kInvalidArgument,
                   address_.host +
                       " is a link-local IPv4 address, to which no daemon connects: "
                       "give one by which the node can be reached");
  asio::post(io_, [self = shared_from_this(), why] { self->finish(why); });
}

void Connector::try_next_endpoint() {
  const Endpoint endpoint = endpoints_[next_endpoint_++];
  error_code error;
  socket_.close(error);
  socket_.open(endpoint.protocol(), error);
  if (error) return on_failure("no socket could be made: " + error.message());
  tuner_->tune_connecting(socket_, endpoint);
  socket_.async_connect(endpoint, [self = shared_from_this()](const error_code& failed) {
    self->on_connected(failed);
  });
}

void Connector::on_connected(const error_code& error) {
  if (!done_) return;
  if (error) return on_failure(error.message());
  // With nobody listening, the kernel may pick the port itself for our end and connect us to us.
  error_code ignored;
  const Endpoint peer = socket_.remote_endpoint(ignored);
  if (socket_.local_endpoint(ignored) == peer) return on_failure("nobody listens there");
  peer_ = to_string(peer);
  wire_ = wires_->connected(std::move(socket_));
  say_hello();
}

void Connector::say_hello() {
  hello_ = Hello();
  hello_.id = options_.id;
  hello_.slot_count = options_.slot_count;
  hello_.slot_bytes = options_.slot_bytes;
  hello_.streams = static_cast<uint16_t>(options_.streams);
  hello_.offers_upgrade = upgrader_ != nullptr ? 1 : 0;
  hello_.protection = protection_;
  sign(hello_, options_.token);
  last_cause_ = "it did not answer our hello; most likely it does not expect the channel (yet)";
  is_hello_written_ = is_answer_good_ = false;
  // A hello fits into a fresh socket, so an error here shows in the read as well.
  wire_->write(&hello_, sizeof(hello_),
               [self = shared_from_this(), wire = wire_](const error_code& error) {
                 if (error || self->wire_ != wire) return;
                 self->is_hello_written_ = true;
                 self->confirm();
               });
  wire_->read(&reply_, sizeof(reply_),
              [self = shared_from_this()](const error_code& error) { self->on_reply(error); });
}

void Connector::on_reply(const error_code& error) {
  if (!done_) return;
  if (error) {
    return on_failure(
        "it hung up on our hello; either it does not expect the channel (yet), or the job's "
        "token, the wire version or --transport (grpc here or there) differ");
  }
  if (const Status status = check_answer(); !status.is_ok()) return on_failure(status.message());
  is_answer_good_ = true;
  confirm();
}

Status Connector::check_answer() const {
  if (Status status = check_reply(reply_); !status.is_ok()) return status;
  if (!is_authentic(reply_, hello_, options_.token)) {
    return {Code::kPermission, "it does not have the job's token"};
  }
  if (reply_.answer == HelloAnswer::kOtherGeometry) return Status::ok();
  if (reply_.protection != protection_) {
    return {Code::kPermission, "it welcomes frames of another --data-protection"};
  }
  if (reply_.answer == HelloAnswer::kUpgrade && upgrader_ == nullptr) {
    return {Code::kPermission, "it takes up an offer that was not made"};
  }
  if (reply_.answer == HelloAnswer::kWelcome && upgrader_ != nullptr && upgrader_->is_required()) {
    return {Code::kUnavailable, "it does not speak " + std::string(upgrader_->name()) +
                                    ", which this daemon insists on: start all daemons with the "
                                    "same --transport"};
  }
  return Status::ok();
}

void Connector::confirm() {
  if (!is_hello_written_ || !is_answer_good_) return;
  sign(confirm_, hello_, reply_, options_.token);
  wire_->write(&confirm_, sizeof(confirm_), [self = shared_from_this()](const error_code& error) {
    if (!self->done_) return;
    if (error) return self->on_failure(error.message());
    self->on_confirmed();
  });
}

void Connector::on_confirmed() {
  if (reply_.answer == HelloAnswer::kOtherGeometry) {
    return finish(geometry_mismatch(options_.id, geometry_of(hello_), geometry_of(reply_)));
  }
  std::string peer = "node " + std::to_string(options_.id.to_node) + " (" + peer_ + ")";
  if (reply_.answer == HelloAnswer::kUpgrade) {
    upgrade_ = upgrader_->upgrade_sender(
        std::exchange(wire_, nullptr)->take_socket(), options_, regions_, std::move(peer),
        [self = shared_from_this()](Result<std::unique_ptr<SendChannel>> result) {
          self->on_upgraded(std::move(result));
        });
    return;
  }
  ChannelKeys keys = make_keys(hello_, reply_, options_.token);
  keys.forged = forged_;
  finish(std::exchange(wire_, nullptr)->make_sender(options_, regions_, std::move(peer), keys));
}

void Connector::on_upgraded(Result<std::unique_ptr<SendChannel>> result) {
  upgrade_.reset();
  if (!done_) return;
  if (!result.is_ok()) return on_failure(result.status().message());
  finish(std::move(result));
}

void Connector::on_failure(std::string cause) {
  last_cause_ = std::move(cause);
  close();
  if (next_endpoint_ < endpoints_.size()) return try_next_endpoint();
  retry_timer_.expires_after(std::chrono::milliseconds(retry_ms_));
  retry_ms_ = std::min(retry_ms_ * 2, kMaxRetryMs);
  retry_timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled && self->done_) self->attempt();
  });
}

void Connector::on_deadline() {
  if (!done_) return;
  finish(Status(Code::kTimeout, describe(options_.id) + " to node " +
                                    std::to_string(options_.id.to_node) + " at " +
                                    options_.address + " could not be opened within " +
                                    std::to_string(options_.timeout_ms) + " ms: " + last_cause_));
}

void Connector::finish(Result<std::unique_ptr<SendChannel>> result) {
  if (!done_) return;
  const ConnectHandler done = std::exchange(done_, nullptr);
  cancel();
  done(std::move(result));
}

void Connector::cancel() {
  done_ = nullptr;
  if (upgrade_ != nullptr) std::exchange(upgrade_, nullptr)->cancel();
  resolver_.cancel();
  deadline_.cancel();
  retry_timer_.cancel();
  close();
}

void Connector::close() {
  error_code ignored;
  socket_.close(ignored);
  if (wire_ != nullptr) std::exchange(wire_, nullptr)->close();
}

}  // namespace rueda::transport::tcp
