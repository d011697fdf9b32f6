#include "daemon/core/recovery/recovery.h"

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"

namespace rueda::core {
Recovery::Recovery(const Layout& layout, NodeIndex self, const RecoveryOptions& options,
                   Epoch epoch)
    : layout_(&layout),
      self_(self),
      options_(options),
      epoch_(epoch),
      quorum_(layout.members(), witness()),
      peers_(static_cast<size_t>(layout.node_count()) + 1) {
  RUEDA_CHECK(options.lease_ms < options.eviction_ms);
  RUEDA_CHECK(options.heartbeat_ms > 0 || options.policy == DeathPolicy::kFail);
  RUEDA_CHECK(self.value < layout.node_count() || options.has_witness);
}

std::optional<NodeIndex> Recovery::witness() const {
  if (!options_.has_witness) return std::nullopt;
  return NodeIndex{layout_->node_count()};
}

bool Recovery::is_member(NodeIndex node) const {
  return std::binary_search(members().begin(), members().end(), node);
}

bool Recovery::is_voter(NodeIndex node) const {
  const auto& voters = quorum_.voters();
  return std::find(voters.begin(), voters.end(), node) != voters.end();
}

void Recovery::start(TicksMs now, RecoveryOutput& output) {
  now_ = now;
  for (Peer& each : peers_) each.heard = now;
  auto how_it_began = std::make_shared<Decision>();
  how_it_began->epoch = epoch_;
  how_it_began->members = members();
  last_decision_ = std::move(how_it_began);
  if (is_member(self_) && has_heartbeats()) send_heartbeats(output);
}

// --- Messages ------------------------------------------------------------------------------------

void Recovery::on_message(TicksMs now, const RecoveryMessage& message, RecoveryOutput& output) {
  now_ = now;
  if (const auto* learn = std::get_if<Learn>(&message.body)) {
    on(message.from, *learn, output);
    return;
  }
  if (message.epoch < epoch_) {
    // Only questions are answered; answers to what was asked in an old epoch are ignored.
    const bool waits_for_answer = std::holds_alternative<Heartbeat>(message.body) ||
                                  std::holds_alternative<Prepare>(message.body) ||
                                  std::holds_alternative<Accept>(message.body) ||
                                  std::holds_alternative<Ask>(message.body);
    if (waits_for_answer && last_decision_) send(message.from, Learn{last_decision_}, output);
    return;
  }
  if (state_ == RecoveryState::kEnded) return;
  if (message.epoch > epoch_) {
    send(message.from, Ask{}, output);
    return;
  }
  if (!is_voter(message.from) || !is_voter(self_)) return;
  const bool is_about_the_end =
      std::holds_alternative<Prepare>(message.body) || std::holds_alternative<Accept>(message.body);
  if (is_about_the_end) seal(output);
  if (state_ == RecoveryState::kSealing) {
    if (is_about_the_end) early_.push_back(message);
    return;
  }
  std::visit([&](const auto& body) { on(message.from, body, output); }, message.body);
}

void Recovery::on(NodeIndex, const Ask&, RecoveryOutput&) {
  // The question is about this epoch, which has not ended yet.
}

void Recovery::on(NodeIndex, const Learn& learn, RecoveryOutput& output) {
  if (state_ == RecoveryState::kEnded || learn.decision->epoch <= epoch_) return;
  adopt(learn.decision, output);
}

void Recovery::send(NodeIndex to, decltype(RecoveryMessage::body) body, RecoveryOutput& output) {
  output.sends.emplace_back(to, RecoveryMessage{self_, epoch_, std::move(body)});
}

// --- R3: suspicion and seal ----------------------------------------------------------------------

void Recovery::on_suspicion(TicksMs now, NodeIndex node, const std::string& reason,
                            RecoveryOutput& output) {
  now_ = now;
  if (state_ == RecoveryState::kEnded || node == self_ || !is_member(node)) return;
  peer(node).suspected = true;
  if (reason_.empty()) reason_ = reason;
  seal(output);
  if (state_ == RecoveryState::kSealed) continue_proposing(output);
}

void Recovery::withdraw(TicksMs now, const std::string& reason, RecoveryOutput& output) {
  now_ = now;
  if (state_ == RecoveryState::kEnded) return;
  withdraws_ = true;
  if (reason_.empty()) reason_ = reason;
  seal(output);
}

void Recovery::seal(RecoveryOutput& output) {
  if (state_ != RecoveryState::kRunning) return;
  if (is_witness()) {  // A witness has nothing to stop.
    state_ = RecoveryState::kSealed;
    return;
  }
  state_ = RecoveryState::kSealing;
  output.sealed = true;
}

void Recovery::on_stopped(TicksMs now, const std::vector<HeldChunks>& held_chunks,
                          std::vector<Rank> left, RecoveryOutput& output) {
  now_ = now;
  if (state_ != RecoveryState::kSealing) return;
  state_ = RecoveryState::kSealed;
  left_ = std::move(left);
  for (const HeldChunks& operation : held_chunks) {
    for (size_t chunk = 0; chunk < operation.chunks.size(); ++chunk) {
      if (!operation.chunks[chunk]) continue;
      held(track_of(operation.seq)).add_chunk(operation.seq, chunk);
    }
  }
  sealed_at_ = now_;
  propose_at_ = now_ + options_.stagger_ms * turn();
  for (const RecoveryMessage& message : std::exchange(early_, {})) {
    on_message(now, message, output);
  }
}

NodeReport Recovery::report() const {
  return {{held(Track::kLockable).report(), held(Track::kDecreed).report()},
          left_,
          withdraws_,
          reason_};
}

// Returns how many members that are not suspected come before this node.
TicksMs Recovery::turn() const {
  return std::count_if(members().begin(), members().end(),
                       [&](NodeIndex member) { return member < self_ && !peer(member).suspected; });
}

void Recovery::on_time(TicksMs now, RecoveryOutput& output) {
  now_ = now;
  if (!is_member(self_)) return;
  if (state_ == RecoveryState::kRunning) {
    if (has_heartbeats() && now_ >= next_heartbeat_) send_heartbeats(output);
    for (const NodeIndex silent : silent_peers()) {
      on_suspicion(now_, silent, "nothing was heard of node " + name(silent), output);
    }
  }
  if (state_ != RecoveryState::kSealed) return;
  if (now_ >= sealed_at_ + options_.give_up_ms) {
    end_without_quorum(output);
  } else if (proposer_.phase() == Proposer::Phase::kIdle) {
    if (now_ >= propose_at_) start_proposing(output);
  } else {
    if (now_ >= resend_at_) request_votes(output);
    continue_proposing(output);
  }
}

std::optional<TicksMs> Recovery::deadline() const {
  if (!is_member(self_) || quorum_.voters().size() == 1) return std::nullopt;
  switch (state_) {
    case RecoveryState::kEnded:
    case RecoveryState::kSealing: return std::nullopt;
    case RecoveryState::kRunning: {
      if (!has_heartbeats()) return std::nullopt;
      TicksMs next = next_heartbeat_;
      for (const NodeIndex member : members()) {
        if (member != self_) next = std::min(next, peer(member).heard + options_.suspicion_ms);
      }
      return next;
    }
    case RecoveryState::kSealed: break;
  }
  const bool idle = proposer_.phase() == Proposer::Phase::kIdle;
  return std::min(idle ? propose_at_ : resend_at_, sealed_at_ + options_.give_up_ms);
}

// --- R4: one decision an epoch -------------------------------------------------------------------

void Recovery::start_proposing(RecoveryOutput& output) {
  const Ballot ballot{++highest_round_, self_};
  proposer_.prepare(ballot);
  RUEDA_CHECK(acceptor_.promise(ballot));
  proposer_.on_promise(self_,
                       Promise{ballot, acceptor_.accepted_in(), acceptor_.accepted(), report()});
  request_votes(output);
  continue_proposing(output);
}

// Another ballot is above this node's. Its proposer gets the time to finish, which it needs after
// the last lease is over.
void Recovery::step_back(Ballot above) {
  highest_round_ = std::max(highest_round_, above.round);
  proposer_.give_up();
  propose_at_ = std::max(now_, last_eviction_deadline()) + options_.retry_ms * (1 + turn());
}

void Recovery::request_votes(RecoveryOutput& output) {
  resend_at_ = now_ + options_.resend_ms;
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter == self_ || proposer_.has_vote(voter)) continue;
    if (proposer_.phase() == Proposer::Phase::kPreparing) {
      send(voter, Prepare{proposer_.ballot()}, output);
    } else {
      send(voter, Accept{proposer_.ballot(), proposer_.proposal()}, output);
    }
  }
}

