// A node may fail before this daemon's launcher has registered the job, and be gone by then. What
// it said is kept for a while. Told what time it is; belongs to the control loop.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/engine/ports/control_plane.h"

namespace rueda::engine {

class PendingJobFailures {
 public:
  // Launchers of one job come within moments of each other.
  static constexpr TicksMs kKeptMs = 60'000;
  // Nobody has proved anything yet: a stranger may fill this, and nothing else.
  static constexpr size_t kMost = 64;
  static constexpr size_t kMaxTextBytes = 4096;

  // Of a job that is not registered here; anything but a Fail is dropped.
  void add(TicksMs now, Envelope envelope);
  // The first that belongs to this run of the job, by its proof. All of the job's name go.
  std::optional<Envelope> take(TicksMs now, const JobId& job, const std::string& token);
  size_t count() const { return fails_.size(); }

 private:
  struct Early {
    Envelope envelope;
    TicksMs forgotten_at = 0;
  };

  void forget_old(TicksMs now);

  std::deque<Early> fails_;  // oldest first
};

}  // namespace rueda::engine
