#include "daemon/transport/rdma/rdma_upgrader.h"

#ifdef RUEDA_HAS_VERBS

#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <spdlog/spdlog.h>

#include "daemon/transport/frame_check.h"
#include "daemon/transport/rdma/device.h"
#include "daemon/transport/rdma/exchange.h"
#include "daemon/transport/rdma/receive_channel.h"
#include "daemon/transport/rdma/send_channel.h"
#include "daemon/transport/tcp/receive_channel.h"
#include "daemon/transport/tcp/send_channel.h"

namespace rueda::transport {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using rdma::Go;
using rdma::Offer;

// The devices and options that the upgrades of one transport share.
struct Shared {
  Shared(asio::io_context& io, const rdma::Verbs& verbs, RdmaOptions o)
      : devices(io, verbs, {o.devices, o.poll}), options(std::move(o)) {}

  // Finds the port for a channel, whose peer has this connection and says so.
  Result<rdma::LocalPort> port_of(const tcp::Socket& socket, const ChannelId& id) {
    error_code error;
    const tcp::Endpoint local = socket.local_endpoint(error);
    if (error) return Status(Code::kNodeLost, "the connection is closed: " + error.message());
    return devices.find(local.address(), rdma::rail_number(id));
  }
  Status agrees_on_rails(const Offer& theirs) const {
    if (theirs.rails == devices.rails()) return Status::ok();
    return {Code::kUnavailable, "the peer has " + std::to_string(theirs.rails) +
                                    " devices in --rdma-devices, and this daemon " +
                                    std::to_string(devices.rails())};
  }
  void tell(bool is_rdma) const {
    if (options.on_channel) options.on_channel(is_rdma);
  }

  rdma::Devices devices;
  const RdmaOptions options;
};

Status broken(const error_code& error) {
  return {Code::kNodeLost, "the connection broke while RDMA was agreed on: " + error.message()};
}

Status garbage() {
  return {Code::kInternal, "it does not speak this version of the exchange that RDMA begins with"};
}

// Returns why a channel is not over RDMA: the reason on this side, or, if that is ok, on the
// peer's.
Status describe_failure(const ChannelId& id, const Status& here, const Offer& peers) {
  return {Code::kUnavailable,
          describe(id) + " cannot be over RDMA: " +
              (here.is_ok() ? "the peer says: " + rdma::reason_of(peers) : here.message())};
}

// The part of either end in an upgrade, from the socket to the handler's call.
template <class Options, class Handler>
class End : public tcp::Upgrade, public std::enable_shared_from_this<End<Options, Handler>> {
 public:
  End(std::shared_ptr<Shared> shared, tcp::Socket socket, const Options& options, std::string peer,
      Handler done)
      : shared_(std::move(shared)),
        socket_(std::move(socket)),
        options_(options),
        peer_(std::move(peer)),
        done_(std::move(done)) {}

  void cancel() override {
    done_ = nullptr;
    error_code ignored;
    socket_.close(ignored);
  }

 protected:
  using Derived = std::shared_ptr<End>;

  // Reads or writes a whole message, and calls `next` if that went well and nobody has cancelled.
  template <class Message, class Next>
  void read(Message& message, Next next) {
    asio::async_read(socket_, asio::buffer(&message, sizeof(message)), after(next));
  }
  template <class Message, class Next>
  void write(const Message& message, Next next) {
    asio::async_write(socket_, asio::buffer(&message, sizeof(message)), after(next));
  }
  void fail(const Status& why) {
    error_code ignored;
    socket_.close(ignored);
    std::exchange(done_, nullptr)(why);
  }
  // Says why the channel is over TCP, and returns true if it may be.
  bool may_fall_back(const Status& here, const Offer& peers) {
    const Status why = describe_failure(options_.id, here, peers);
    if (shared_->options.is_required) {
      fail({Code::kUnavailable, why.message() + "; use --transport auto to fall back to TCP"});
      return false;
    }
    error_code error;
    // On loopback that is as it should be.
    if (socket_.local_endpoint(error).address().is_loopback()) return true;
    spdlog::warn("rdma: {}; it is over TCP", why.message());
    shared_->tell(false);
    return true;
  }

