// The daemon's side of the two rings in shared memory (docs/abi.md). Pure over a block of memory:
// no descriptor, no doorbell. The other side may write anything into the block at any time, so
// the daemon keeps its own index to itself and believes nothing that it reads back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/abi/rueda_abi.h"

namespace rueda::session {

// Size of the block for so many records (a power of two).
size_t submission_ring_bytes(uint32_t capacity);
size_t completion_ring_bytes(uint32_t capacity);

// Consumes submissions. The memory must outlive the object; one thread at a time.
class SubmissionRing {
 public:
  // Writes a fresh header into zeroed memory of submission_ring_bytes(capacity).
  SubmissionRing(std::byte* memory, uint32_t capacity);

  static constexpr int kBroken = -1;
  // Copies at most out.size() records and hands their places back. Returns how many, or kBroken
  // when the client's index cannot be.
  int pop(std::span<rueda_abi_submission> out);

  // The ticket for whose end the client sleeps; 0: none, as far as it says.
  uint64_t read_producer_waits_for();
  // Asks the client to ring. False when the ring is not empty after all, or what
  // read_producer_waits_for() said has changed: look again, do not sleep.
  bool prepare_to_sleep();
  // Whether pop() would find a record.
  bool has_records() const;
  // That, or read_producer_waits_for() another ticket.
  bool has_news() const;

 private:
  rueda_abi_ring* header_;
  const std::byte* records_;
  uint32_t capacity_;
  uint64_t head_ = 0;
  uint64_t waits_for_ = 0;
};

// Produces completions. The memory must outlive the object; one thread at a time.
class CompletionRing {
 public:
  CompletionRing(std::byte* memory, uint32_t capacity);

  enum class Push { kOk, kFull, kBroken };
  // Sets text_bytes itself; a longer text is cut to RUEDA_ABI_TEXT_BYTES at a character's boundary.
  Push push(const rueda_abi_completion& record, std::string_view text);

  // Shows the client what was pushed. True when it sleeps: the caller must ring its doorbell, once.
  bool publish();

 private:
  rueda_abi_ring* header_;
  std::byte* records_;
  std::byte* texts_;
  uint32_t capacity_;
  uint64_t tail_ = 0;
};

}  // namespace rueda::session
