// The operations of one track of an epoch that one node holds (rules R1 and R2).
//
// A node holds P, an operation's partial sum, until it holds all of F, the final chunks; and it
// holds F until the operation is stable and delivered here. It never holds neither, so whoever goes
// on after a death can complete the operation, or repeat it. A broadcast has no P: its root's input
// is F.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/base/hash.h"
#include "daemon/core/messages/recovery_messages.h"

namespace rueda::core {

// One operation that is not freed yet.
struct HeldOperation {
  int64_t bytes = 0;
  // The epoch of the result, which is an earlier one if the operation was decided COMPLETE.
  Epoch epoch;
  uint32_t contributors = 0;
  std::vector<bool> chunks;  // Which final chunks are held; empty before the launch.
  size_t missing_chunks = 0;
  bool partial = true;  // P is held.
  bool delivered = false;
  // The name under which it was launched; if it was carried over, it is the same on all.
  LaunchName name;
  RefusedPtr refused;  // If not null: it ended as this error, and holds nothing.

  bool launched() const { return !chunks.empty(); }
  bool whole() const { return launched() && missing_chunks == 0; }
};

// What is known of an operation when it is launched.
struct LaunchedOperation {
  int64_t bytes = 0;
  size_t chunks = 1;
  LaunchName name;
  Epoch epoch;
  uint32_t contributors = 0;
};

class RetentionTable {
 public:
  explicit RetentionTable(Track track = Track::kLockable)
      : track_(track), freed_(before_first_of(track)) {}

  // The operation is launched: P is there, and no final chunk is. It must be next_seq(), or one
  // that was carried over to be repeated and is not launched yet, and have at least one chunk.
  void launch(Seq seq, const LaunchedOperation& launched);
  // The operation next_seq() was decreed as an error, and has ended.
  void refuse(Seq seq, uint32_t generation, RefusedPtr refused);
  // Forgets the operations from `first` on (L7): no member has completed one of them, and their
  // numbers come again.
  void cancel_from(Seq first);
  // A final chunk is here. Returns true if it was the last one missing. Unknown and repeated chunks
  // change nothing.
  bool add_chunk(Seq seq, size_t chunk);

  // The operation next_seq() was decided upon, though this node has not launched it; it may still
  // do so.
  void await() { operations_.emplace_back(); }
  // Drops the last operation, which is cancelled (L7). There must be one that is not whole (both
  // checked).
  void drop_last();

  // Frees P of a whole operation (R1). Returns false if it was gone before.
  bool free_partial(Seq seq);
  // Frees F of the next operation if that is not above `stable` and is delivered. Returns whether
  // it did.
  bool free_next_final(Seq stable);

  // Operations up to this one are freed.
  Seq freed() const { return freed_; }
  Seq next_seq() const { return Seq{freed_.value + operations_.size() + 1}; }
  // All operations up to this one are complete on this node, which R2 tells the others.
  Seq complete() const;
  int64_t bytes() const { return bytes_; }
  // Returns whether an operation is launched and not complete here.
  bool any_under_way() const;

  bool holds(Seq seq) const { return seq > freed_ && seq < next_seq(); }
  const HeldOperation& at(Seq seq) const;
  HeldOperation& at(Seq seq);

  Report report() const;
  // Returns what is left of the operations in the epoch that the decision begins, renumbered from
  // 1. This node must be a member of that epoch.
  RetentionTable carried_over(const TrackDecision& decision) const;

  void hash(Fnv1a& hash) const;

 private:
  Track track_;
  Seq freed_;
  std::deque<HeldOperation> operations_;  // The first operation is freed_ + 1.
  int64_t bytes_ = 0;
};

}  // namespace rueda::core
