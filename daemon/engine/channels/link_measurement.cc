#include "daemon/engine/channels/link_measurement.h"

#include <chrono>
#include <utility>

namespace rueda::engine {
namespace {

// So much may be under way as a stream needs on 10 Gbit/s at 3 ms.
constexpr uint32_t kSlots = 32;
constexpr uint32_t kSlotBytes = 128 << 10;
// The beginning is not measured, because a stream begins slowly, and a shaper lets a burst through.
constexpr double kWarmUpS = 0.1;
constexpr double kMeasuredS = 0.2;
constexpr uint64_t kFewestCounted = 4;

std::chrono::milliseconds ms(TicksMs count) { return std::chrono::milliseconds(count); }

}  // namespace

// --- The source ----------------------------------------------------------------------------------

LinkSource::LinkSource(boost::asio::io_context& io, transport::Transport& transport,
                       const LinkMeasurement& measurement, const std::string& address, Done done)
    : transport_(transport),
      id_(measurement.channel()),
      done_(std::move(done)),
      memory_(kSlotBytes),
      region_(transport.register_region(memory_).value()),
      timer_(io) {
  transport::ConnectOptions options;
  options.address = address;
  options.id = id_;
  options.token = measurement.token;
  options.slot_count = kSlots;
  options.slot_bytes = kSlotBytes;
  options.timeout_ms = kLinkConnectMs;
  options.events = this;
  transport_.connect(options, [this](Result<std::unique_ptr<transport::SendChannel>> channel) {
    if (!channel.is_ok()) return finish(channel.status());
    on_connected(std::move(channel).value());
  });
}

LinkSource::~LinkSource() {
  if (!channel_) transport_.cancel_connect(id_);
  channel_.reset();
  transport_.deregister_region(region_);
}

void LinkSource::on_connected(std::unique_ptr<transport::SendChannel> channel) {
  channel_ = std::move(channel);
  connected_s_ = steady_now_s();
  timer_.expires_after(ms(kMaxLinkMeasurementMs));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (!error) give_up();
  }));
  for (uint32_t slot = 0; slot < kSlots; ++slot) write(slot);
}

void LinkSource::write(uint32_t slot) {
  transport::FrameHeader header;
  header.kind = transport::FrameKind::kProbe;
  header.slot = slot;
  header.job = id_.job.first;
  header.epoch = id_.epoch;
  header.payload_bytes = kSlotBytes;
  const transport::SendBuffer buffer{memory_.data(), memory_.size(), region_};
  ++under_way_;
  channel_->write(header, {&buffer, 1}, slot);
}

void LinkSource::on_slot_free(uint32_t slot) {
  const double now_s = steady_now_s();
  ++freed_;
  --under_way_;
  if (rate_ > 0) {
    if (under_way_ == 0) finish(rate_);
    return;
  }
  if (since_s_ > 0) {
    ++counted_;
    const double taken_s = now_s - since_s_;
    if (taken_s >= kMeasuredS && counted_ >= kFewestCounted) {
      rate_ = static_cast<double>(counted_ * kSlotBytes) / taken_s;
      return;
    }
  } else if (now_s - connected_s_ >= kWarmUpS) {
    since_s_ = now_s;
  }
  write(slot);
}

// Ends the measurement when its time is up. On a link this slow a burst at the beginning does not
// matter.
void LinkSource::give_up() {
  if (rate_ > 0) return finish(rate_);
  if (freed_ == 0) {
    return finish(Status(Code::kTimeout, "nothing came through in " +
                                             std::to_string(kMaxLinkMeasurementMs) + " ms"));
  }
  finish(static_cast<double>(freed_ * kSlotBytes) / (steady_now_s() - connected_s_));
}

void LinkSource::finish(Result<double> result) { std::exchange(done_, {})(std::move(result)); }

// --- The sink ------------------------------------------------------------------------------------

LinkSink::LinkSink(boost::asio::io_context& io, transport::Transport& transport,
                   const LinkMeasurement& measurement, std::function<void()> done)
    : transport_(transport),
      id_(measurement.channel()),
      done_(std::move(done)),
      memory_(size_t{kSlots} * kSlotBytes),
      region_(transport.register_region(memory_).value()),
      timer_(io) {
  transport::AcceptOptions options;
  options.id = id_;
  options.token = measurement.token;
  options.slots = {memory_.data(), kSlots, kSlotBytes, region_};
  options.timeout_ms = kLinkConnectMs + kMaxLinkMeasurementMs;
  options.events = this;
  transport_.expect(
      options, lifetime_.guard([this](Result<std::unique_ptr<transport::ReceiveChannel>> channel) {
        if (!channel.is_ok()) return finish();  // The source says why.
        channel_ = std::move(channel).value();
      }));
  // The sink ends in time, whatever the source does.
  timer_.expires_after(ms(2 * (kLinkConnectMs + kMaxLinkMeasurementMs)));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (!error) finish();
  }));
}

LinkSink::~LinkSink() {
  if (!channel_) transport_.cancel_expect(id_);
  channel_.reset();
  transport_.deregister_region(region_);
}

void LinkSink::finish() { std::exchange(done_, {})(); }

}  // namespace rueda::engine
