// Sees that a schedule repeats, and makes a plan of it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/agreement.h"

namespace rueda::core {

// The coordinator's memory of what was reported, decreed and completed lately in the lockable
// track. A step is a stretch of decrees in which no tensor comes twice.
class Schedule {
 public:
  explicit Schedule(const AgreementOptions& options) : options_(options) {}

  // A node has reported the tensor.
  void on_reported(const std::string& tensor, TicksMs now);
  void on_decreed(Seq seq, const std::vector<DescriptorPtr>& batch);
  void on_ended(Seq seq);

  // The last `steps` steps were the same, and the last one has just been decreed to its end.
  bool has_repeated(int steps) const;
  // Of the step that has just ended. Tensors share a batch if they can be fused and fit under the
  // threshold, were ready within the fusion window, and none was complete before another was
  // reported: a framework may compute the second from the first.
  Plan make_plan() const;
  // The next step is the first.
  void clear();

 private:
  using Moment = uint64_t;  // events counted
  struct Report {
    Moment first = 0;
    TicksMs last_at = 0;
  };
  struct Occurrence {
    DescriptorPtr descriptor;
    Report report;
    Moment ended = UINT64_MAX;
  };
  struct Batch {
    std::vector<DescriptorPtr> tensors;
    int64_t bytes = 0;
    Moment first_ended = UINT64_MAX;
    TicksMs first_ready = 0;
    size_t last_place = 0;
  };
  // Tensors that stay together: one, or the like ones of a group.
  struct Unit {
    std::vector<const Occurrence*> tensors;
    size_t last_place = 0;
  };

  std::vector<Unit> units() const;
  bool may_join(const Batch& batch, const Unit& unit) const;
  void finish_step();

  const AgreementOptions options_;
  Moment moment_ = 0;
  std::map<std::string, Report> reported_;   // not decreed yet
  std::vector<Occurrence> step_;             // in the order of decrees
  size_t step_bytes_ = 0;                    // what the step would take in a message
  std::set<std::string> names_;              // of the step
  std::map<Seq, std::vector<size_t>> open_;  // places in step_ of operations under way
  std::map<std::string, DescriptorPtr> previous_;
  int repeated_ = 0;  // steps before this one that were the same as the one before it, plus one
};

}  // namespace rueda::core