void Recovery::continue_proposing(RecoveryOutput& output) {
  const auto has_quorum = [&] {
    return quorum_.reached_by([&](NodeIndex voter) { return proposer_.has_vote(voter); }) ||
           RUEDA_MUTANT(kEpochByMinority);
  };
  if (proposer_.phase() == Proposer::Phase::kPreparing) {
    if (!has_quorum()) return;
    const DecisionPtr decision = choose_proposal();
    if (!decision) return;
    proposer_.propose(decision);
    RUEDA_CHECK(acceptor_.accept(proposer_.ballot(), decision));
    proposer_.on_accepted(self_, proposer_.ballot());
    request_votes(output);
  }
  if (proposer_.phase() != Proposer::Phase::kAccepting || !has_quorum()) return;
  const DecisionPtr decision = proposer_.proposal();
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter != self_) send(voter, Learn{decision}, output);
  }
  adopt(decision, output);
}

// Returns the decision to propose, or null if that is not possible yet.
DecisionPtr Recovery::choose_proposal() const {
  if (const DecisionPtr& bound = proposer_.bound_to();
      bound && !RUEDA_MUTANT(kChosenDecisionIgnored)) {
    return may_accept(*bound) ? bound : nullptr;
  }
  if (!may_evict_absent()) return nullptr;
  std::map<NodeIndex, NodeReport> reports = proposer_.reports();
  if (witness()) reports.erase(*witness());
  return std::make_shared<const Decision>(
      decide(Epoch{epoch_.value + 1}, members(), reports, options_.policy));
}

