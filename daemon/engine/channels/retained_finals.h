// Rules R1 and R2 in a node's memory, for the operations of one track: F, the final values, from
// the launch until they are stable, that is, until every node holds all of them.
//
// core/recovery/retention_table.h decides what is held and when it may go; here are the bytes. P
// needs none: it is computed again from the inputs, which the data plane leaves as they are until
// all of F is here (docs/decisions/0014-final-values.md). The object belongs to its data loop.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "daemon/core/model/track.h"
#include "daemon/core/recovery/decision.h"
#include "daemon/core/recovery/retention_table.h"
#include "daemon/core/schedules/ring_schedule.h"
#include "daemon/engine/memory/fifo_memory.h"
#include "daemon/engine/operation/operation.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

class RetainedFinals {
 public:
  // Makes room for at most `bound` bytes, or one operation if it is larger. The error is
  // kResourceExhausted if there is no memory.
  static Result<std::unique_ptr<RetainedFinals>> make(core::Track track, size_t bound,
                                                      observe::Metrics& metrics);
  ~RetainedFinals();

  // Returns whether an operation of so many bytes may be launched now (R2). All nodes that hold the
  // same return the same.
  bool has_room(Seq seq, int64_t bytes) const {
    return (holds(seq) && item(seq).values) || memory_->fits(static_cast<size_t>(bytes));
  }
  // The operation is launched. Operations come in order, except those that were carried over to be
  // repeated, whose memory is there. Returns false if there is no memory for an operation larger
  // than the bound.
  [[nodiscard]] bool launch(const Operation& operation, const core::RingCut& cut);
  // Copies the final values of a chunk, unless they are held already.
  void keep(Seq seq, uint32_t chunk, const std::byte* values);
  // The operation is done and its values are in the clients' outputs, though F never came, as in a
  // job on one node.
  void skip(Seq seq);
  // The operation was to be repeated, and fails: no values will come.
  void abandon(Seq seq);
  // The owner was told, and every local rank's output has the values.
  void note_delivered(Seq seq);
  // All nodes hold F of the operations up to this one.
  void note_stable(Seq seq);
  // The operations from `first` on are cancelled (L7).
  void cancel(Seq first);

  // All operations up to this one are held here, or were.
  Seq complete() const { return seq_of(retention_.complete()); }
  Seq stable() const { return seq_of(stable_); }
  bool holds(Seq seq) const { return retention_.holds(number(seq)); }
  // Returns true if the operation was launched here, even if its values have been freed since.
  bool was_launched(Seq seq) const {
    return number(seq) <= retention_.freed() ||
           (holds(seq) && retention_.at(number(seq)).launched());
  }
  bool is_whole(Seq seq) const { return retention_.at(number(seq)).whole(); }
  int64_t bytes() const { return retention_.bytes(); }

  // --- What a recovery needs. Numbers in reports and decisions are without the track's bit.
  core::Report report() const { return retention_.report(); }
  // Returns the final values of a chunk, which must be held (checked).
  std::span<const std::byte> chunk(Seq seq, uint32_t chunk) const;
  // Returns all of F.
  const std::byte* values(Seq seq) const { return item(seq).values; }
  // Keeps what goes on in the epoch that the decision begins, renumbered. Operations that the
  // decision names beyond what was launched here are awaited.
  void carry_over(const core::TrackDecision& decision);

 private:
  struct Item {
    std::byte* values;  // Null if it is awaited, and not launched yet.
    core::RingCut cut;
    size_t element_bytes;
  };

  RetainedFinals(core::Track track, std::unique_ptr<FifoMemory> memory, observe::Metrics& metrics);

  // core/recovery/retention_table.h counts without the track's bit.
  static Seq number(Seq seq) { return Seq{core::number_of(seq)}; }
  Seq seq_of(Seq number) const { return Seq{core::before_first_of(track_).value + number.value}; }
  core::HeldOperation& operation(Seq seq) { return retention_.at(number(seq)); }
  const Item& item(Seq seq) const {
    return items_[core::number_of(seq) - retention_.freed().value - 1];
  }
  Item& item(Seq seq) { return items_[core::number_of(seq) - retention_.freed().value - 1]; }
  void free_stable();
  void count_bytes();

  const core::Track track_;
  const std::unique_ptr<FifoMemory> memory_;
  observe::Metrics& metrics_;
  core::RetentionTable retention_;
  std::deque<Item> items_;  // They are those of retention_.
  Seq stable_;              // It is a number without the track's bit.
  int64_t counted_ = 0;     // The bytes that are in the metric.
};

}  // namespace rueda::engine
