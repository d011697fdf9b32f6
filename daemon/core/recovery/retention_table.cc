#include "daemon/core/recovery/retention_table.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {

void RetentionTable::launch(Seq seq, const LaunchedOperation& launched) {
  RUEDA_CHECK(launched.chunks >= 1);
  if (seq == next_seq()) {
    operations_.emplace_back().partial = track_ == Track::kLockable;
    at(seq).name = launched.name;
  } else if (const bool is_carried = holds(seq) && !at(seq).launched();
             !is_carried && RUEDA_MUTANT(kCarriedSeqUsedTwice)) {
    return;
  } else {
    RUEDA_CHECK(is_carried);
    bytes_ -= at(seq).bytes;
  }
  HeldOperation& operation = at(seq);
  bytes_ += launched.bytes;
  operation.bytes = launched.bytes;
  operation.epoch = launched.epoch;
  operation.contributors = launched.contributors;
  operation.chunks.assign(launched.chunks, false);
  operation.missing_chunks = launched.chunks;
}

void RetentionTable::refuse(Seq seq, uint32_t generation, RefusedPtr refused) {
  RUEDA_CHECK(seq == next_seq());
  HeldOperation& operation = operations_.emplace_back();
  operation.chunks = {true};
  operation.partial = false;
  operation.delivered = true;
  operation.name.generation = generation;
  operation.refused = std::move(refused);
}

void RetentionTable::cancel_from(Seq first) {
  RUEDA_CHECK(first > freed_);
  while (next_seq() > first) {
    bytes_ -= operations_.back().bytes;
    operations_.pop_back();
  }
}

bool RetentionTable::add_chunk(Seq seq, size_t chunk) {
  if (!holds(seq)) return false;
  HeldOperation& operation = at(seq);
  if (chunk >= operation.chunks.size() || operation.chunks[chunk]) return false;
  operation.chunks[chunk] = true;
  return --operation.missing_chunks == 0;
}

void RetentionTable::drop_last() {
  RUEDA_CHECK(!operations_.empty() && !operations_.back().whole());
  bytes_ -= operations_.back().bytes;
  operations_.pop_back();
}

bool RetentionTable::free_partial(Seq seq) {
  HeldOperation& operation = at(seq);
  if (!RUEDA_MUTANT(kPartialFreedEarly)) RUEDA_CHECK(operation.whole());
  return std::exchange(operation.partial, false);
}

bool RetentionTable::free_next_final(Seq stable) {
  if (operations_.empty()) return false;
  const HeldOperation& oldest = operations_.front();
  if (!oldest.delivered || freed_ >= stable) return false;
  bytes_ -= oldest.bytes;
  operations_.pop_front();
  ++freed_.value;
  return true;
}

Seq RetentionTable::complete() const {
  const auto first_open = std::find_if(operations_.begin(), operations_.end(),
                                       [](const HeldOperation& op) { return !op.whole(); });
  return Seq{freed_.value + static_cast<uint64_t>(first_open - operations_.begin())};
}

bool RetentionTable::any_under_way() const {
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const HeldOperation& op) { return !op.whole(); });
}

const HeldOperation& RetentionTable::at(Seq seq) const {
  RUEDA_CHECK(holds(seq));
  return operations_[seq.value - freed_.value - 1];
}

HeldOperation& RetentionTable::at(Seq seq) {
  return const_cast<HeldOperation&>(std::as_const(*this).at(seq));
}

Report RetentionTable::report() const {
  Report report;
  report.freed = freed_;
  for (const HeldOperation& operation : operations_) {
    report.operations.push_back({operation.chunks, operation.partial, operation.delivered,
                                 operation.name, operation.refused});
  }
  return report;
}

RetentionTable RetentionTable::carried_over(const TrackDecision& decision) const {
  RetentionTable next(track_);
  for (size_t i = 0; i < decision.operations.size(); ++i) {
    const Seq was{decision.first.value + i};
    if (was <= freed_) {
      ++next.freed_.value;  // Others still hold it.
      continue;
    }
    HeldOperation operation = at(was);
    // It was decided upon, so its number means one operation in the next epoch.
    operation.name = {};
    switch (decision.operations[i].verdict) {
      case Verdict::kComplete: break;
      case Verdict::kRedo:
        operation.chunks.clear();
        operation.missing_chunks = 0;
        break;
      case Verdict::kVoid:
        operation = HeldOperation();
        operation.chunks = {true};
        operation.partial = false;
        operation.delivered = true;
        break;
    }
    next.bytes_ += operation.bytes;
    next.operations_.push_back(std::move(operation));
  }
  return next;
}

void RetentionTable::hash(Fnv1a& hash) const {
  hash.add(freed_.value).add(operations_.size());
  for (const HeldOperation& operation : operations_) {
    hash.add(operation.epoch.value).add(operation.chunks.size());
    for (const bool held : operation.chunks) hash.add(uint64_t{held});
    hash.add(uint64_t{operation.partial} * 2 + uint64_t{operation.delivered});
    hash.add(uint64_t{operation.name.generation}).add(operation.name.plan_hash);
  }
}

}  // namespace rueda::core
