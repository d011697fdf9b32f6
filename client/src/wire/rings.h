// The client's ends of the two rings of client/abi/rueda_abi.h: it produces submissions and
// consumes completions. The objects are used under Session's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "client/abi/rueda_abi.h"
#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// The mapping of a memfd of the daemon's, for reading and writing. The memfd is checked to be as
// long as needed and sealed against shrinking, so that touching the mapping cannot raise SIGBUS.
class RingMemory {
 public:
  static Result<RingMemory> map(const UniqueFd& memfd, size_t bytes, const char* what);
  RingMemory() = default;
  RingMemory(RingMemory&& other) noexcept;
  RingMemory& operator=(RingMemory&& other) noexcept;
  ~RingMemory();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class SubmissionRing {
 public:
  static Result<SubmissionRing> map(const UniqueFd& memfd, uint32_t capacity);
  uint32_t capacity() const { return capacity_; }
  // Pushes the record with this ticket. Returns false when the ring is full, or when the daemon has
  // written an impossible index into it. The record becomes visible at once; after its last push
  // the caller rings the doorbell if take_wakeup() says so.
  bool push(const rueda_abi_submission& record, uint64_t ticket);
  // Sets the ticket that a thread sleeps for; 0 means that none sleeps. After a ticket other than 0
  // the caller tells the daemon (take_wakeup()).
  void set_waits_for(uint64_t ticket);
  // Returns true if the daemon sleeps and must be woken.
  bool take_wakeup();

 private:
  RingMemory memory_;
  uint32_t capacity_ = 0;
  uint64_t tail_ = 0;  // this process's own index; the copy in the ring's header is for the daemon
};

class CompletionRing {
 public:
  enum class Pop { kRecord, kEmpty, kCorrupt };

  static Result<CompletionRing> map(const UniqueFd& memfd, uint32_t capacity);
  uint32_t capacity() const { return capacity_; }
  // Copies each record, and its text, out of the ring, and gives their places back together.
  // Returns kRecord if there were records, and kCorrupt if the daemon's index is impossible.
  template <class Visit>
  Pop pop_all(Visit visit);
  // Must be called before sleeping. Returns false if a record has arrived meanwhile: the caller
  // must not sleep.
  bool announce_sleep();
  void awake();
  // The number of records that have come and been taken. `has_grown` may be called without the
  // lock.
  uint64_t taken() const { return head_; }
  bool has_grown(uint64_t taken) const { return load_tail() != taken; }

 private:
  bool is_empty() const { return load_tail() == head_; }
  uint64_t load_tail() const;
  // The returned text is valid until the next call.
  std::string_view copy(uint64_t index, rueda_abi_completion& record);
  void give_back();

  RingMemory memory_;
  uint32_t capacity_ = 0;
  uint64_t head_ = 0;
  std::string text_;
};

template <class Visit>
CompletionRing::Pop CompletionRing::pop_all(Visit visit) {
  const uint64_t tail = load_tail();
  if (tail == head_) return Pop::kEmpty;
  if (tail - head_ > capacity_) return Pop::kCorrupt;
  rueda_abi_completion record;
  for (; head_ != tail; ++head_) {
    const std::string_view text = copy(head_, record);
    visit(record, text);
  }
  give_back();
  return Pop::kRecord;
}

}  // namespace rueda::client
