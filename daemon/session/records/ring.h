// The daemon's side of the two rings in shared memory (docs/abi.md). The classes are pure over a
// block of memory: they have no descriptor and no doorbell. The client may write anything into the
// block at any time, so the daemon keeps its own index outside the block and believes nothing that
// it reads back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/abi/rueda_abi.h"

namespace rueda::session {

// Returns the size of the block for `capacity` records, which must be a power of two.
size_t submission_ring_bytes(uint32_t capacity);
size_t completion_ring_bytes(uint32_t capacity);

// Consumes submissions. The memory must outlive the object, which one thread at a time may use.
class SubmissionRing {
 public:
  // Writes a fresh header into zeroed memory of submission_ring_bytes(capacity).
  SubmissionRing(std::byte* memory, uint32_t capacity);

  static constexpr int kBroken = -1;
  // Copies at most out.size() records and gives their places in the ring back to the client.
  // Returns the number of records, or kBroken if the client's index is impossible.
  int pop(std::span<rueda_abi_submission> out);

  // Returns the ticket for whose end the client says that it sleeps; 0 means that it waits for
  // none.
  uint64_t read_producer_waits_for();
  // Asks the client to ring the doorbell. Returns false if the ring is not empty after all, or if
  // the ticket that read_producer_waits_for() returned has changed: the caller must then look again
  // and not sleep.
  bool prepare_to_sleep();
  // Returns true if pop() would find a record.
  bool has_records() const;
  // Returns true if there are records, or if the ticket that read_producer_waits_for() returned has
  // changed.
  bool has_news() const;

 private:
  rueda_abi_ring* header_;
  const std::byte* records_;
  uint32_t capacity_;
  uint64_t head_ = 0;
  uint64_t waits_for_ = 0;
};

// Produces completions. The memory must outlive the object, which one thread at a time may use.
class CompletionRing {
 public:
  CompletionRing(std::byte* memory, uint32_t capacity);

  enum class Push { kOk, kFull, kBroken };
  // Writes one completion, which the client sees after publish(). The function sets text_bytes
  // itself; a text of more than RUEDA_ABI_TEXT_BYTES is cut at a character's boundary.
  Push push(const rueda_abi_completion& record, std::string_view text);

  // Shows the client what was pushed. Returns true if the client sleeps: the caller must then ring
  // the client's doorbell once.
  bool publish();

 private:
  rueda_abi_ring* header_;
  std::byte* records_;
  std::byte* texts_;
  uint32_t capacity_;
  uint64_t tail_ = 0;
};

}  // namespace rueda::session
