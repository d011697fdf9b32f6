#include "daemon/session/records/ring.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/session/records/text.h"

namespace rueda::session {
namespace {

rueda_abi_ring* format_ring(std::byte* memory, uint32_t capacity, uint32_t record_bytes) {
  RUEDA_CHECK(std::has_single_bit(capacity));
  auto* header = reinterpret_cast<rueda_abi_ring*>(memory);
  header->magic = RUEDA_ABI_MAGIC;
  header->version = RUEDA_ABI_VERSION;
  header->capacity = capacity;
  header->record_bytes = record_bytes;
  return header;
}

}  // namespace

size_t submission_ring_bytes(uint32_t capacity) {
  return RUEDA_ABI_RING_HEADER_BYTES + size_t{capacity} * sizeof(rueda_abi_submission);
}

size_t completion_ring_bytes(uint32_t capacity) {
  return RUEDA_ABI_RING_HEADER_BYTES +
         size_t{capacity} * (sizeof(rueda_abi_completion) + RUEDA_ABI_TEXT_BYTES);
}

SubmissionRing::SubmissionRing(std::byte* memory, uint32_t capacity)
    : header_(format_ring(memory, capacity, sizeof(rueda_abi_submission))),
      records_(memory + RUEDA_ABI_RING_HEADER_BYTES),
      capacity_(capacity) {}

int SubmissionRing::pop(std::span<rueda_abi_submission> out) {
  uint64_t tail = std::atomic_ref(header_->tail).load(std::memory_order_acquire);
  uint64_t pending = tail - head_;
  if (pending > capacity_) return kBroken;
  size_t count = std::min<uint64_t>(pending, out.size());
  for (size_t i = 0; i < count; ++i) {
    const std::byte* record =
        records_ + ((head_ + i) & (capacity_ - 1)) * sizeof(rueda_abi_submission);
    std::memcpy(&out[i], record, sizeof(rueda_abi_submission));
  }
  head_ += count;
  std::atomic_ref(header_->head).store(head_, std::memory_order_release);
  return static_cast<int>(count);
}

uint64_t SubmissionRing::read_producer_waits_for() {
  waits_for_ = std::atomic_ref(header_->producer_waits_for).load(std::memory_order_relaxed);
  return waits_for_;
}

bool SubmissionRing::has_records() const {
  return std::atomic_ref(header_->tail).load(std::memory_order_relaxed) != head_;
}

bool SubmissionRing::has_news() const {
  return has_records() ||
         std::atomic_ref(header_->producer_waits_for).load(std::memory_order_relaxed) != waits_for_;
}

bool SubmissionRing::prepare_to_sleep() {
  std::atomic_ref waiting(header_->consumer_waiting);
  waiting.store(1, std::memory_order_relaxed);
  // The fence pairs with the producer's: either the producer sees the flag, or the daemon sees the
  // producer's record.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_news()) return true;
  waiting.store(0, std::memory_order_relaxed);
  return false;
}

CompletionRing::CompletionRing(std::byte* memory, uint32_t capacity)
    : header_(format_ring(memory, capacity, sizeof(rueda_abi_completion))),
      records_(memory + RUEDA_ABI_RING_HEADER_BYTES),
      texts_(records_ + size_t{capacity} * sizeof(rueda_abi_completion)),
      capacity_(capacity) {}

CompletionRing::Push CompletionRing::push(const rueda_abi_completion& record,
                                          std::string_view text) {
  uint64_t head = std::atomic_ref(header_->head).load(std::memory_order_acquire);
  uint64_t used = tail_ - head;
  if (used > capacity_) return Push::kBroken;
  if (used == capacity_) return Push::kFull;
  const size_t place = tail_ & (capacity_ - 1);
  // The record is written field by field: a copy as one block would have to wait until the caller's
  // writes to the single fields have completed.
  auto& shown = reinterpret_cast<rueda_abi_completion*>(records_)[place];
  shown.ticket = record.ticket;
  shown.code = record.code;
  shown.epoch = record.epoch;
  shown.contributors = record.contributors;
  shown.text_bytes = 0;
  shown.seq = record.seq;
  shown.value = record.value;
  shown.flags = record.flags;
  if (!text.empty()) {
    const std::string_view fitting = truncate_utf8(text, RUEDA_ABI_TEXT_BYTES);
    shown.text_bytes = static_cast<uint32_t>(fitting.size());
    std::memcpy(texts_ + place * RUEDA_ABI_TEXT_BYTES, fitting.data(), fitting.size());
  }
  ++tail_;
  return Push::kOk;
}

bool CompletionRing::publish() {
  std::atomic_ref(header_->tail).store(tail_, std::memory_order_release);
  // The fence pairs with the consumer's, which lies between setting the flag and its last look at
  // the ring.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref waiting(header_->consumer_waiting);
  if (waiting.load(std::memory_order_relaxed) != 1) return false;
  uint32_t expected = 1;
  return waiting.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
}

}  // namespace rueda::session
