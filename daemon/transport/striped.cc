#include "daemon/transport/striped.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/striped_channels.h"

namespace rueda::transport {

namespace {

ChannelId stream_of(ChannelId id, uint32_t stream) {
  id.stream = stream;
  return id;
}

// A channel whose streams are not all open yet.
template <class Options, class Channel, class Handler>
struct Opening {
  Options options;
  Handler handler;
  std::unique_ptr<Channel> channel;
  TicksMs started_ms = steady_now_ms();
  uint32_t missing = 0;
};
using Connecting = Opening<ConnectOptions, StripedSendChannel, ConnectHandler>;
using Expecting = Opening<AcceptOptions, StripedReceiveChannel, AcceptHandler>;

// Opens the channel and tells the handler. The handler may destroy the transport, so nothing of the
// transport is touched after that.
template <class Channel, class Opening>
void finish(Opening opening, const Status& status) {
  if (!status.is_ok()) return opening.handler(status);
  opening.channel->open();
  opening.handler(std::unique_ptr<Channel>(std::move(opening.channel)));
}

class StripedTransport final : public Transport {
 public:
  StripedTransport(boost::asio::io_context& io, std::unique_ptr<Transport> inner, uint32_t streams)
      : io_(io), inner_(std::move(inner)), streams_(streams) {}

  const char* name() const override { return inner_->name(); }
  Status is_viable() const override { return inner_->is_viable(); }
  Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  void expect(AcceptOptions options, AcceptHandler handler) override;
  void cancel_expect(const ChannelId& id) override;
  void connect(ConnectOptions options, ConnectHandler handler) override;
  void cancel_connect(const ChannelId& id) override;
  Result<RegionKey> register_region(std::span<std::byte> memory) override {
    return inner_->register_region(memory);
  }
  Result<DeviceRegion> register_device_memory(const DeviceMemory& memory) override {
    return inner_->register_device_memory(memory);
  }
  void deregister_region(RegionKey key) override { inner_->deregister_region(key); }
  uint64_t rejected() const override { return inner_->rejected(); }
  uint64_t forged() const override { return inner_->forged(); }
  void stop() override;

 private:
  void connect_stream(Connecting& connecting, uint32_t stream);
  void on_connected(const ChannelId& id, uint32_t stream,
                    Result<std::unique_ptr<SendChannel>> result);
  void on_accepted(const ChannelId& id, uint32_t stream,
                   Result<std::unique_ptr<ReceiveChannel>> result);

  boost::asio::io_context& io_;
  const std::unique_ptr<Transport> inner_;
  const uint32_t streams_;
  std::map<ChannelId, Connecting> connecting_;
  std::map<ChannelId, Expecting> expecting_;
};

void StripedTransport::expect(AcceptOptions options, AcceptHandler handler) {
  const ChannelId id = options.id;
  if (id.stream != 0) return inner_->expect(std::move(options), std::move(handler));
  options.streams = streams_;
  if (expecting_.contains(id)) {
    boost::asio::post(io_, [id, handler = std::move(handler)] { handler(taken(id)); });
    return;
  }
  auto channel = std::make_unique<StripedReceiveChannel>(io_, options, streams_);
  AcceptOptions inner = options;
  const auto [place, is_new] = expecting_.try_emplace(
      id, Expecting{std::move(options), std::move(handler), std::move(channel)});
  RUEDA_CHECK(is_new);
  place->second.missing = streams_;
  for (uint32_t stream = 0; stream < streams_; ++stream) {
    inner.id = stream_of(id, stream);
    inner.events = &place->second.channel->events_of(stream);
    inner_->expect(inner, [this, id, stream](Result<std::unique_ptr<ReceiveChannel>> result) {
      on_accepted(id, stream, std::move(result));
    });
  }
}

void StripedTransport::on_accepted(const ChannelId& id, uint32_t stream,
                                   Result<std::unique_ptr<ReceiveChannel>> result) {
  Expecting& expecting = expecting_.at(id);
  const Status status = result.status();
  if (result.is_ok()) {
    expecting.channel->set_stream(stream, std::move(result).value());
    if (--expecting.missing > 0) return;
  }
  Expecting done = std::move(expecting);
  cancel_expect(id);
  finish<ReceiveChannel>(std::move(done), status);
}

void StripedTransport::cancel_expect(const ChannelId& id) {
  if (id.stream != 0) return inner_->cancel_expect(id);
  for (uint32_t stream = 0; stream < streams_; ++stream) {
    inner_->cancel_expect(stream_of(id, stream));
  }
  expecting_.erase(id);
}

// An error of the channel shows in its first stream; the other streams follow once the first is
// open.
void StripedTransport::connect(ConnectOptions options, ConnectHandler handler) {
  const ChannelId id = options.id;
  if (id.stream != 0) return inner_->connect(std::move(options), std::move(handler));
  options.streams = streams_;
  if (connecting_.contains(id)) {
    boost::asio::post(io_, [id, handler = std::move(handler)] { handler(taken(id)); });
    return;
  }
  auto channel = std::make_unique<StripedSendChannel>(io_, options, streams_);
  const auto [place, is_new] = connecting_.try_emplace(
      id, Connecting{std::move(options), std::move(handler), std::move(channel)});
  RUEDA_CHECK(is_new);
  place->second.missing = streams_;
  connect_stream(place->second, 0);
}

void StripedTransport::connect_stream(Connecting& connecting, uint32_t stream) {
  ConnectOptions inner = connecting.options;
  inner.id = stream_of(connecting.options.id, stream);
  inner.timeout_ms =
      std::max<int64_t>(inner.timeout_ms - (steady_now_ms() - connecting.started_ms), 0);
  inner.events = &connecting.channel->events_of(stream);
  inner_->connect(inner, [this, id = connecting.options.id,
                          stream](Result<std::unique_ptr<SendChannel>> result) {
    on_connected(id, stream, std::move(result));
  });
}

void StripedTransport::on_connected(const ChannelId& id, uint32_t stream,
                                    Result<std::unique_ptr<SendChannel>> result) {
  Connecting& connecting = connecting_.at(id);
  const Status status = result.status();
  if (result.is_ok()) {
    connecting.channel->set_stream(stream, std::move(result).value());
    if (stream == 0) {
      for (uint32_t other = 1; other < streams_; ++other) connect_stream(connecting, other);
    }
    if (--connecting.missing > 0) return;
  }
  Connecting done = std::move(connecting);
  cancel_connect(id);
  finish<SendChannel>(std::move(done), status);
}

void StripedTransport::cancel_connect(const ChannelId& id) {
  if (id.stream != 0) return inner_->cancel_connect(id);
  for (uint32_t stream = 0; stream < streams_; ++stream) {
    inner_->cancel_connect(stream_of(id, stream));
  }
  connecting_.erase(id);
}

void StripedTransport::stop() {
  inner_->stop();
  connecting_.clear();
  expecting_.clear();
}

}  // namespace

std::unique_ptr<Transport> make_striped_transport(boost::asio::io_context& io,
                                                  std::unique_ptr<Transport> inner,
                                                  uint32_t streams) {
  RUEDA_CHECK(streams >= 1 && streams <= kMaxStreams);
  if (streams == 1) return inner;
  return std::make_unique<StripedTransport>(io, std::move(inner), streams);
}

}  // namespace rueda::transport
