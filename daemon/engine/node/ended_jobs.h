// Remembers why jobs ended that this daemon serves no more, so that a node that comes late to one
// hears it at once, instead of waiting until its start timeout. It is told what time it is, and
// belongs to the control loop.
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
  // An end is kept for longer than a node can be late whose launcher has not given up.
  static constexpr TicksMs kKeptMs = 600'000;

  struct Answer {
    Envelope envelope;
    bool is_first = false;  // It is the first answer about this job.
  };

  // Notes that the job has ended, and why; the last limits::kMaxJobs jobs are kept. `self` is this
  // node's index in the job.
  void add(TicksMs now, const JobId& job, const std::string& token, NodeIndex self, Status why);
  // Forgets the job, which begins once more; its token says that it is the same run.
  void remove(const JobId& job, const std::string& token);
  // Returns what the sender has to be told. Returns none if the message is no Join of ranks that
  // wait, or if it is of no run of a job that is remembered; runs differ in their tokens, and a
  // Join proves that it knows one.
  std::optional<Answer> answer(TicksMs now, const Envelope& envelope);
  // Returns why the run of the job with this token is over for good, because somebody has ended it;
  // ok if that is not so.
  Status ended_by_request(TicksMs now, const JobId& job, const std::string& token);
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

  std::deque<Ended> jobs_;  // The oldest comes first.
};

}  // namespace rueda::engine