void Recovery::on(NodeIndex from, const Prepare& prepare, RecoveryOutput& output) {
  const Ballot before = acceptor_.promised();
  if (!acceptor_.promise(prepare.ballot)) {
    send(from, Refuse{before}, output);
    return;
  }
  if (prepare.ballot > before) step_back(prepare.ballot);
  send(from, Promise{prepare.ballot, acceptor_.accepted_in(), acceptor_.accepted(), report()},
       output);
}

void Recovery::on(NodeIndex from, const Promise& promise, RecoveryOutput& output) {
  proposer_.on_promise(from, promise);
  continue_proposing(output);
}

void Recovery::on(NodeIndex from, const Accept& accept, RecoveryOutput& output) {
  // The message came too early, and will come again.
  if (!may_accept(*accept.decision)) return;
  const Ballot before = acceptor_.promised();
  if (!acceptor_.accept(accept.ballot, accept.decision)) {
    send(from, Refuse{before}, output);
    return;
  }
  if (accept.ballot > before) step_back(accept.ballot);
  send(from, Accepted{accept.ballot}, output);
}

void Recovery::on(NodeIndex from, const Accepted& accepted, RecoveryOutput& output) {
  proposer_.on_accepted(from, accepted.ballot);
  continue_proposing(output);
}

void Recovery::on(NodeIndex, const Refuse& refuse, RecoveryOutput&) {
  if (proposer_.phase() != Proposer::Phase::kIdle && refuse.promised > proposer_.ballot()) {
    step_back(refuse.promised);
  }
}

// --- R5: nobody is left out who could still deliver ----------------------------------------------

// Returns whether the node may be left out. Its lease counts from when it sent a heartbeat that
// this node heard, which is before this node heard it; and a sealed node answers no heartbeat.
bool Recovery::is_evictable(NodeIndex node) const {
  // Without heartbeats nobody goes on whom the node could differ from, so this is only the patience
  // to hear all who are there.
  if (!has_heartbeats()) {
    return node == self_ || peer(node).suspected || now_ >= sealed_at_ + options_.eviction_ms;
  }
  return node == self_ || now_ >= peer(node).heard + options_.eviction_ms;
}

bool Recovery::may_accept(const Decision& decision) const {
  // A node that has withdrawn has sealed the epoch, and delivers nothing.
  return !has_heartbeats() ||
         std::all_of(decision.lost.begin(), decision.lost.end(), [&](NodeIndex node) {
           return is_evictable(node) ||
                  std::binary_search(decision.withdrew.begin(), decision.withdrew.end(), node);
         });
}

bool Recovery::may_evict_absent() const {
  return std::all_of(members().begin(), members().end(), [&](NodeIndex member) {
    return proposer_.has_vote(member) || is_evictable(member);
  });
}

TicksMs Recovery::last_eviction_deadline() const {
  TicksMs last = now_;
  for (const NodeIndex member : members()) {
    if (member != self_) last = std::max(last, peer(member).heard + options_.eviction_ms);
  }
  return last;
}

// --- What a decision means here ------------------------------------------------------------------

