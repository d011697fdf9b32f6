// Decides when the coordinator gives a plan up in order to measure another setting of the tuner
// (decision 51). The class is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/plan/plan_follower.h"
#include "daemon/core/plan/tuner.h"

namespace rueda::core {

class Retuning {
 public:
  // Without a tuner, which options may disable, nothing is measured.
  explicit Retuning(const TuningOptions& options);

  bool is_enabled() const { return tuner_.has_value(); }
  // Whether settings are still being measured.
  bool is_tuning() const { return tuner_ && !tuner_->is_settled(); }
  // Returns what the next plan has to be made with. Requires is_enabled().
  const TunedSetting& setting() const { return tuner_->setting(); }

  // A plan with setting() has come into force.
  void on_locked();
  // The plan was given up, and not for the tuner's sake.
  void on_lost();
  // An operation of the plan has been launched, after so many rounds. A round is measured from the
  // launch of its first batch to that of the next one's, because all nodes keep this pace. Returns
  // true if the tuner has settled on the plan in force by this.
  bool on_launch(uint64_t rounds, TicksMs now);
  // Returns why the plan in force is to be given up now, or nothing. Where a round has just ended
  // there is least to be undone; a program that never stops there does not put it off for ever.
  std::optional<std::string> reason_to_unlock(const PlanFollower& follower) const;
  // Returns the lines that the tuner has said since the last call.
  std::vector<TuningLine> take_lines();

 private:
  std::optional<Tuner> tuner_;
  uint64_t rounds_ = 0;  // How many rounds of the plan the tuner was told.
  // The round since which another setting has to be measured.
  std::optional<uint64_t> wanted_since_;
};

}  // namespace rueda::core
