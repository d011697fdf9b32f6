// Recovery in an epoch that is not sealed: leases, acknowledgements, deliveries (R1, R2, R5).

#include <algorithm>

#include "daemon/core/model/mutants.h"
#include "daemon/core/recovery/recovery.h"

namespace rueda::core {

bool Recovery::may_launch(int64_t bytes, Track track) const {
  const int64_t unstable = held(track).bytes();
  return state_ == RecoveryState::kRunning &&
         (unstable == 0 || unstable + bytes <= options_.max_unstable_bytes ||
          RUEDA_MUTANT(kBoundIgnored));
}

ByTrack<Seq> Recovery::complete() const {
  return {held(Track::kLockable).complete(), held(Track::kDecreed).complete()};
}

void Recovery::on_launched(TicksMs now, Seq seq, int64_t bytes, size_t chunks,
                           const LaunchName& name, RecoveryOutput& output) {
  RUEDA_CHECK(state_ == RecoveryState::kRunning);
  now_ = now;
  Holdings& holdings = held(track_of(seq));
  holdings.launch(seq, {bytes, chunks, name, epoch_, contributors()});
  if (RUEDA_MUTANT(kPartialFreedEarly) && holdings.free_partial(seq)) {
    output.freed_partials.push_back(seq);
  }
  deliver_and_free(output);
}

void Recovery::on_refused(TicksMs now, Seq seq, uint32_t generation, RefusedPtr refused) {
  RUEDA_CHECK(state_ == RecoveryState::kRunning);
  now_ = now;
  held(track_of(seq)).refuse(seq, generation, std::move(refused));
}

void Recovery::on_cancelled(Seq first) {
  if (state_ == RecoveryState::kRunning) held(Track::kLockable).cancel_from(first);
}

void Recovery::hold_deliveries(TicksMs now, bool hold, RecoveryOutput& output) {
  now_ = now;
  deliveries_held_ = hold;
  deliver_and_free(output);
}

void Recovery::on_chunk(TicksMs now, Seq seq, size_t chunk, RecoveryOutput& output) {
  now_ = now;
  // Once sealed, the report must stay true.
  if (state_ != RecoveryState::kRunning && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
  Holdings& holdings = held(track_of(seq));
  if (!holdings.add_chunk(seq, chunk)) return;
  if (holdings.free_partial(seq)) output.freed_partials.push_back(seq);
  // Otherwise frames, or at the latest heartbeats, carry it.
  const bool traffic_stops =
      !held(Track::kLockable).any_under_way() && !held(Track::kDecreed).any_under_way();
  const bool much_is_unstable = 2 * holdings.bytes() > options_.max_unstable_bytes;
  deliver_and_free(output);
  if (!traffic_stops || !much_is_unstable) return;
  for (const NodeIndex member : members()) {
    if (member != self_) send(member, Acknowledge{complete()}, output);
  }
}

void Recovery::on_whole(TicksMs now, Seq seq, RecoveryOutput& output) {
  if (!held(track_of(seq)).holds(seq)) return;
  const size_t chunks = held(track_of(seq)).at(seq).chunks.size();
  for (size_t chunk = 0; chunk < chunks; ++chunk) on_chunk(now, seq, chunk, output);
}

void Recovery::on_stable(TicksMs now, Seq stable, RecoveryOutput& output) {
  now_ = now;
  Seq& known = known_stable_[index_of(track_of(stable))];
  known = std::max(known, stable);
  deliver_and_free(output);
}

void Recovery::deliver_and_free(RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
  for (const Track track : {Track::kLockable, Track::kDecreed}) {
    Holdings& holdings = held(track);
    if (has_lease(now_) || RUEDA_MUTANT(kDeliverWithoutLease)) deliver_track(holdings, output);
    const Seq up_to = stable(track);
    while (holdings.free_next_final(up_to)) output.freed_finals.push_back(holdings.freed());
  }
}

void Recovery::deliver_track(Holdings& holdings, RecoveryOutput& output) {
  if (deliveries_held_) return;
  for (Seq seq{holdings.freed().value + 1}; seq < holdings.next_seq(); ++seq.value) {
    HeldOperation& operation = holdings.at(seq);
    if (!operation.whole() || operation.delivered) continue;
    operation.delivered = true;
    output.deliveries.push_back({seq, operation.epoch, operation.contributors});
  }
}

Seq Recovery::stable(Track track) const {
  Seq least = held(track).complete();
  // Policy `fail` never goes back to F.
  if (!holds_for_recovery() || RUEDA_MUTANT(kFinalFreedEarly)) return least;
  for (const NodeIndex member : members()) {
    if (member != self_) least = std::min(least, peer(member).complete[index_of(track)]);
  }
  return std::max(least, known_stable_[index_of(track)]);
}

bool Recovery::has_lease(TicksMs now) const {
  if (!has_heartbeats()) return true;
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
  for (size_t track = 0; track < kTracks; ++track) {
    sender.complete[track] = std::max(sender.complete[track], heartbeat.complete[track]);
  }
  // It has entered the epoch, and cannot deliver until it is heard.
  if (first || is_witness()) send_heartbeat(from, output);
  deliver_and_free(output);
}

void Recovery::on(NodeIndex from, const Acknowledge& acknowledge, RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning) return;
  for (size_t track = 0; track < kTracks; ++track) {
    Seq& known = peer(from).complete[track];
    known = std::max(known, acknowledge.complete[track]);
  }
  deliver_and_free(output);
}

void Recovery::send_heartbeat(NodeIndex to, RecoveryOutput& output) {
  send(to, Heartbeat{now_, peer(to).sent, complete()}, output);
}

void Recovery::send_heartbeats(RecoveryOutput& output) {
  next_heartbeat_ = now_ + options_.heartbeat_ms;
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter != self_) send_heartbeat(voter, output);
  }
}

std::vector<NodeIndex> Recovery::silent_peers() const {
  std::vector<NodeIndex> silent;
  for (const NodeIndex member : members()) {
    if (member != self_ && now_ >= peer(member).heard + options_.suspicion_ms) {
      silent.push_back(member);
    }
  }
  return silent;
}

}  // namespace rueda::core