void Recovery::adopt(const DecisionPtr& decision, RecoveryOutput& output) {
  last_decision_ = decision;
  const bool is_next = decision->epoch.value == epoch_.value + 1;
  epoch_ = decision->epoch;
  if (decision->ends_job) {
    end_job(describe_end(*decision), {}, output);
  } else if (is_witness() || (is_next && std::binary_search(decision->members.begin(),
                                                            decision->members.end(), self_))) {
    begin_epoch(*decision, output);
  } else {
    // This node missed a whole epoch, and was in none since: a member of an epoch has learned how
    // it began.
    end_job(Status(Code::kNodeLost,
                   "epoch " + std::to_string(epoch_.value) + " of the job began without node " +
                       name(self_) + ", of which the others had not heard for too long",
                   Origin{name(self_), {}}),
            is_next ? diverged_by(decision.get()) : diverged_by(nullptr), output);
  }
}

void Recovery::begin_epoch(const Decision& decision, RecoveryOutput& output) {
  NextEpoch next;
  next.epoch = decision.epoch;
  next.members = decision.members;
  next.lost = decision.lost;
  next.left = decision.left;
  next.reason = decision.reason;
  for (const RefusedAt& refused : decision.refused) {
    const RetentionTable& holdings = held(track_of(refused.seq));
    const bool ended_here = holdings.holds(refused.seq) && holdings.at(refused.seq).refused &&
                            holdings.at(refused.seq).name.generation == refused.generation;
    if (!ended_here) next.refused.push_back(refused.operation);
  }
  for (const Track track : {Track::kLockable, Track::kDecreed}) {
    carry_over(track, decision.tracks[index_of(track)], next);
  }
  output.next = std::move(next);

  state_ = RecoveryState::kRunning;
  quorum_ = Quorum(decision.members, witness());
  peers_.assign(peers_.size(), Peer{.heard = now_});
  known_stable_ = {};
  deliveries_held_ = false;
  early_.clear();
  reason_.clear();
  acceptor_ = Acceptor();
  proposer_ = Proposer();
  highest_round_ = 0;
  if (is_member(self_)) send_heartbeats(output);
  // The decision did not know of this node's withdrawal yet.
  if (withdraws_) seal(output);
  deliver_and_free(output);
}

void Recovery::carry_over(Track track, const TrackDecision& decision, NextEpoch& next) {
  RetentionTable& holdings = held(track);
  Seq seq = first_of(track);
  for (size_t i = 0; i < decision.operations.size(); ++i, ++seq.value) {
    const OperationVerdict& operation = decision.operations[i];
    const Seq was{decision.first.value + i};
    next.operations.push_back({was, seq, operation.verdict});
    if (operation.verdict != Verdict::kComplete || !holdings.holds(was)) continue;
    // No chunk is final without this node's part, so the node has launched what is complete
    // anywhere.
    const std::vector<bool>& chunks = holdings.at(was).chunks;
    RUEDA_CHECK(chunks.size() == operation.servers.size());
    for (size_t chunk = 0; chunk < operation.servers.size(); ++chunk) {
      if (!chunks[chunk]) next.fetches.push_back({seq, chunk, operation.servers[chunk]});
    }
  }
  if (!is_witness()) holdings = holdings.carried_over(decision);
  next.returned[index_of(track)] = decision.returned();
  if (RUEDA_MUTANT(kCarriedSeqUsedTwice) && seq > first_of(track)) --seq.value;
  next.next_seq[index_of(track)] = seq;
}

void Recovery::end_without_quorum(RecoveryOutput& output) {
  std::vector<NodeIndex> unheard;
  for (const NodeIndex voter : quorum_.voters()) {
    if (voter != self_ && !proposer_.has_vote(voter)) unheard.push_back(voter);
  }
  end_job(Status(Code::kNodeLost,
                 (reason_.empty() ? "epoch " + std::to_string(epoch_.value) + " broke" : reason_) +
                     "; without an answer of " + describe(unheard) + " node " + name(self_) +
                     " is not of a majority that could decide how to go on",
                 Origin{unheard.empty() ? std::string() : name(unheard.front()), {}}),
          {}, output);
}

void Recovery::end_job(Status status, std::vector<Seq> diverged, RecoveryOutput& output) {
  state_ = RecoveryState::kEnded;
  output.ended = JobEnd{std::move(status), std::move(diverged)};
}

