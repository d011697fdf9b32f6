// Recovery lets a job outlive its nodes: it has rules R1 to R5 on one node (docs/protocol.md,
// "Recovery"). It is pure, as JobCore is: told what happened and what time it is, it says what is
// to be done. Only policy `shrink` uses it, which no daemon offers yet: under policy `fail` a
// death ends the job, and this room has no part in it (JobCore::fail).
//
// Life of an epoch:
//   running -> sealing -> sealed -> the next epoch, running
//          \                   \-> ended: the decision ends the job, or leaves this node out, or no
//           \                             quorum of the epoch can be reached
//            \-> (the decision arrives first) -> the same
//
// Who does what:
//   retention_table.h  R1, R2: what this node holds, and when it may let go
//   quorum.h           which nodes may act for an epoch
//   decision.h         R4: COMPLETE or REDO
//   ballots.h          R4: one decision an epoch, whoever proposes and whoever dies
//   recovery.cc        R3, R5 and the way they work together
//
// There is one object for each job on a node, and one thread drives it. The layout outlives it. A
// witness, which is a node of no rank that votes where the members' number is even, runs one as
// well: its index is the layout's node count, and it begins with epoch 0. It holds nothing, keeps
// no time and suspects nobody: it answers, and by that learns which epoch runs. Nobody misses it
// but an exact half.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/hash.h"
#include "daemon/base/status.h"
#include "daemon/core/messages/recovery_messages.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/quorum.h"
#include "daemon/core/recovery/ballots.h"
#include "daemon/core/recovery/decision.h"
#include "daemon/core/recovery/retention_table.h"

namespace rueda::core {

// The options must be the same on all nodes of a job. All times are counted on a node's own clock;
// clocks need not show the same time, but must run at the same speed to within eviction_ms -
// lease_ms in eviction_ms.
struct RecoveryOptions {
  DeathPolicy policy = DeathPolicy::kFail;
  bool has_witness = false;
  // R2: how many bytes of operations of one track may be launched and not freed. Launching waits
  // beyond it. It should be at least four times the largest operation, or a launch may have to wait
  // for a heartbeat. The bound is one for each track, because nodes launch those of two tracks in
  // orders of their own: with one bound for both, each node could hold what the other one waits for
  // (L2).
  int64_t max_unstable_bytes = int64_t{256} << 20;
  // 0, which only policy `fail` allows, means no heartbeats. Then whoever runs this core tells it
  // who is silent, and nothing needs a lease, because nobody goes on who could differ.
  TicksMs heartbeat_ms = 500;
  // R5 (Gray and Cheriton 1989, "Leases", section 2): for so long after this node sent a heartbeat,
  // its echo allows to deliver. It is shorter than eviction_ms (checked), or a node that nobody
  // counts as a member any more could deliver.
  TicksMs lease_ms = 3'000;
  TicksMs suspicion_ms = 4'000;  // A member that is silent for so long is suspected.
  // For so long after a node was last heard in an epoch, nobody takes part in leaving it out.
  TicksMs eviction_ms = 5'000;
  TicksMs stagger_ms = 100;  // The time between the first proposals of two members in turn.
  // The time after which another proposal follows one that has come to nothing.
  TicksMs retry_ms = 1'000;
  TicksMs resend_ms = 200;      // The time after which a message without an answer is sent again.
  TicksMs give_up_ms = 30'000;  // Sealed for so long without a decision, the job ends here.
};

// Says that the clients have to be told that the operation is complete. For R6: the epoch that its
// result is of, and how many ranks contributed (an average divides by them).
struct CompletedOperation {
  Seq seq;
  Epoch epoch;
  uint32_t contributors = 0;
};

// A chunk that a member lacks of an operation which was decided COMPLETE.
struct Fetch {
  Seq seq;  // The number is of the new epoch.
  size_t chunk = 0;
  NodeIndex from;
};

// An operation of the epoch before that belongs to the new epoch now. With kRedo, it has to be
// launched again, from P, with the new members and before any other; what had become of F is void.
// With kComplete, there is nothing to do beyond the fetches. With kVoid, its tensors return to
// ready.
struct CarriedOperation {
  Seq was;
  Seq seq;
  Verdict verdict = Verdict::kRedo;
};

// The final chunks that a sealed node has of one operation of the epoch that has come to a stop.
struct HeldChunks {
  Seq seq;
  std::vector<bool> chunks;
};

struct NextEpoch {
  Epoch epoch;
  // The members ascend: the ring has this order, and the lowest member coordinates.
  std::vector<NodeIndex> members;
  std::vector<NodeIndex> lost;
  std::vector<CarriedOperation> operations;
  std::vector<Fetch> fetches;
  ByTrack<Seq> returned;            // From here on the tensors of the epoch before are ready again.
  ByTrack<Seq> next_seq;            // The next number in the new epoch's order.
  std::vector<RefusedPtr> refused;  // These failed on other nodes: their tensors fail here, too.
  std::vector<Rank> left;           // Ranks that have said goodbye.
  std::string reason;               // Why the epoch before had to end.
};

// Says that the job is over on this node. Every submission that is not delivered fails with the
// status.
struct JobEnd {
  Status status;
  // Operations of the epoch that this node delivered, while those that went on without it repeated
  // them, or may have. The node's clients have diverged from theirs, and must restore.
  std::vector<Seq> diverged;
};

// What is to be done, in this order. The seqs are of the epoch that `next` begins, if it is set.
struct RecoveryOutput {
  bool sealed = false;  // Drop the epoch's frames, launch nothing, then call on_stopped().
  std::optional<NextEpoch> next;  // The epoch to adopt.
  std::vector<CompletedOperation> deliveries;
  std::vector<Seq> freed_partials;  // P of these may be freed.
  std::vector<Seq> freed_finals;    // F of these may be freed.
  std::optional<JobEnd> ended;
  std::vector<std::pair<NodeIndex, RecoveryMessage>> sends;
};

enum class RecoveryState : uint8_t { kRunning, kSealing, kSealed, kEnded };

class Recovery {
 public:
  // The epoch, whose members are the layout's, begins with start().
  Recovery(const Layout& layout, NodeIndex self, const RecoveryOptions& options,
           Epoch epoch = Epoch{1});
  void start(TicksMs now, RecoveryOutput& output);

