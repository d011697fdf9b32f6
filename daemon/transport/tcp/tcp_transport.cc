#include "daemon/transport/tcp/tcp_transport.h"

#include <map>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/tcp/connector.h"
#include "daemon/transport/tcp/listener.h"
#include "daemon/transport/tcp/socket_tuner.h"
#include "daemon/transport/tcp/wire.h"

namespace rueda::transport {

namespace {

class TcpTransport final : public Transport {
 public:
  TcpTransport(boost::asio::io_context& io, TcpOptions options,
               std::shared_ptr<tcp::Upgrader> upgrader, std::shared_ptr<tcp::Wires> wires)
      : io_(io),
        wires_(std::move(wires)),
        upgrader_(std::move(upgrader)),
        tuner_(std::make_shared<tcp::SocketTuner>(std::move(options.congestion))),
        protection_(options.protection),
        listener_(std::make_shared<tcp::Listener>(io, tuner_, wires_, upgrader_,
                                                  options.hello_timeout_ms, protection_, forged_)) {
    RUEDA_CHECK(upgrader_ == nullptr || protection_ == Protection::kNone);
  }
  ~TcpTransport() override { stop(); }

  const char* name() const override {
    return upgrader_ != nullptr ? upgrader_->name() : wires_->name();
  }
  Status is_viable() const override {
    const Status status = tuner_->is_viable();
    if (!status.is_ok() || upgrader_ == nullptr || !upgrader_->is_required()) return status;
    return upgrader_->is_viable();
  }

  Result<std::string> listen(const std::string& address) override {
    return listener_->listen(address);
  }
  void expect(AcceptOptions options, AcceptHandler handler) override {
    const Status checked = check_slots(options.id, options.slots, *regions_);
    listener_->expect(std::move(options), checked, std::move(handler));
  }
  void cancel_expect(const ChannelId& id) override { listener_->cancel_expect(id); }
  void connect(ConnectOptions options, ConnectHandler handler) override;
  void cancel_connect(const ChannelId& id) override;

  Result<RegionKey> register_region(std::span<std::byte> memory) override;
  Result<DeviceRegion> register_device_memory(const DeviceMemory& memory) override;
  void deregister_region(RegionKey key) override {
    if (upgrader_ != nullptr) upgrader_->remove_region(key);
    regions_->remove(key);
  }

  uint64_t rejected() const override { return listener_->rejected(); }
  uint64_t forged() const override { return *forged_; }
  void stop() override;

 private:
  boost::asio::io_context& io_;
  const std::shared_ptr<tcp::Wires> wires_;
  const std::shared_ptr<tcp::Upgrader> upgrader_;  // Null if there is none.
  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  const std::shared_ptr<tcp::SocketTuner> tuner_;
  const Protection protection_;
  const std::shared_ptr<uint64_t> forged_ = std::make_shared<uint64_t>(0);
  const std::shared_ptr<tcp::Listener> listener_;
  std::map<ChannelId, std::shared_ptr<tcp::Connector>> connectors_;
};

void TcpTransport::connect(ConnectOptions options, ConnectHandler handler) {
  const ChannelId id = options.id;
  auto done = [this, id, handler](Result<std::unique_ptr<SendChannel>> result) {
    const std::shared_ptr<tcp::Connector> connector = std::move(connectors_.at(id));
    connectors_.erase(id);
    // The handler may destroy the transport: nothing of it is touched behind this line.
    handler(std::move(result));
  };
  auto connector =
      std::make_shared<tcp::Connector>(io_, std::move(options), tuner_, wires_, regions_, upgrader_,
                                       protection_, forged_, std::move(done));
  if (!connectors_.emplace(id, connector).second) {
    boost::asio::post(io_, [id, handler] { handler(taken(id)); });
    return;
  }
  connector->start();
}

Result<RegionKey> TcpTransport::register_region(std::span<std::byte> memory) {
  Result<RegionKey> key = regions_->add(memory);
  if (!key.is_ok() || upgrader_ == nullptr) return key;
  if (Status status = upgrader_->add_region(key.value(), memory); !status.is_ok()) {
    regions_->remove(key.value());
    return status;
  }
  return key;
}

Result<DeviceRegion> TcpTransport::register_device_memory(const DeviceMemory& memory) {
  if (upgrader_ == nullptr) return Transport::register_device_memory(memory);
  Result<DeviceRegion> region = regions_->add_device(memory.bytes);
  if (!region.is_ok()) return region;
  const RegionKey key = region.value().key;
  if (Status status = upgrader_->add_device_memory(key, memory, region.value().base);
      !status.is_ok()) {
    regions_->remove(key);
    return status;
  }
  return region;
}

void TcpTransport::cancel_connect(const ChannelId& id) {
  const auto found = connectors_.find(id);
  if (found == connectors_.end()) return;
  found->second->cancel();
  connectors_.erase(found);
}

void TcpTransport::stop() {
  listener_->stop();
  for (const auto& [id, connector] : std::exchange(connectors_, {})) connector->cancel();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(boost::asio::io_context& io, TcpOptions options,
                                              std::shared_ptr<tcp::Upgrader> upgrader,
                                              std::shared_ptr<tcp::Wires> wires) {
  if (wires == nullptr) wires = tcp::make_tcp_wires();
  return std::make_unique<TcpTransport>(io, std::move(options), std::move(upgrader),
                                        std::move(wires));
}

}  // namespace rueda::transport
