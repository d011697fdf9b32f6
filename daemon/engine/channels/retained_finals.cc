#include "daemon/engine/channels/retained_finals.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::engine {

Result<std::unique_ptr<RetainedFinals>> RetainedFinals::make(core::Track track, size_t bound,
                                                             observe::Metrics& metrics) {
  Result<std::unique_ptr<FifoMemory>> memory = FifoMemory::make(bound);
  if (!memory.is_ok()) return memory.status();
  return std::unique_ptr<RetainedFinals>(
      new RetainedFinals(track, std::move(memory).value(), metrics));
}

RetainedFinals::RetainedFinals(core::Track track, std::unique_ptr<FifoMemory> memory,
                               observe::Metrics& metrics)
    : track_(track), memory_(std::move(memory)), metrics_(metrics) {}

RetainedFinals::~RetainedFinals() {
  metrics_.daemon().unstable_bytes.Decrement(static_cast<double>(counted_));
}

bool RetainedFinals::launch(const Operation& operation, const core::RingCut& cut) {
  const auto chunks = static_cast<size_t>(cut.chunks());
  const auto size = static_cast<size_t>(operation.wire_bytes());
  const size_t element = element_bytes(operation.dtype_between_nodes());
  const auto counted = static_cast<int64_t>(FifoMemory::round_up(size));
  std::byte* values = holds(operation.seq) ? item(operation.seq).values : nullptr;
  if (!values) values = memory_->take(size);
  if (!values) return false;
  const Item launched{values, cut, element};
  if (holds(operation.seq)) {
    item(operation.seq) = launched;
  } else {
    items_.push_back(launched);
  }
  // The job knows how many ranks contribute.
  retention_.launch(
      number(operation.seq),
      {counted, chunks, {operation.generation, operation.plan_hash}, operation.epoch, 0});
  count_bytes();
  return true;
}

void RetainedFinals::keep(Seq seq, uint32_t chunk, const std::byte* values) {
  const Item& kept = item(seq);
  if (operation(seq).chunks[chunk]) return;
  const core::ElementRange range = kept.cut.chunk_at(chunk);
  if (range.count() > 0) {
    std::memcpy(kept.values + static_cast<size_t>(range.begin) * kept.element_bytes, values,
                static_cast<size_t>(range.count()) * kept.element_bytes);
  }
  if (retention_.add_chunk(number(seq), chunk)) retention_.free_partial(number(seq));
}

void RetainedFinals::skip(Seq seq) {
  const size_t chunks = operation(seq).chunks.size();
  for (size_t chunk = 0; chunk < chunks; ++chunk) retention_.add_chunk(number(seq), chunk);
  retention_.free_partial(number(seq));
}

void RetainedFinals::abandon(Seq seq) {
  const core::HeldOperation& held = operation(seq);
  retention_.launch(number(seq), {held.bytes, 1, {}, held.epoch, 0});
  skip(seq);
  note_delivered(seq);
}

void RetainedFinals::note_delivered(Seq seq) {
  operation(seq).delivered = true;
  free_stable();
}

void RetainedFinals::note_stable(Seq seq) {
  stable_ = std::max(stable_, number(seq));
  free_stable();
}

void RetainedFinals::free_stable() {
  while (retention_.free_next_final(stable_)) {
    if (items_.front().values) memory_->give_back_oldest();
    items_.pop_front();
  }
  count_bytes();
}

void RetainedFinals::cancel(Seq first) {
  const Seq from = number(first);
  while (retention_.next_seq() > from && !items_.empty()) {
    retention_.drop_last();
    if (items_.back().values) memory_->give_back_newest();
    items_.pop_back();
  }
  count_bytes();
}

void RetainedFinals::count_bytes() {
  const int64_t now = retention_.bytes();
  metrics_.daemon().unstable_bytes.Increment(
      static_cast<double>(now - std::exchange(counted_, now)));
}

std::span<const std::byte> RetainedFinals::chunk(Seq seq, uint32_t chunk) const {
  RUEDA_CHECK(holds(seq) && retention_.at(number(seq)).chunks[chunk]);
  const Item& held = item(seq);
  const core::ElementRange range = held.cut.chunk_at(chunk);
  return {held.values + static_cast<size_t>(range.begin) * held.element_bytes,
          static_cast<size_t>(range.count()) * held.element_bytes};
}

void RetainedFinals::carry_over(const core::TrackDecision& decision) {
  cancel(decision.returned());
  for (; retention_.next_seq() < decision.returned(); items_.push_back({nullptr, {0, 1, 1}, 0})) {
    retention_.await();
  }
  retention_ = retention_.carried_over(decision);
  stable_ = Seq{};  // The others may still hold what this node has freed.
}

}  // namespace rueda::engine