  // Returns whether an operation of so many bytes may be launched now (R2). Any operation may be
  // launched when nothing is unstable, however large.
  bool may_launch(int64_t bytes, Track track = Track::kLockable) const;
  // The node launches an operation: P is built, and no final chunk is there. Operations must be
  // launched in seq order and while running (both checked), with at least one chunk. A broadcast's
  // chunks are final when all members have launched it.
  void on_launched(TicksMs now, Seq seq, int64_t bytes, size_t chunks, const LaunchName& name,
                   RecoveryOutput& output);
  // The next operation of its track is an error, and has ended with that error here.
  void on_refused(TicksMs now, Seq seq, uint32_t generation, RefusedPtr refused);
  // The operations of the lockable track from `first` on are cancelled (L7).
  void on_cancelled(Seq first);
  // The final values of a chunk are in this node's memory.
  void on_chunk(TicksMs now, Seq seq, size_t chunk, RecoveryOutput& output);
  // The final values of all chunks of the operation are in this node's memory.
  void on_whole(TicksMs now, Seq seq, RecoveryOutput& output);
  // A data frame says that all members have completed all operations up to `stable`. A frame on the
  // reduce phase collects the minimum of complete_seq() over the nodes that it visits, which are
  // all of them; where its chunk is final that is known, and the gather phase tells everybody.
  void on_stable(TicksMs now, Seq stable, RecoveryOutput& output);
  Seq complete_seq(Track track = Track::kLockable) const { return held(track).complete(); }
  // Nothing is delivered while `hold` is true, until it is false or the next epoch begins.
  void hold_deliveries(TicksMs now, bool hold, RecoveryOutput& output);

  // Something is wrong with the node: its data channel broke, or an operation stands still there.
  // `reason` is for people, and names the node.
  void on_suspicion(TicksMs now, NodeIndex node, const std::string& reason, RecoveryOutput& output);
  // Makes this node take part no more, but help the others to go on without it.
  void withdraw(TicksMs now, const std::string& reason, RecoveryOutput& output);
  // Answers `sealed`: the epoch has come to a stop on this node. `held` has what the node has of
  // operations under way, besides what on_chunk() was told; `left` has the ranks that it knows to
  // have said goodbye.
  void on_stopped(TicksMs now, const std::vector<HeldChunks>& held, std::vector<Rank> left,
                  RecoveryOutput& output);
  // Takes a message. Messages may be lost, repeated and overtake one another.
  void on_message(TicksMs now, const RecoveryMessage& message, RecoveryOutput& output);
  void on_time(TicksMs now, RecoveryOutput& output);
  // Returns when on_time() has something to do next, or none if nothing is due unless something
  // else happens.
  std::optional<TicksMs> deadline() const;

  RecoveryState state() const { return state_; }
  Epoch epoch() const { return epoch_; }
  const std::vector<NodeIndex>& members() const { return quorum_.members(); }
  // Returns whether a quorum has heard this node recently enough (R5). Without that nothing is
  // delivered.
  bool has_lease(TicksMs now) const;
  // Adds to `hash` all that decides what this node will do: objects with equal hashes behave alike.
  void hash(Fnv1a& hash) const;

