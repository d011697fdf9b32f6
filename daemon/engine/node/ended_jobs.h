// Why jobs ended that this daemon serves no more: a node that comes late to one hears it at once,
// instead of waiting until its start timeout. Told what time it is; belongs to the control loop.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/limits.h"
#include "daemon/engine/ports/control_plane.h"

namespace rueda::engine {

class EndedJobs {
 public:
  // Longer than a node can be late that its own launcher has not given up.
  static constexpr TicksMs kKeptMs = 600'000;

  struct Answer {
    Envelope envelope;
    bool is_first = false;  // about this job
  };

  // The last limits::kMaxJobs of them. `self` is this node's index in the job.
  void add(TicksMs now, const JobId& job, const std::string& token, NodeIndex self, Status why);
  // The job begins once more: by its token it is the same one.
  void remove(const JobId& job, const std::string& token);
  // What the sender is to be told. None: this is no Join of ranks that wait, or it is of no run of
  // a job that is remembered; runs differ in their tokens, and a Join proves that it knows one.
  std::optional<Answer> answer(TicksMs now, const Envelope& envelope);
  bool knows(const JobId& job) const {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [&](const Ended& ended) { return ended.job == job; });
  }
  size_t count() const { return jobs_.size(); }

 private:
  struct Ended {
    JobId job;
    std::string token;
    NodeIndex self;
    Status why;
    TicksMs forgotten_at = 0;
    bool has_been_told = false;
  };

  void forget_old(TicksMs now);

  std::deque<Ended> jobs_;  // oldest first
};

}  // namespace rueda::engine
