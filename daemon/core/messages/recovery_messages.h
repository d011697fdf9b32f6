// What nodes say to each other about leases and about the end of an epoch (docs/protocol.md,
// "Recovery"). Plain structs, as in messages.h.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"
#include "daemon/base/status.h"
#include "daemon/core/model/track.h"

namespace rueda::core {

// A proposer's try; a later one is greater. Round 0: none.
struct Ballot {
  uint64_t round = 0;
  NodeIndex node;

  auto operator<=>(const Ballot&) const = default;
};

// One for each order of operations.
template <class T>
using ByTrack = std::array<T, kTracks>;

// An operation that was decreed as an error: nothing is launched, its tensors fail.
struct RefusedOperation {
  std::vector<std::string> tensors;
  Status error;
};
using RefusedPtr = std::shared_ptr<const RefusedOperation>;

// Which operation a number means on a node: it may be another in each generation of the lock (L7),
// and after nodes have parted (L9).
struct LaunchName {
  uint32_t generation = 0;
  uint64_t plan_hash = 0;

  bool operator==(const LaunchName&) const = default;
};

// What a sealed node holds of one operation.
struct Holding {
  std::vector<bool> chunks;  // final ones; empty where the node has not begun to collect them
  bool partial = false;      // P
  bool delivered = false;
  LaunchName name;     // as it was launched
  RefusedPtr refused;  // not null: that is what it was, and its tensors have failed here
};

// What a sealed node holds of all operations of a track that are not freed there.
struct Report {
  Seq freed;                        // up to here: delivered, stable, gone
  std::vector<Holding> operations;  // freed + 1, freed + 2, ...: all that it launched
};

// R3: all that a sealed node has to say.
struct NodeReport {
  ByTrack<Report> tracks;
  std::vector<Rank> left;  // ranks of which the node knows that they have said goodbye
  bool withdraws = false;  // the node votes, and will not be a member of what comes
  std::string reason;      // why it sealed the epoch, for people; empty: it was asked
};

// kVoid: a broadcast that lost its root before anybody delivered it. Its number is used up, and its
// tensors return to ready.
enum class Verdict : uint8_t { kComplete, kRedo, kVoid };

struct OperationVerdict {
  Verdict verdict = Verdict::kRedo;
  // kComplete: by chunk, the member from which those that lack it fetch it.
  std::vector<NodeIndex> servers;
};

// What becomes of a track's operations first, first + 1, ... of the epoch before; they are 1, 2,
// ... of the one that begins.
struct TrackDecision {
  Seq first;
  std::vector<OperationVerdict> operations;

  // Operations of the epoch before from here on were not launched by all members: no member has
  // completed one, and their tensors return to ready.
  Seq returned() const { return Seq{first.value + operations.size()}; }
};

// An operation that ended as an error on some who go on, and must on all.
struct RefusedAt {
  Seq seq;  // in the epoch before
  uint32_t generation = 0;
  RefusedPtr operation;
};

// R4: how an epoch ended. There is one for each epoch, and all members that go on have the same.
struct Decision {
  Epoch epoch;                      // that begins
  std::vector<NodeIndex> members;   // of it, ascending
  std::vector<NodeIndex> lost;      // members of the epoch before that are left out, ascending
  std::vector<NodeIndex> withdrew;  // of the lost: who have sealed and voted
  bool ends_job = false;            // policy `fail`, nobody is left, or `irrecoverable`
  // Not 0: this operation can be neither completed nor repeated. Somebody has broken R1.
  Seq irrecoverable;
  ByTrack<TrackDecision> tracks;
  std::vector<RefusedAt> refused;  // from `returned` on
  std::vector<Rank> left;          // ranks that have said goodbye, ascending
  std::string reason;              // why the epoch had to end, for people
};

using DecisionPtr = std::shared_ptr<const Decision>;

// To every other voter, in an epoch that is not sealed.
struct Heartbeat {
  TicksMs sent = 0;             // on the sender's clock
  std::optional<TicksMs> echo;  // `sent` of the receiver's last heartbeat: it renews the lease
  ByTrack<Seq> complete;        // all operations up to here are complete at the sender (R2)
};

// R2's trailing acknowledgement: much is unstable, and nothing is under way that could carry it.
struct Acknowledge {
  ByTrack<Seq> complete;
};

// Paxos for one value (Lamport 2001, "Paxos Made Simple", section 2.2); the first two are its
// phase 1, the report riding in the promise, the next two its phase 2.
struct Prepare {
  Ballot ballot;
};
struct Promise {
  Ballot ballot;
  Ballot accepted_in;    // round 0: nothing accepted
  DecisionPtr accepted;  // null with it
  NodeReport report;
};
struct Accept {
  Ballot ballot;
  DecisionPtr decision;
};
struct Accepted {
  Ballot ballot;
};
// The ballot came too late. Tells the proposer above what to go.
struct Refuse {
  Ballot promised;
};
struct Learn {
  DecisionPtr decision;
};
// "I have a message of an epoch that I do not know: how did mine end?" Answered by Learn.
struct Ask {};

using RecoveryBody =
    std::variant<Heartbeat, Acknowledge, Prepare, Promise, Accept, Accepted, Refuse, Learn, Ask>;
struct RecoveryMessage {
  NodeIndex from;
  Epoch epoch;  // the sender's
  RecoveryBody body;
};

}  // namespace rueda::core