 private:
  // What is known of another voter of the epoch.
  struct Peer {
    TicksMs heard = 0;            // When it was last heard, or the epoch began.
    std::optional<TicksMs> sent;  // When it sent its last heartbeat, to be echoed.
    std::optional<TicksMs> echo;  // When this node sent the last heartbeat that the peer echoed.
    ByTrack<Seq> complete{};
    bool suspected = false;
  };

  // --- Leases, acknowledgements, deliveries
  void on(NodeIndex from, const Heartbeat& heartbeat, RecoveryOutput& output);
  void on(NodeIndex from, const Acknowledge& acknowledge, RecoveryOutput& output);
  void send_heartbeat(NodeIndex to, RecoveryOutput& output);
  void send_heartbeats(RecoveryOutput& output);
  void deliver_and_free(RecoveryOutput& output);
  void deliver_track(RetentionTable& holdings, RecoveryOutput& output);
  Seq stable(Track track) const;
  ByTrack<Seq> complete() const;
  std::vector<NodeIndex> silent_peers() const;

  // --- The end of an epoch
  void on(NodeIndex from, const Prepare& prepare, RecoveryOutput& output);
  void on(NodeIndex from, const Promise& promise, RecoveryOutput& output);
  void on(NodeIndex from, const Accept& accept, RecoveryOutput& output);
  void on(NodeIndex from, const Accepted& accepted, RecoveryOutput& output);
  void on(NodeIndex from, const Refuse& refuse, RecoveryOutput& output);
  void on(NodeIndex from, const Learn& learn, RecoveryOutput& output);
  void on(NodeIndex from, const Ask& ask, RecoveryOutput& output);
  void seal(RecoveryOutput& output);
  NodeReport report() const;
  void start_proposing(RecoveryOutput& output);
  void step_back(Ballot above);
  void request_votes(RecoveryOutput& output);
  void continue_proposing(RecoveryOutput& output);
  DecisionPtr choose_proposal() const;
  bool may_accept(const Decision& decision) const;
  bool may_evict_absent() const;
  bool is_evictable(NodeIndex node) const;
  TicksMs last_eviction_deadline() const;
  TicksMs turn() const;

  void adopt(const DecisionPtr& decision, RecoveryOutput& output);
  void begin_epoch(const Decision& decision, RecoveryOutput& output);
  void carry_over(Track track, const TrackDecision& decision, NextEpoch& next);
  void end_without_quorum(RecoveryOutput& output);
  void end_job(Status status, std::vector<Seq> diverged, RecoveryOutput& output);
  std::vector<Seq> diverged_by(const Decision* decision) const;
  Status describe_end(const Decision& decision) const;
  std::string describe(const std::vector<NodeIndex>& nodes) const;
  std::string name(NodeIndex node) const;

  bool is_witness() const { return self_.value == layout_->node_count(); }
  bool is_member(NodeIndex node) const;
  bool is_voter(NodeIndex node) const;
  bool holds_for_recovery() const { return options_.policy == DeathPolicy::kShrink; }
  bool has_heartbeats() const { return options_.heartbeat_ms > 0; }
  RetentionTable& held(Track track) { return retention_[index_of(track)]; }
  const RetentionTable& held(Track track) const { return retention_[index_of(track)]; }
  uint32_t contributors() const;
  Peer& peer(NodeIndex node) { return peers_[static_cast<size_t>(node.value)]; }
  const Peer& peer(NodeIndex node) const { return peers_[static_cast<size_t>(node.value)]; }
  std::optional<NodeIndex> witness() const;
  void send(NodeIndex to, decltype(RecoveryMessage::body) body, RecoveryOutput& output);

  const Layout* layout_;
  NodeIndex self_;
  RecoveryOptions options_;
  TicksMs now_ = 0;

  RecoveryState state_ = RecoveryState::kRunning;
  Epoch epoch_{1};
  Quorum quorum_;
  ByTrack<RetentionTable> retention_{RetentionTable(Track::kLockable),
                                     RetentionTable(Track::kDecreed)};
  std::vector<Peer> peers_;      // The index is that of the node.
  ByTrack<Seq> known_stable_{};  // What data frames have told.
  bool deliveries_held_ = false;
  TicksMs next_heartbeat_ = 0;

  // Messages that came while sealing; they wait until that is done.
  std::vector<RecoveryMessage> early_;
  // These are in use while sealed.
  std::vector<Rank> left_;
  bool withdraws_ = false;
  std::string reason_;
  Acceptor acceptor_;
  Proposer proposer_;
  uint64_t highest_round_ = 0;
  TicksMs sealed_at_ = 0;
  TicksMs propose_at_ = 0;
  TicksMs resend_at_ = 0;

  // The decision by which this epoch began, or the job ended. It is sent to those who missed it.
  DecisionPtr last_decision_;
};

}  // namespace rueda::core
