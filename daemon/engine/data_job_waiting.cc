// What a job of the data plane waits for: progress, quiet, and who stands still.
#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "daemon/engine/data_job.h"

namespace rueda::engine {

void DataJob::watch_progress() {
  progress_timer_.expires_after(
      std::chrono::milliseconds(std::max<TicksMs>(options_.timeout_ms / 4, 1)));
  progress_timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive || stopped_ || !is_waiting()) return;
    // While a member has not launched it, an operation waits for that member's application.
    const bool waits_for_peers =
        !is_open() || !waiting_.empty() ||
        std::any_of(running_.begin(), running_.end(),
                    [](const auto& running) { return running->launched_everywhere; });
    if (!waits_for_peers) last_progress_ms_ = steady_now_ms();
    if (steady_now_ms() - last_progress_ms_ < options_.timeout_ms) return watch_progress();
    give_up(culprit(), Status(Code::kTimeout, what_waits() + " made no progress for " +
                                                  std::to_string(options_.timeout_ms) + " ms"));
  });
}

std::string DataJob::what_waits() const {
  if (!is_open()) return "measuring the network";
  const Seq seq = running_.empty() ? waiting_.front()->seq : running_.front()->operation->seq;
  return "operation " + std::to_string(core::number_of(seq));
}

NodeIndex DataJob::culprit() const {
  if (!running_.empty() && running_.front()->is_exchanged) {
    if (const std::optional<NodeIndex> awaited = awaited_peer(*running_.front())) return *awaited;
  }
  // If the next node still holds what was sent to it, it is the one that stands still.
  return outbox_.is_quiet() ? previous() : next();
}

void DataJob::when_quiet(std::function<void()> handler) {
  quiet_handlers_.push_back(std::move(handler));
  if (quiet_handlers_.size() == 1) {
    quiet_timer_.expires_after(std::chrono::milliseconds(options_.timeout_ms));
    quiet_timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
      if (error || !*alive) return;
      for (auto& waiting : std::exchange(quiet_handlers_, {})) waiting();
    });
  }
  check_quiet();
}

void DataJob::check_quiet() {
  if (quiet_handlers_.empty() || !(is_quiet() || stopped_)) return;
  quiet_timer_.cancel();
  for (auto& waiting : std::exchange(quiet_handlers_, {})) waiting();
}

void DataJob::count_traffic() {
  if (!send_ || !receive_) return;
  const auto count = [&](NodeIndex peer, uint64_t sent, uint64_t received) {
    observe::PeerMetrics& series =
        metrics_.peer(options_.node_ids[static_cast<size_t>(peer.value)], transport_.name());
    series.sent_bytes.Increment(static_cast<double>(sent));
    series.received_bytes.Increment(static_cast<double>(received));
  };
  const uint64_t sent = send_->bytes_sent();
  const uint64_t received = receive_->bytes_received();
  count(next(), sent - std::exchange(counted_sent_, sent), 0);
  count(previous(), 0, received - std::exchange(counted_received_, received));
  if (mesh_) mesh_->take_traffic(count);
}

}  // namespace rueda::engine
