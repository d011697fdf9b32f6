// What one node holds of the operations of one track of an epoch: rules R1 and R2.
//
// Of each operation a node holds P, its partial sum, until it holds all of F, the final chunks; and
// F until the operation is stable and delivered here. Never neither: so whoever goes on after a
// death can complete the operation, or repeat it. A broadcast has no P: its root's input is F.
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
  // Of the result, which is older than the epoch if the operation was decided COMPLETE.
  Epoch epoch;
  uint32_t contributors = 0;
  std::vector<bool> chunks;  // which final ones are held; empty before the launch
  size_t missing_chunks = 0;
  bool partial = true;  // P is held
  bool delivered = false;
  LaunchName name;     // as it was launched; of one that was carried over: the same on all
  RefusedPtr refused;  // not null: it ended as this error, and holds nothing

  bool launched() const { return !chunks.empty(); }
  bool whole() const { return launched() && missing_chunks == 0; }
};

// An operation as it is launched.
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

  // The operation is launched: P is there, no final chunk is. It is next_seq(), or one that was
  // carried over to be repeated and is not launched yet. chunks >= 1.
  void launch(Seq seq, const LaunchedOperation& launched);
  // next_seq() was decreed as an error, and has ended.
  void refuse(Seq seq, uint32_t generation, RefusedPtr refused);
  // L7: no member has completed one of them, and their numbers come again.
  void cancel_from(Seq first);
  // A final chunk is here. True if it was the last one missing. Unknown and repeated ones change
  // nothing.
  bool add_chunk(Seq seq, size_t chunk);

  // next_seq() was decided upon, though this node has not launched it. It may launch it yet.
  void await() { operations_.emplace_back(); }
  // L7: the last operation is cancelled. There is one, and it is not whole (both checked).
  void drop_last();

  // R1. P of a whole operation; returns false if it was gone before.
  bool free_partial(Seq seq);
  // Frees F of the next operation if it is not above `stable` and is delivered.
  bool free_next_final(Seq stable);

  // Operations up to here are freed.
  Seq freed() const { return freed_; }
  Seq next_seq() const { return Seq{freed_.value + operations_.size() + 1}; }
  // All operations up to here are complete on this node: what R2 tells the others.
  Seq complete() const;
  int64_t bytes() const { return bytes_; }
  // Whether an operation is launched and not complete here.
  bool any_under_way() const;

  bool holds(Seq seq) const { return seq > freed_ && seq < next_seq(); }
  const HeldOperation& at(Seq seq) const;
  HeldOperation& at(Seq seq);

  Report report() const;
  // What is left of them in the epoch that the decision begins, renumbered from 1. This node is a
  // member of it.
  RetentionTable carried_over(const TrackDecision& decision) const;

  void hash(Fnv1a& hash) const;

 private:
  Track track_;
  Seq freed_;
  std::deque<HeldOperation> operations_;  // freed_ + 1, ...
  int64_t bytes_ = 0;
};

}  // namespace rueda::core
