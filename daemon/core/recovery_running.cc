// Recovery in an epoch that is not sealed: leases, acknowledgements, deliveries (R1, R2, R5).

#include <algorithm>

#include "daemon/core/mutants.h"
#include "daemon/core/recovery.h"

namespace rueda::core {

bool Recovery::may_launch(int64_t bytes) const {
  return state_ == RecoveryState::kRunning &&
         (holdings_.bytes() == 0 || holdings_.bytes() + bytes <= options_.max_unstable_bytes);
}

void Recovery::on_launched(TicksMs now, Seq seq, int64_t bytes, size_t chunks,
                           RecoveryOutput& output) {
  RUEDA_CHECK(state_ == RecoveryState::kRunning);
  now_ = now;
  holdings_.launch(seq, bytes, chunks, epoch_, contributors());
  deliver_and_free(output);
}

void Recovery::on_chunk(TicksMs now, Seq seq, size_t chunk, RecoveryOutput& output) {
  now_ = now;
  // Once sealed, the report must stay true.
  if (state_ != RecoveryState::kRunning && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
  const bool became_whole = holdings_.add_chunk(seq, chunk);
  if (RUEDA_MUTANT(kPartialFreedEarly) && holdings_.holds(seq) && holdings_.free_partial(seq)) {
    output.freed_partials.push_back(seq);
  }
  if (!became_whole) return;
  if (holdings_.free_partial(seq)) output.freed_partials.push_back(seq);
  // Otherwise frames, or at the latest heartbeats, carry it.
  const bool traffic_stops = !holdings_.any_under_way();
  const bool much_is_unstable = 2 * holdings_.bytes() > options_.max_unstable_bytes;
  deliver_and_free(output);
  if (!traffic_stops || !much_is_unstable) return;
  for (const NodeIndex member : members()) {
    if (member != self_) send(member, Acknowledge{holdings_.complete()}, output);
  }
}

void Recovery::on_stable(TicksMs now, Seq stable, RecoveryOutput& output) {
  now_ = now;
  known_stable_ = std::max(known_stable_, stable);
  deliver_and_free(output);
}

void Recovery::deliver_and_free(RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
  if (has_lease(now_) || RUEDA_MUTANT(kDeliverWithoutLease)) {
    for (Seq seq{holdings_.freed().value + 1}; seq < holdings_.next_seq(); ++seq.value) {
      HeldOperation& operation = holdings_.at(seq);
      if (!operation.whole() || operation.delivered) continue;
      operation.delivered = true;
      output.deliveries.push_back({seq, operation.epoch, operation.contributors});
    }
  }
  const Seq up_to = stable();
  while (holdings_.free_next_final(up_to)) output.freed_finals.push_back(holdings_.freed());
}

Seq Recovery::stable() const {
  // Policy `fail` never goes back to F.
  if (!holds_for_recovery() || RUEDA_MUTANT(kFinalFreedEarly)) return holdings_.complete();
  Seq least = holdings_.complete();
  for (const NodeIndex member : members()) {
    if (member != self_) least = std::min(least, peer(member).complete);
  }
  return std::max(least, known_stable_);
}

bool Recovery::has_lease(TicksMs now) const {
  return quorum_.reached_by([&](NodeIndex voter) {
    return voter == self_ || (peer(voter).echo && now < *peer(voter).echo + options_.lease_ms);
  });
}

void Recovery::on(NodeIndex from, const Heartbeat& heartbeat, RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning) return;
  Peer& sender = peer(from);
  const bool first = !sender.sent;
  sender.heard = now_;
  sender.sent = std::max(sender.sent.value_or(heartbeat.sent), heartbeat.sent);
  if (heartbeat.echo)
    sender.echo = std::max(sender.echo.value_or(*heartbeat.echo), *heartbeat.echo);
  sender.complete = std::max(sender.complete, heartbeat.complete);
  // It has entered the epoch, and cannot deliver until it is heard.
  if (first) send_heartbeat(from, output);
  deliver_and_free(output);
}

void Recovery::on(NodeIndex from, const Acknowledge& acknowledge, RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning) return;
  peer(from).complete = std::max(peer(from).complete, acknowledge.complete);
  deliver_and_free(output);
}

void Recovery::send_heartbeat(NodeIndex to, RecoveryOutput& output) {
  send(to, Heartbeat{now_, peer(to).sent, holdings_.complete()}, output);
}

void Recovery::send_heartbeats(RecoveryOutput& output) {
  next_heartbeat_ = now_ + options_.heartbeat_ms;
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter != self_) send_heartbeat(voter, output);
  }
}

std::vector<NodeIndex> Recovery::silent_peers() const {
  std::vector<NodeIndex> silent;
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter != self_ && now_ >= peer(voter).heard + options_.suspicion_ms) {
      silent.push_back(voter);
    }
  }
  return silent;
}

}  // namespace rueda::core
