// A link measurement finds out how fast bytes go from one node to another over the data plane: for
// a moment a source writes frames, and a sink gives their slots back. Either end lives on a data
// loop and belongs to its thread. `done` is called there, once and last, and may destroy the
// object. Destroying an end ends its measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/clock.h"
#include "daemon/base/lifetime.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// Both ends of a measurement must have been told the same of it.
struct LinkMeasurement {
  uint64_t probe = 0;  // The run of `ruedactl probe` that the measurement is part of.
  uint32_t pair = 0;   // The number of the pair of nodes within the run.
  transport::JobToken token{};

  // Returns a channel of a process set that no job has, because whoever asks for a measurement
  // chooses the other numbers.
  transport::ChannelId channel() const {
    return {
        .job = transport::JobKey(probe), .epoch = pair, .to_node = 1, .process_set = UINT32_MAX};
  }
};

// A connection may take so long, and then the measurement.
inline constexpr TicksMs kLinkConnectMs = 2'000;
inline constexpr TicksMs kMaxLinkMeasurementMs = 3'000;

class LinkSource final : private transport::SendEvents {
 public:
  // The result is in bytes per second; the error says why nothing came through.
  using Done = std::function<void(Result<double>)>;

  LinkSource(boost::asio::io_context& io, transport::Transport& transport,
             const LinkMeasurement& measurement, const std::string& address, Done done);
  ~LinkSource() override;

 private:
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t slot) override;
  void on_closed(const Status& status) override { finish(status); }

  void on_connected(std::unique_ptr<transport::SendChannel> channel);
  void write(uint32_t slot);
  void give_up();
  void finish(Result<double> result);

  transport::Transport& transport_;
  const transport::ChannelId id_;
  Done done_;
  std::vector<std::byte> memory_;
  transport::RegionKey region_;
  std::unique_ptr<transport::SendChannel> channel_;
  boost::asio::steady_timer timer_;
  double connected_s_ = 0;
  uint64_t freed_ = 0;  // Slots that came back since the source was connected.
  // The measurement begins with the first slot that came back once the stream had found its pace.
  double since_s_ = 0;
  uint64_t counted_ = 0;
  uint32_t under_way_ = 0;  // The number of slots under way.
  // Bytes per second, once they are known. Then the source only waits until what is under way has
  // come back, to disturb nobody.
  double rate_ = 0;
  Lifetime lifetime_;
};

class LinkSink final : private transport::ReceiveEvents {
 public:
  LinkSink(boost::asio::io_context& io, transport::Transport& transport,
           const LinkMeasurement& measurement, std::function<void()> done);
  ~LinkSink() override;

  uint64_t probe() const { return id_.job.first; }
  bool is_connected() const { return channel_ != nullptr; }

 private:
  void on_frame(const transport::FrameHeader& header, std::span<std::byte>) override {
    channel_->release(header.slot);
  }
  void on_closed(const Status&) override { finish(); }
  void finish();

  transport::Transport& transport_;
  const transport::ChannelId id_;
  std::function<void()> done_;
  std::vector<std::byte> memory_;
  transport::RegionKey region_;
  std::unique_ptr<transport::ReceiveChannel> channel_;
  boost::asio::steady_timer timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