  const std::shared_ptr<Shared> shared_;
  tcp::Socket socket_;
  const Options options_;
  const std::string peer_;
  Handler done_;  // Null once called or cancelled.
  Offer ours_;
  Offer theirs_;
  Go go_;

 private:
  template <class Next>
  auto after(Next next) {
    return [self = this->shared_from_this(), next](const error_code& error, size_t) {
      if (!self->done_) return;
      if (error) return self->fail(broken(error));
      next();
    };
  }
};

class SenderUpgrade final : public End<ConnectOptions, ConnectHandler> {
 public:
  SenderUpgrade(std::shared_ptr<Shared> shared, tcp::Socket socket, const ConnectOptions& options,
                std::string peer, ConnectHandler done, std::shared_ptr<const RegionTable> regions)
      : End(std::move(shared), std::move(socket), options, std::move(peer), std::move(done)),
        regions_(std::move(regions)) {}

  void start() {
    prepare();
    write(ours_, [this] { read(theirs_, [this] { on_answer(); }); });
  }

 private:
  void prepare() {
    ours_.rails = static_cast<uint16_t>(shared_->devices.rails());
    const Result<rdma::LocalPort> port = shared_->port_of(socket_, options_.id);
    failed_ = port.status();
    if (port.is_ok()) {
      Result<std::unique_ptr<rdma::SendEnd>> end = rdma::SendEnd::make(port.value(), options_);
      failed_ = end.status();
      if (end.is_ok()) end_ = std::move(end).value();
    }
    if (end_ != nullptr) {
      end_->pair().describe(ours_);
    } else {
      rdma::set_reason(ours_, failed_.message());
    }
  }

  void on_answer() {
    if (!rdma::is_valid(theirs_)) return fail(garbage());
    if (ours_.is_able == 0 || theirs_.is_able == 0) return fall_back();
    failed_ = shared_->agrees_on_rails(theirs_);
    if (failed_.is_ok()) failed_ = end_->pair().connect(theirs_);
    go_.is_connected = failed_.is_ok() ? 1 : 0;
    write(go_, [this] {
      if (go_.is_connected == 0) return fall_back();
      shared_->tell(true);
      std::exchange(done_, nullptr)(rdma::make_send_channel(std::move(socket_), options_, regions_,
                                                            peer_, std::move(end_), theirs_));
    });
  }

  void fall_back() {
    end_.reset();
    if (!may_fall_back(failed_, theirs_)) return;
    std::exchange(done_,
                  nullptr)(tcp::make_send_channel(std::move(socket_), options_, regions_, peer_));
  }

  const std::shared_ptr<const RegionTable> regions_;
  Status failed_;
  std::unique_ptr<rdma::SendEnd> end_;
};

class ReceiverUpgrade final : public End<AcceptOptions, AcceptHandler> {
 public:
  using End::End;

  void start() {
    read(theirs_, [this] { on_offer(); });
  }

 private:
  void on_offer() {
    if (!rdma::is_valid(theirs_)) return fail(garbage());
    ours_.rails = static_cast<uint16_t>(shared_->devices.rails());
    if (theirs_.is_able != 0) prepare();
    if (end_ != nullptr) {
      end_->describe(ours_);
    } else {
      rdma::set_reason(ours_, failed_.message());
    }
    write(ours_, [this] {
      if (end_ == nullptr) return fall_back();
      read(go_, [this] { on_go(); });
    });
  }

