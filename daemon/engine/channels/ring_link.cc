#include "daemon/engine/channels/ring_link.h"

#include <utility>

namespace rueda::engine {

RingLink::RingLink(transport::Transport& transport, observe::Metrics& metrics,
                   RingLinkOptions options)
    : transport_(transport),
      metrics_(metrics),
      options_(std::move(options)),
      outbox_({.slots = geometry().slots(),
               .cookies = first_acknowledgement() + core::kTracks,
               .lanes = geometry().all_lanes() + 1}) {}  // The last lane is for acknowledgements.

Status RingLink::allocate() {
  Result<std::unique_ptr<Staging>> staging =
      Staging::make(transport_, metrics_, geometry().total_bytes(), options_.shares_staging);
  if (!staging.is_ok()) return staging.status();
  staging_ = std::move(staging).value();
  return Status::ok();
}

void RingLink::open(transport::SendEvents& send_events, transport::ReceiveEvents& receive_events,
                    Opened opened) {
  transport::AcceptOptions accept;
  accept.id = from_previous();
  accept.token = options_.token;
  accept.slots = {staging_->base(), geometry().slots(), geometry().slot_bytes, region()};
  accept.timeout_ms = options_.timeout_ms;
  accept.events = &receive_events;
  transport_.expect(
      accept,
      lifetime_.guard([this, opened](Result<std::unique_ptr<transport::ReceiveChannel>> channel) {
        const Status status = channel.status();
        if (status.is_ok()) receive_ = std::move(channel).value();
        opened(options_.previous, status);
      }));

  transport::ConnectOptions connect;
  connect.address = options_.next_address;
  connect.id = to_next();
  connect.token = options_.token;
  connect.slot_count = geometry().slots();
  connect.slot_bytes = geometry().slot_bytes;
  connect.timeout_ms = options_.timeout_ms;
  connect.events = &send_events;
  transport_.connect(connect,
                     lifetime_.guard([this, opened = std::move(opened)](
                                         Result<std::unique_ptr<transport::SendChannel>> channel) {
                       const Status status = channel.status();
                       if (status.is_ok()) {
                         send_ = std::move(channel).value();
                         outbox_.set_channel(send_.get());
                       }
                       opened(options_.next, status);
                     }));
}

void RingLink::stop_opening() {
  lifetime_.end();
  transport_.cancel_expect(from_previous());
  transport_.cancel_connect(to_next());
}

void RingLink::close() {
  send_.reset();
  receive_.reset();
}

RingLink::Traffic RingLink::take_traffic() {
  const uint64_t sent = send_->bytes_sent();
  const uint64_t received = receive_->bytes_received();
  return {sent - std::exchange(counted_sent_, sent),
          received - std::exchange(counted_received_, received)};
}

}  // namespace rueda::engine