// Returns the delivered operations that those who go on repeat. With null for a decision nobody
// knows what became of them, and all are returned.
std::vector<Seq> Recovery::diverged_by(const Decision* decision) const {
  std::vector<Seq> diverged;
  for (const Track track : {Track::kLockable, Track::kDecreed}) {
    const RetentionTable& holdings = held(track);
    const TrackDecision* decided = decision ? &decision->tracks[index_of(track)] : nullptr;
    for (Seq seq{holdings.freed().value + 1}; seq < holdings.next_seq(); ++seq.value) {
      if (!holdings.at(seq).delivered || holdings.at(seq).refused) continue;
      const bool repeated =
          !decided ||
          (seq >= decided->first && seq < decided->returned() &&
           decided->operations[seq.value - decided->first.value].verdict == Verdict::kRedo);
      if (repeated) diverged.push_back(seq);
    }
  }
  return diverged;
}

Status Recovery::describe_end(const Decision& decision) const {
  if (decision.irrecoverable != Seq{}) {
    return Status(Code::kInternal,
                  "operation " + std::to_string(decision.irrecoverable.value) +
                      " can be neither completed nor repeated: its values are lost with " +
                      describe(decision.lost));
  }
  if (!decision.reason.empty()) {
    const bool is_known = !decision.lost.empty();
    return Status(Code::kNodeLost, decision.reason,
                  Origin{is_known ? name(decision.lost.front()) : std::string(), {}});
  }
  if (decision.lost.empty()) {
    return Status(Code::kNodeLost, "nodes lost touch with one another, though all are there");
  }
  return Status(Code::kNodeLost, "lost " + describe(decision.lost),
                Origin{name(decision.lost.front()), {}});
}

std::string Recovery::describe(const std::vector<NodeIndex>& nodes) const {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (size_t i = 0; i < nodes.size(); ++i) text += (i > 0 ? ", " : "") + name(nodes[i]);
  return text;
}

std::string Recovery::name(NodeIndex node) const {
  if (node.value == layout_->node_count()) return "(witness)";
  return layout_->node(node).node_id;
}

uint32_t Recovery::contributors() const {
  size_t ranks = 0;
  for (const NodeIndex member : members()) ranks += layout_->node(member).ranks.size();
  return static_cast<uint32_t>(ranks);
}

void Recovery::hash(Fnv1a& hash) const {
  hash.add(static_cast<uint64_t>(state_)).add(epoch_.value).add(members().size());
  for (const NodeIndex member : members()) hash.add(static_cast<uint64_t>(member.value));
  for (const RetentionTable& holdings : retention_) holdings.hash(hash);
  for (const Peer& each : peers_) {
    hash.add(static_cast<uint64_t>(each.heard)).add(uint64_t{each.suspected});
    hash.add(static_cast<uint64_t>(each.sent.value_or(-1)));
    hash.add(static_cast<uint64_t>(each.echo.value_or(-1)));
    for (const Seq complete : each.complete) hash.add(complete.value);
  }
  for (const Seq stable : known_stable_) hash.add(stable.value);
  hash.add(uint64_t{withdraws_}).add(static_cast<uint64_t>(next_heartbeat_));
  hash_acceptor(acceptor_, hash);
  hash_proposer(proposer_, hash);
  hash.add(highest_round_).add(static_cast<uint64_t>(sealed_at_));
  hash.add(static_cast<uint64_t>(propose_at_)).add(static_cast<uint64_t>(resend_at_));
  hash.add(uint64_t{last_decision_ != nullptr});
  if (last_decision_) hash_decision(*last_decision_, hash);
}

// --- R1, R2, R5: an epoch that is not sealed -----------------------------------------------------

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
  RetentionTable& holdings = held(track_of(seq));
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
  // A sealed node changes nothing, because its report must stay true.
  if (state_ != RecoveryState::kRunning && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
  RetentionTable& holdings = held(track_of(seq));
  if (!holdings.add_chunk(seq, chunk)) return;
  if (holdings.free_partial(seq)) output.freed_partials.push_back(seq);
  // Frames carry the acknowledgement while traffic goes on, or heartbeats at the latest.
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
    RetentionTable& holdings = held(track);
    if (has_lease(now_) || RUEDA_MUTANT(kDeliverWithoutLease)) deliver_track(holdings, output);
    const Seq up_to = stable(track);
    while (holdings.free_next_final(up_to)) output.freed_finals.push_back(holdings.freed());
  }
}

void Recovery::deliver_track(RetentionTable& holdings, RecoveryOutput& output) {
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
  // Policy `fail` never goes back to F, so F need not be kept for others.
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
  // The sender has entered the epoch, and cannot deliver until it is heard, so it is answered at
  // once.
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
