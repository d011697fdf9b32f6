#include "daemon/core/plan/retuning.h"

namespace rueda::core {
namespace {

// The tuner waits for so many rounds at most until the plan is at a place between two rounds.
constexpr uint64_t kRoundsToWait = 2;

}  // namespace

Retuning::Retuning(const TuningOptions& options) {
  if (options.is_enabled) tuner_.emplace(options);
}

void Retuning::on_locked() {
  wanted_since_.reset();
  rounds_ = 0;
  if (tuner_) tuner_->on_locked();
}

void Retuning::on_lost() {
  if (tuner_) tuner_->on_lost();
}

bool Retuning::on_launch(uint64_t rounds, TicksMs now) {
  if (!tuner_ || rounds == rounds_) return false;
  rounds_ = rounds;
  if (wanted_since_) return false;  // The plan in force is not the one to be measured next.
  const bool was_tuning = is_tuning();
  if (tuner_->on_round(now)) {
    wanted_since_ = rounds_;
    return false;
  }
  return was_tuning && !is_tuning();
}

std::optional<std::string> Retuning::reason_to_unlock(const PlanFollower& follower) const {
  if (!wanted_since_) return std::nullopt;
  const PlanPlace at = follower.at();
  const bool is_between_rounds =
      at != kPlanStart && follower.plan().batches[static_cast<size_t>(at)].ends;
  if (!is_between_rounds && rounds_ < *wanted_since_ + kRoundsToWait) return std::nullopt;
  return tuner_->is_settled() ? "autotuning has settled" : "autotuning tries another setting";
}

std::vector<TuningLine> Retuning::take_lines() {
  return tuner_ ? tuner_->take_lines() : std::vector<TuningLine>();
}

}  // namespace rueda::core
