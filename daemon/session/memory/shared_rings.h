// The memory and the descriptors that the daemon makes for a session and shares with its client:
// two rings and two doorbells.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/session/memory/arena.h"
#include "daemon/session/records/ring.h"

namespace rueda::session {

class SharedRings {
 public:
  static Result<SharedRings> make(uint32_t capacity);

  // Returns the descriptors in the order of the attach reply. Call it once.
  std::vector<UniqueFd> take_client_descriptors() { return std::move(client_descriptors_); }
  // Returns an eventfd that the client writes. Call it once; the caller owns the descriptor.
  UniqueFd take_daemon_doorbell() { return std::move(daemon_doorbell_); }
  // Empties the daemon's doorbell. The call never blocks, whatever the client did to the
  // descriptor's flags.
  static void silence(int daemon_doorbell);
  // Wakes the client. The call never blocks.
  void ring_client() const;

  SubmissionRing& submissions() { return submissions_; }
  CompletionRing& completions() { return completions_; }
  bool is_lost() const { return submission_memory_.is_lost() || completion_memory_.is_lost(); }

 private:
  SharedRings(uint32_t capacity, Mapping submission_memory, Mapping completion_memory);

  Mapping submission_memory_;
  Mapping completion_memory_;
  SubmissionRing submissions_;
  CompletionRing completions_;
  std::vector<UniqueFd> client_descriptors_;
  UniqueFd daemon_doorbell_;
  UniqueFd client_doorbell_;
};

}  // namespace rueda::session
