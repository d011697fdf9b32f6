// Sees that a schedule repeats, in steps of one kind or of several, and makes a plan of them.
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

// A lock holds if it lasts for so many rounds of its plan. After one that did not, the next is made
// with more care.
inline constexpr uint64_t kRoundsOfALockThatHeld = 8;

// The coordinator's memory of what was lately reported, decreed and completed in the lockable
// track. A step is a stretch of decrees in which no tensor comes twice, and which cuts no group in
// two: else a plan would lead from a part of the group to something else. Steps with the same
// tensors are of one kind, whatever their order. A few kinds are remembered, even over locks, so
// that what made a plan fail is part of the next one (L9).
class StepDetector {
 public:
  explicit StepDetector(const AgreementOptions& options)
      : options_(options), fusion_(options.fusion) {}

  // A node has reported the tensor.
  void on_reported(const std::string& tensor, TicksMs now);
  // The batch was decreed. After it, `is_within_group` says, some tensors of a group have been
  // decreed and others have not.
  void on_decreed(Seq seq, const std::vector<DescriptorPtr>& batch, bool is_within_group);
  // The operation is complete.
  void on_ended(Seq seq);
  // Something was decreed that is in no step, such as an error: the stretch so far is no step.
  void spoil();

  // Returns whether the last `steps` steps, except the first of them, were of kinds seen before,
  // and the last of them has just been decreed to its end.
  bool has_repeated(int steps) const;
  // A plan of the step that has just ended, and of the other kinds that count: those seen twice,
  // those among the last `steps` steps, and those that ended a lock. A kind that cannot be told
  // apart from those seen later is left out.
  struct Proposal {
    Plan plan;
    PlanPlace at = kPlanStart;  // Where the step that has just ended is in the plan.
  };
  Proposal make_plan(int steps);
  // Plans are made with this threshold from now on.
  void set_fusion_threshold(int64_t bytes) { fusion_.threshold_bytes = bytes; }
  // Makes the plan once more that was made last or declared, with the fusion threshold of now.
  // Returns none if what was decreed last is no whole step of it.
  std::optional<Proposal> remake_plan();
  // Returns a plan of this step, which nobody has seen, as if it had been made last: the plan is
  // about to be in force.
  Plan plan_ahead(StepRecord step);
  // Another's plan is about to be in force. remake_plan() cannot make it once more.
  void follow(const Plan& plan);

  // A plan is in force: nothing is seen until it is not.
  void on_locked();
  // How a plan has come to its end.
  struct Unlocked {
    // The batches of its unfinished, or last, round.
    std::vector<std::vector<DescriptorPtr>> round;
    bool is_within_group = false;         // After these batches, a group has been decreed in part.
    std::map<PlanPlace, uint64_t> ended;  // How many of its rounds ended with each batch.
    // It ended in order to be made once more; nothing was wrong with it.
    bool is_to_be_remade = false;
  };
  // The plan that was in force is in force no more.
  void on_unlocked(const Unlocked& unlocked, TicksMs now);

 private:
  struct Report {
    uint64_t first = 0;
    TicksMs last_at = 0;
  };
  struct Kind {
    StepRecord last;  // The last step of the kind.
    std::map<std::string, DescriptorPtr> tensors;
    int64_t last_step = 0;
    int seen = 0;
    bool ended_a_lock = false;
    // The place in the plan made last where a step of the kind ends; kPlanStart if that plan was
    // not made of the kind.
    PlanPlace ends_at = kPlanStart;
  };

  void add(Seq seq, const Occurrence& occurrence);
  bool leads(const TensorDescriptor& tensor) const;
  void drop_part();
  void begin_step(bool is_within_group);
  void finish_step(bool is_within_group);
  void remember(StepRecord step);
  const Kind* find_current() const;

  std::optional<PlanTree> make_tree() const;  // Makes a tree of the steps in made_of_.
  void take_over(const PlanTree& tree);
  void note_leader(const Plan& plan);
  void learn_from(const Unlocked& unlocked, uint64_t rounds);

  const AgreementOptions options_;
  FusionOptions fusion_;
  // The steps of the plan made last; empty if it is another's plan.
  std::vector<StepRecord> made_of_;
  TicksMs made_within_ms_ = 0;              // The fusion window with which that plan was made.
  uint64_t moment_ = 0;                     // A count of events.
  std::map<std::string, Report> reported_;  // Tensors that are not decreed yet.
  StepRecord step_;
  size_t step_bytes_ = 0;                    // What the step would take in a message.
  std::set<std::string> names_;              // The names in the step.
  bool has_leader_ = false;                  // Whether the step has the leader.
  std::map<Seq, std::vector<size_t>> open_;  // Places in step_ of operations under way.
  bool is_spoiled_ = false;                  // The stretch is no step.
  bool is_within_group_ = false;  // After the last batch, a group has been decreed in part.
  bool cuts_group_ = false;       // The stretch began within a group.
  int after_a_lock_ = 0;          // Finished steps until those that ended a lock are over.
  std::list<Kind> kinds_;         // The kind seen last comes first.
  DescriptorPtr leader_;          // Steps began with it, or with its group, when there was a plan.
  std::map<std::string, DescriptorPtr> dropped_;  // The part of a step that was dropped last.
  int64_t steps_ = 0;                             // How many steps are finished.
  int steady_ = 0;  // Finished steps in a row of kinds seen before, and one before them.
};

}  // namespace rueda::core
