// The messages that nodes send to each other about leases and about the end of an epoch
// (docs/protocol.md, "Recovery"). They are plain structs, as in messages.h.
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

// One attempt of a proposer; a later attempt is greater. Round 0 means no attempt.
struct Ballot {
  uint64_t round = 0;
  NodeIndex node;

  auto operator<=>(const Ballot&) const = default;
};

// Answers a ballot of a proposer (Paxos, phase 1b). `Value` is a pointer to what is decided, and
// `Report` what the voter says beside it.
template <class Value, class Report>
struct BallotPromise {
  Ballot ballot;
  Ballot accepted_in;  // Round 0: nothing was accepted.
  Value accepted;      // Null if nothing was accepted.
  Report report;
};

// One value for each of the two orders of operations.
template <class T>
using ByTrack = std::array<T, kTracks>;

// An operation that was decreed as an error: nothing is launched, and its tensors fail with the
// error.
struct RefusedOperation {
  std::vector<std::string> tensors;
  Status error;
};
using RefusedPtr = std::shared_ptr<const RefusedOperation>;

// Says which operation a number means on a node, because the same number may be another operation
// in each generation of the lock (L7), and after nodes have taken different ways in a plan (L9).
struct LaunchName {
  uint32_t generation = 0;
  uint64_t plan_hash = 0;

  bool operator==(const LaunchName&) const = default;
};

// What a sealed node holds of one operation.
struct Holding {
  std::vector<bool> chunks;  // The final chunks that it holds; empty before it collects any.
  bool partial = false;      // The node holds P.
  bool delivered = false;
  LaunchName name;     // The name under which the operation was launched.
  RefusedPtr refused;  // If not null, it was this error, and its tensors have failed on the node.
};

// What a sealed node holds of all operations of a track that it has not freed.
struct Report {
  Seq freed;                        // Operations up to this one are delivered, stable and gone.
  std::vector<Holding> operations;  // Operations freed + 1, freed + 2, ...: all that it launched.
};

// Everything that a sealed node has to say (R3).
struct NodeReport {
  ByTrack<Report> tracks;
  std::vector<Rank> left;  // Ranks of which the node knows that they have said goodbye.
  bool withdraws = false;  // The node votes, and will not be a member of the next epoch.
  std::string reason;      // Why it sealed the epoch, for people; empty if it was asked to.
};

// What is decided about an operation. kVoid is a broadcast that lost its root before anybody
// delivered it: its number is used up, and its tensors return to ready.
enum class Verdict : uint8_t { kComplete, kRedo, kVoid };

struct OperationVerdict {
  Verdict verdict = Verdict::kRedo;
  // The index is that of a chunk; the entry is the member from which nodes that lack the chunk
  // fetch it. The vector is empty unless the verdict is kComplete.
  std::vector<NodeIndex> servers;
};

// Decides what becomes of a track's operations `first`, first + 1, ... of the epoch before. In the
// epoch that begins they have the numbers 1, 2, ...
struct TrackDecision {
  Seq first;
  std::vector<OperationVerdict> operations;

  // The first operation of the epoch before that was not launched by all members. From there on no
  // member has completed one, and the tensors return to ready.
  Seq returned() const { return Seq{first.value + operations.size()}; }
};

// An operation that ended as an error on some who go on, and must do so on all.
struct RefusedAt {
  Seq seq;  // The number is of the epoch before.
  uint32_t generation = 0;
  RefusedPtr operation;
};

// The end of an epoch, as it was decided (R4). There is one decision for each epoch, and all
// members that go on have the same.
struct Decision {
  Epoch epoch;                      // The epoch that begins.
  std::vector<NodeIndex> members;   // The members of the epoch that begins, ascending.
  std::vector<NodeIndex> lost;      // Members of the epoch before that are left out, ascending.
  std::vector<NodeIndex> withdrew;  // The members in `lost` that have sealed and voted.
  // True if the policy is `fail`, no member is left, or `irrecoverable` is set.
  bool ends_job = false;
  // If not 0, the operation that can be neither completed nor repeated, because somebody has broken
  // R1.
  Seq irrecoverable;
  ByTrack<TrackDecision> tracks;
  std::vector<RefusedAt> refused;  // Only seqs from their track's returned() on are here.
  std::vector<Rank> left;          // Ranks that have said goodbye, ascending.
  std::string reason;              // Why the epoch had to end, for people.
};

using DecisionPtr = std::shared_ptr<const Decision>;

// Goes to every other voter, while the sender's epoch is not sealed.
struct Heartbeat {
  TicksMs sent = 0;             // The time on the sender's clock.
  std::optional<TicksMs> echo;  // The receiver's own `sent`, which renews its lease.
  ByTrack<Seq> complete;        // All operations up to here are complete at the sender (R2).
};

// R2's trailing acknowledgement. It is sent when much is unstable, and nothing is under way that
// could carry it.
struct Acknowledge {
  ByTrack<Seq> complete;
};

// Paxos for one value (Lamport 2001, "Paxos Made Simple", section 2.2). Prepare and Promise are its
// phase 1, and the report rides in the promise; Accept and Accepted are its phase 2.
struct Prepare {
  Ballot ballot;
};
using Promise = BallotPromise<DecisionPtr, NodeReport>;
struct Accept {
  Ballot ballot;
  DecisionPtr decision;
};
struct Accepted {
  Ballot ballot;
};
// Answers a ballot that came too late. It tells the proposer which ballot to go above.
struct Refuse {
  Ballot promised;
};
struct Learn {
  DecisionPtr decision;
};
// Asks how an epoch ended: "I have a message of an epoch that I do not know: how did mine end?" The
// answer is Learn.
struct Ask {};

using RecoveryBody =
    std::variant<Heartbeat, Acknowledge, Prepare, Promise, Accept, Accepted, Refuse, Learn, Ask>;
struct RecoveryMessage {
  NodeIndex from;
  Epoch epoch;  // The sender's epoch.
  RecoveryBody body;
};

}  // namespace rueda::core
