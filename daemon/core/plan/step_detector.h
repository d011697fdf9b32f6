// Sees that a schedule repeats, in steps of one kind or of several, and makes a plan of it.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/plan/plan_tree.h"

namespace rueda::core {

// After a lock that did not hold for this many rounds of its plan, the next one is made with more
// care.
inline constexpr uint64_t kRoundsOfALockThatHeld = 8;

// The coordinator's memory of what was reported, decreed and completed lately in the lockable
// track. A step is a stretch of decrees in which no tensor comes twice, and which cuts no group in
// two: else a plan would lead from a part of the group to something else. Steps with the same
// tensors are of one kind, whatever their order. A few kinds are remembered, over locks, too: so
// what made a plan fail is part of the next one (L9).
class StepDetector {
 public:
  explicit StepDetector(const AgreementOptions& options)
      : options_(options), fusion_(options.fusion) {}

  // A node has reported the tensor.
  void on_reported(const std::string& tensor, TicksMs now);
  // is_within_group: after the batch, some tensors of a group have been decreed and others not.
  void on_decreed(Seq seq, const std::vector<DescriptorPtr>& batch, bool is_within_group);
  void on_ended(Seq seq);
  // Something else was decreed, or could not be: the stretch so far is no step.
  void spoil();

  // The last `steps` steps, but for the first of them, were all of kinds seen before; the last one
  // has just been decreed to its end.
  bool has_repeated(int steps) const;
  // Of the step that has just ended, and of the other kinds that count: those seen twice, those
  // among the last `steps`, and those that ended a lock. What cannot be told apart from what was
  // seen later is left out.
  struct Proposal {
    Plan plan;
    PlanPlace at = kPlanStart;  // where the step has ended
  };
  Proposal make_plan(int steps);
  // Plans are made with this from now on.
  void set_fusion_threshold(int64_t bytes) { fusion_.threshold_bytes = bytes; }
  // The plan made last, or declared, once more, by the fusion threshold of now. None: what was
  // decreed last is no whole step of it.
  std::optional<Proposal> remake_plan();
  // A plan of this step, which nobody has seen, is to be in force: as if it had been made last.
  Plan plan_ahead(StepRecord step);
  // Likewise, one that is not of its making; it cannot be made once more.
  void follow(const Plan& plan);

  // A plan is in force: nothing is seen until it is not.
  void on_locked();
  // How a plan came to its end.
  struct Unlocked {
    // The batches of its unfinished, or last, round.
    std::vector<std::vector<DescriptorPtr>> round;
    bool is_within_group = false;         // likewise, after it
    std::map<PlanPlace, uint64_t> ended;  // how many of its rounds ended with each batch
    bool is_to_be_remade = false;         // that is why: nothing was wrong with it
  };
  // The plan made last is not in force any more.
  void on_unlocked(const Unlocked& unlocked, TicksMs now);

 private:
  struct Report {
    uint64_t first = 0;
    TicksMs last_at = 0;
  };
  struct Kind {
    StepRecord last;  // the last step of the kind
    std::map<std::string, DescriptorPtr> tensors;
    int64_t last_step = 0;
    int seen = 0;
    bool ended_a_lock = false;
    PlanPlace ends_at = kPlanStart;  // in the plan made last; kPlanStart: not in it
  };

  void add(Seq seq, const Occurrence& occurrence);
  bool leads(const TensorDescriptor& tensor) const;
  void drop_part();
  void begin_step(bool is_within_group);
  void finish_step(bool is_within_group);
  void remember(StepRecord step);
  const Kind* find_current() const;

  std::optional<PlanTree> make_tree() const;  // of made_of_
  void take_over(const PlanTree& tree);
  void note_leader(const Plan& plan);
  void learn_from(const Unlocked& unlocked, uint64_t rounds);

  const AgreementOptions options_;
  FusionOptions fusion_;
  std::vector<StepRecord> made_of_;         // the plan made last; empty: it is not of this making
  TicksMs made_within_ms_ = 0;              // likewise: the fusion window
  uint64_t moment_ = 0;                     // events counted
  std::map<std::string, Report> reported_;  // not decreed yet
  StepRecord step_;
  size_t step_bytes_ = 0;                    // what the step would take in a message
  std::set<std::string> names_;              // of the step
  bool has_leader_ = false;                  // the step
  std::map<Seq, std::vector<size_t>> open_;  // places in step_ of operations under way
  bool is_spoiled_ = false;                  // the stretch is no step
  bool is_within_group_ = false;             // after the last batch
  bool cuts_group_ = false;                  // the stretch began within a group
  int after_a_lock_ = 0;   // finished steps until those that ended a lock are over
  std::list<Kind> kinds_;  // the one seen last comes first
  DescriptorPtr leader_;   // steps began with it, or its group, when there was a plan
  std::map<std::string, DescriptorPtr> dropped_;  // the part of a step that was dropped last
  int64_t steps_ = 0;                             // finished
  int steady_ = 0;  // finished steps in a row of kinds seen before, and one before them
};

}  // namespace rueda::core