  void prepare() {
    failed_ = shared_->agrees_on_rails(theirs_);
    if (!failed_.is_ok()) return;
    const Result<rdma::LocalPort> port = shared_->port_of(socket_, options_.id);
    failed_ = port.status();
    if (!port.is_ok()) return;
    Result<std::unique_ptr<rdma::ReceiveEnd>> end = rdma::ReceiveEnd::make(port.value(), options_);
    failed_ = end.status();
    if (!end.is_ok()) return;
    failed_ = end.value()->pair().connect(theirs_);
    if (failed_.is_ok()) end_ = std::move(end).value();
  }

  void on_go() {
    if (go_.magic != rdma::kGoMagic) return fail(garbage());
    if (go_.is_connected == 0) {
      end_.reset();
      rdma::set_reason(theirs_, "it could not connect its queue pair");
      return fall_back();
    }
    shared_->tell(true);
    std::exchange(done_, nullptr)(
        rdma::make_receive_channel(std::move(socket_), options_, peer_, std::move(end_)));
  }

  void fall_back() {
    if (!may_fall_back(failed_, theirs_)) return;
    std::exchange(done_, nullptr)(tcp::make_receive_channel(std::move(socket_), options_, peer_));
  }

  Status failed_;
  std::unique_ptr<rdma::ReceiveEnd> end_;
};

class RdmaUpgrader final : public tcp::Upgrader {
 public:
  RdmaUpgrader(asio::io_context& io, const rdma::Verbs& verbs, RdmaOptions options)
      : shared_(std::make_shared<Shared>(io, verbs, std::move(options))) {}

  const char* name() const override { return "rdma"; }
  Status is_viable() const override { return shared_->devices.is_viable(); }
  bool is_required() const override { return shared_->options.is_required; }
  Status add_region(RegionKey key, std::span<std::byte> memory) override {
    return shared_->devices.add_region(key, memory);
  }
  Status add_device_memory(RegionKey key, const DeviceMemory& memory,
                           const std::byte* base) override {
    return shared_->devices.add_device_memory(key, memory, base);
  }
  void remove_region(RegionKey key) override { shared_->devices.remove_region(key); }

  std::shared_ptr<tcp::Upgrade> upgrade_sender(tcp::Socket socket, const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, ConnectHandler done) override {
    auto upgrade = std::make_shared<SenderUpgrade>(
        shared_, std::move(socket), options, std::move(peer), std::move(done), std::move(regions));
    upgrade->start();
    return upgrade;
  }
  std::shared_ptr<tcp::Upgrade> upgrade_receiver(tcp::Socket socket, const AcceptOptions& options,
                                                 std::string peer, AcceptHandler done) override {
    auto upgrade = std::make_shared<ReceiverUpgrade>(shared_, std::move(socket), options,
                                                     std::move(peer), std::move(done));
    upgrade->start();
    return upgrade;
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

Status rdma_viability(const std::vector<std::string>& devices) {
  const Result<const rdma::Verbs*> verbs = rdma::load_verbs();
  if (!verbs.is_ok()) return verbs.status();
  asio::io_context unused;
  return rdma::Devices(unused, *verbs.value(), {devices, {}}).is_viable();
}

std::shared_ptr<tcp::Upgrader> make_rdma_upgrader(asio::io_context& io, RdmaOptions options,
                                                  Status& why) {
  const Result<const rdma::Verbs*> verbs = rdma::load_verbs();
  why = verbs.status();
  if (!verbs.is_ok()) return nullptr;
  return std::make_shared<RdmaUpgrader>(io, *verbs.value(), std::move(options));
}

}  // namespace rueda::transport

#else

namespace rueda::transport {

namespace {

Status not_built() {
  return {Code::kUnavailable,
          "this build has no RDMA: the headers of libibverbs (Debian's libibverbs-dev) were not "
          "there when it was made"};
}

}  // namespace

Status rdma_viability(const std::vector<std::string>&) { return not_built(); }

std::shared_ptr<tcp::Upgrader> make_rdma_upgrader(boost::asio::io_context&, RdmaOptions,
                                                  Status& why) {
  why = not_built();
  return nullptr;
}

}  // namespace rueda::transport

#endif
