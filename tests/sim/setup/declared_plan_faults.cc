#include "tests/sim/setup/declared_plan_faults.h"

#include <map>
#include <string>
#include <utility>

#include "daemon/core/model/track.h"
#include "daemon/core/plan/declared_plan.h"
#include "daemon/core/plan/plan_tree.h"

namespace rueda::sim {

core::DescriptorPtr plan_of(const std::vector<TensorSetup>& tensors) {
  auto declared = std::make_shared<core::TensorDescriptor>();
  declared->name = core::kPlanName;
  declared->kind = CollectiveKind::kDeclarePlan;
  std::map<std::string, uint32_t> places;
  for (const TensorSetup& tensor : tensors) {
    core::PlannedTensor& planned = declared->plan.emplace_back();
    planned.tensor = std::make_shared<core::TensorDescriptor>(tensor.descriptor);
    for (const std::string& before : tensor.after) {
      if (const auto it = places.find(before); it != places.end()) {
        planned.after.push_back(it->second);
      }
    }
    places.emplace(tensor.descriptor.name, declared->plan.size() - 1);
  }
  return declared;
}

std::shared_ptr<const core::Plan> recorded_by(const RunSetup& setup) {
  std::vector<TensorSetup> tensors;
  for (const TensorSetup& tensor : setup.tensors) {
    const bool is_lockable =
        core::track_of(tensor.descriptor) == core::Track::kLockable && (tensor.kinds & 1) != 0;
    if (is_lockable) tensors.push_back(tensor);
  }
  const core::DescriptorPtr step = plan_of(tensors);
  if (step->plan.empty() || !core::find_flaw(step->plan).empty()) return nullptr;
  const core::StepRecord record = core::step_of(step->plan);
  const core::FusionOptions fusion{setup.fusion_threshold_bytes};
  return std::make_shared<const core::Plan>(core::make_plan_tree({&record}, fusion, 0)->plan);
}

core::DescriptorPtr declared_by(const RunSetup& setup, int rank) {
  std::vector<TensorSetup> tensors;
  for (const TensorSetup& tensor : setup.tensors) {
    if (core::track_of(tensor.descriptor) == core::Track::kLockable) tensors.push_back(tensor);
  }
  if (setup.declares == Declares::kNothing || tensors.empty()) return nullptr;
  TensorSetup stranger;
  stranger.descriptor.name = "stranger";
  if (setup.declares == Declares::kTooMuch) tensors.push_back(stranger);
  const bool may_go = tensors.size() > 1 && tensors.back().descriptor.group.empty();
  if (setup.declares == Declares::kTooLittle && may_go) tensors.pop_back();
  if (setup.declares == Declares::kWithoutOrder) {
    for (TensorSetup& tensor : tensors) tensor.after.clear();
  }
  if (setup.declares == Declares::kNotTheSame && rank == 0) tensors.push_back(stranger);
  return plan_of(tensors);
}

}  // namespace rueda::sim
