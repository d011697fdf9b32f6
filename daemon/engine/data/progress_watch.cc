#include "daemon/engine/data/progress_watch.h"

#include <chrono>

namespace rueda::engine {

void ProgressWatch::watch() {
  if (std::exchange(is_watching_, true)) return;
  const TicksMs now = steady_now_ms();
  for (auto& [channel, item] : taken_) item.since_ms = now;
  set_timer();
}

void ProgressWatch::set_timer() {
  const TicksMs due_ms = steady_now_ms() + period_ms();
  timer_.expires_after(std::chrono::milliseconds(period_ms()));
  timer_.async_wait(lifetime_.guard([this, due_ms](const boost::system::error_code& error) {
    if (!error) look(due_ms);
  }));
}

void ProgressWatch::look(TicksMs due_ms) {
  if (!host_.has_to_go_on()) {
    is_watching_ = false;
    return;
  }
  const TicksMs now = steady_now_ms();
  if (now - due_ms > period_ms()) {
    // This daemon itself was stopped: what came meanwhile is still to be read.
    last_progress_ms_ = now;
    is_watching_ = false;
    return watch();
  }
  if (!look_at_channels(now)) return;
  const std::optional<NodeIndex> silent = host_.culprit();
  if (!silent) last_progress_ms_ = now;
  if (!silent || now - last_progress_ms_ < options_.timeout_ms) return set_timer();
  host_.give_up(*silent, Status(Code::kTimeout, host_.describe_silence(*silent)));
}

// A slow path is no silence: bytes count, and not only whole frames.
bool ProgressWatch::look_at_channels(TicksMs now) {
  const uint64_t received = host_.bytes_received();
  if (std::exchange(seen_received_, received) != received) last_progress_ms_ = now;
  std::optional<std::pair<NodeIndex, Status>> lost;
  host_.for_each_outlet([&](NodeIndex peer, const transport::SendChannel& channel) {
    Status status = look_at(peer, channel, now);
    if (!lost && !status.is_ok()) lost.emplace(peer, std::move(status));
  });
  if (lost) host_.give_up(lost->first, lost->second);
  return !lost;
}

Status ProgressWatch::look_at(NodeIndex peer, const transport::SendChannel& channel, TicksMs now) {
  Taken& taken = taken_[&channel];
  const uint64_t unacknowledged = channel.bytes_unacknowledged();
  const uint64_t bytes = channel.bytes_sent() - unacknowledged;
  const bool is_first = taken.since_ms == 0;
  if (taken.bytes != bytes) last_progress_ms_ = now;
  if (is_first || taken.bytes != bytes || unacknowledged == 0) {
    taken = {bytes, now};
    return Status::ok();
  }
  if (now - taken.since_ms < options_.timeout_ms) return Status::ok();
  std::string text = "of what node " + options_.id(options_.self) + " sent it, " +
                     std::to_string(unacknowledged) + " bytes were not acknowledged for " +
                     std::to_string(options_.timeout_ms) + " ms";
  const uint32_t packet = channel.packet_bytes();
  if (packet > 0 && unacknowledged >= packet) {
    text += "; small packets passed when the connection was opened: can those of " +
            std::to_string(packet) + " bytes and their headers pass from node " +
            options_.id(options_.self) + " to node " + options_.id(peer) + " (MTU)?";
  }
  return {Code::kTimeout, text};
}

void ProgressWatch::when_quiet(std::function<void()> handler) {
  quiet_handlers_.push_back(std::move(handler));
  if (!host_.is_quiet()) watch();
  check_quiet();
}

void ProgressWatch::tell_quiet() {
  for (auto& waiting : std::exchange(quiet_handlers_, {})) waiting();
}

}  // namespace rueda::engine
