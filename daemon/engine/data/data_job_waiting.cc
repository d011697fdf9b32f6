// What a job of the data plane waits for: progress, quiet, and who stands still.
#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "daemon/engine/data/data_job.h"

namespace rueda::engine {

void DataJob::watch_progress() {
  if (std::exchange(is_watching_, true)) return;
  const TicksMs now = steady_now_ms();
  for (auto* const taken : {&taken_by_ring_, &taken_by_mesh_}) {
    for (auto& [peer, item] : *taken) item.since_ms = now;
  }
  look_for_progress();
}

void DataJob::look_for_progress() {
  const TicksMs period_ms = std::max<TicksMs>(options_.timeout_ms / 4, 1);
  const TicksMs due_ms = steady_now_ms() + period_ms;
  progress_timer_.expires_after(std::chrono::milliseconds(period_ms));
  progress_timer_.async_wait(
      [this, alive = alive_, period_ms, due_ms](const boost::system::error_code& error) {
        if (error || !*alive) return;
        if (stopped_ || (!is_waiting() && is_quiet())) {
          is_watching_ = false;
          return;
        }
        const TicksMs now = steady_now_ms();
        if (now - due_ms > period_ms) {
          // This daemon itself was stopped: what came meanwhile is still to be read.
          last_progress_ms_ = now;
          is_watching_ = false;
          return watch_progress();
        }
        look_at_channels(now);
        if (stopped_) return;
        const NodeIndex silent = culprit();
        // A part of this node stands still because one behind it does, which says so itself.
        const bool is_here = options_.node_ids[static_cast<size_t>(silent.value)] ==
                             options_.node_ids[static_cast<size_t>(options_.self.value)];
        if (waits_for_application() || is_here) last_progress_ms_ = now;
        if (now - last_progress_ms_ < options_.timeout_ms) return look_for_progress();
        give_up(silent, Status(Code::kTimeout, describe_silence(silent)));
      });
}

// While a member has not launched it, an operation waits for that member's application. A node
// whose channel has closed launches nothing more.
bool DataJob::waits_for_application() const {
  if (!is_waiting()) return true;  // what has left is looked at by itself
  const bool waits_for_peers =
      has_closed_peer_ || !is_open() || !waiting_.empty() ||
      std::any_of(running_.begin(), running_.end(),
                  [](const auto& running) { return running->launched_everywhere; });
  return !waits_for_peers;
}

// A slow path is no silence: bytes count, and not only whole frames.
void DataJob::look_at_channels(TicksMs now) {
  const uint64_t received =
      (receive_ ? receive_->bytes_received() : 0) + (mesh_ ? mesh_->bytes_received() : 0);
  if (std::exchange(seen_received_, received) != received) last_progress_ms_ = now;
  if (send_ && !send_closed_) look_at(next(), *send_, taken_by_ring_[next()], now);
  if (!mesh_) return;
  mesh_->for_each_outlet([&](NodeIndex peer, const transport::SendChannel& channel) {
    look_at(peer, channel, taken_by_mesh_[peer], now);
  });
}

void DataJob::look_at(NodeIndex peer, const transport::SendChannel& channel, Taken& taken,
                      TicksMs now) {
  const uint64_t unacknowledged = channel.bytes_unacknowledged();
  const uint64_t bytes = channel.bytes_sent() - unacknowledged;
  const bool is_first = taken.since_ms == 0;
  if (taken.bytes != bytes) last_progress_ms_ = now;
  if (is_first || taken.bytes != bytes || unacknowledged == 0) {
    taken = {bytes, now};
    return;
  }
  if (now - taken.since_ms < options_.timeout_ms) return;
  const auto id = [&](NodeIndex node) {
    return options_.node_ids[static_cast<size_t>(node.value)];
  };
  std::string text = "of what node " + id(options_.self) + " sent it, " +
                     std::to_string(unacknowledged) + " bytes were not acknowledged for " +
                     std::to_string(options_.timeout_ms) + " ms";
  const uint32_t packet = channel.packet_bytes();
  if (packet > 0 && unacknowledged >= packet) {
    text += "; small packets passed when the connection was opened: can those of " +
            std::to_string(packet) + " bytes and their headers pass from node " +
            id(options_.self) + " to node " + id(peer) + " (MTU)?";
  }
  give_up(peer, Status(Code::kTimeout, text));
}

std::string DataJob::describe_silence(NodeIndex peer) const {
  const std::string here = "node " + options_.node_ids[static_cast<size_t>(options_.self.value)];
  const std::string within = " for " + std::to_string(options_.timeout_ms) + " ms";
  const bool is_taking = peer == next() && !outbox_.is_quiet();
  std::string text = is_taking ? "it took nothing of what " + here + " sent it" + within
                               : here + " got nothing from it" + within;
  if (!is_open()) {
    text += " while the network was measured";
    if (largest_probe_ > 0 && !is_taking) {
      text += "; messages of " + std::to_string(largest_probe_) +
              " bytes came, and larger ones did not: can large packets pass (MTU)?";
    }
    return text;
  }
  if (!is_waiting()) return text;
  const Seq seq = running_.empty() ? waiting_.front()->seq : running_.front()->operation->seq;
  text += " while operation " + std::to_string(core::number_of(seq)) + " was under way";
  if (is_taking) return text;
  return text +
         "; does its daemon stand still, or can large packets not pass from it to here (MTU)?";
}

NodeIndex DataJob::culprit() const {
  if (!running_.empty() && running_.front()->is_exchanged) {
    if (const std::optional<NodeIndex> awaited = awaited_peer(*running_.front())) return *awaited;
  }
  // If the next node still holds what was sent to it, it is the one that stands still.
  return outbox_.is_quiet() ? previous() : next();
}

bool DataJob::awaits_frames() const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& running) {
    if (running->is_exchanged || !running->launched_everywhere) return false;
    for (uint32_t chunk = 0; chunk < running->cut.chunks(); ++chunk) {
      for (const core::RingPhase phase : {core::RingPhase::kReduce, core::RingPhase::kGather}) {
        const size_t index = size_t{chunk} * 2 + (phase == core::RingPhase::kReduce ? 0 : 1);
        if (!running->received[index] &&
            core::steps_taken(route(*running, chunk), phase, options_.self, nodes())) {
          return true;
        }
      }
    }
    return false;
  });
}

void DataJob::when_quiet(std::function<void()> handler) {
  quiet_handlers_.push_back(std::move(handler));
  if (nodes() > 1 && !stopped_ && !is_quiet()) watch_progress();
  check_quiet();
}

void DataJob::check_quiet() {
  if (quiet_handlers_.empty() || !(is_quiet() || stopped_)) return;
  for (auto& waiting : std::exchange(quiet_handlers_, {})) waiting();
}

void DataJob::count_traffic() {
  if (!send_ || !receive_) return;
  const auto count = [&](NodeIndex peer, uint64_t sent, uint64_t received) {
    std::shared_ptr<observe::PeerMetrics>& series = traffic_[peer];
    if (!series) {
      series = metrics_.peer(options_.node_ids[static_cast<size_t>(peer.value)], transport_.name());
    }
    series->sent_bytes.Increment(static_cast<double>(sent));
    series->received_bytes.Increment(static_cast<double>(received));
  };
  const uint64_t sent = send_->bytes_sent();
  const uint64_t received = receive_->bytes_received();
  count(next(), sent - std::exchange(counted_sent_, sent), 0);
  count(previous(), 0, received - std::exchange(counted_received_, received));
  if (mesh_) mesh_->take_traffic(count);
}

}  // namespace rueda::engine
