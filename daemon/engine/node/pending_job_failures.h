// Keeps for a while what a node said that failed before this daemon's launcher has registered the
// job, because the node may be gone by then. It is told what time it is, and belongs to the control
// loop.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/engine/ports/control_plane.h"

namespace rueda::engine {

class PendingJobFailures {
 public:
  // This is long enough, because launchers of one job come within moments of each other.
  static constexpr TicksMs kKeptMs = 60'000;
  // The bounds are tight, because nobody has proved anything yet: a stranger may fill this, and
  // nothing else.
  static constexpr size_t kMost = 64;
  static constexpr size_t kMaxTextBytes = 4096;

  // Keeps a Fail of a job that is not registered here; anything else is dropped.
  void add(TicksMs now, Envelope envelope);
  // Takes the first Fail that belongs to this run of the job, by its proof, and drops all others of
  // the job's name.
  std::optional<Envelope> take(TicksMs now, const JobId& job, const std::string& token);
  size_t count() const { return fails_.size(); }

 private:
  struct Early {
    Envelope envelope;
    TicksMs forgotten_at = 0;
  };

  void forget_old(TicksMs now);

  std::deque<Early> fails_;  // The oldest comes first.
};

}  // namespace rueda::engine
