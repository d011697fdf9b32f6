#include "daemon/core/plan/declared_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "daemon/core/model/mutants.h"
#include "daemon/core/model/track.h"

namespace rueda::core {
namespace {

std::string quoted(const PlannedTensor& planned) {
  return "tensor \"" + planned.tensor->name + '"';
}

std::string find_flaw_of(const TensorDescriptor& tensor) {
  if (tensor.memory == MemorySpace::kDeviceNccl) {
    return "goes by NCCL, whose operations no plan has: leave it out, or start the job without "
           "--inter-node nccl";
  }
  if (track_of(tensor) != Track::kLockable) {
    return std::string("is a ") + to_string(tensor.kind) + ", which no plan has: leave it out";
  }
  if (tensor.process_set != 0) {
    return "is of process set " + std::to_string(tensor.process_set) +
           ": only the set of all ranks has a declared plan";
  }
  return {};
}

// Returns the unit of each tensor; a unit is a group, or a tensor without one. A group's tensors
// are ready at once, so they are listed in one piece.
std::vector<uint64_t> units_of(const std::vector<PlannedTensor>& declared) {
  std::vector<uint64_t> units;
  for (size_t i = 0; i < declared.size(); ++i) {
    const std::string& group = declared[i].tensor->group;
    const bool goes_on = i > 0 && !group.empty() && group == declared[i - 1].tensor->group;
    units.push_back(i == 0 ? 0 : units.back() + (goes_on ? 0 : 1));
  }
  return units;
}

std::string find_flaw_of_groups(const std::vector<PlannedTensor>& declared) {
  const std::vector<uint64_t> units = units_of(declared);
  std::map<std::string, size_t> sizes;
  for (size_t i = 0; i < declared.size(); ++i) {
    const std::string& group = declared[i].tensor->group;
    if (group.empty()) continue;
    if (++sizes[group] > 1 && units[i] != units[i - 1]) {
      return quoted(declared[i]) + " is apart from the others of group \"" + group +
             "\": list a group's tensors one after another";
    }
    for (const uint32_t before : declared[i].after) {
      if (units[before] != units[i]) continue;
      return quoted(declared[i]) + " comes after \"" + declared[before].tensor->name +
             "\", and both are of group \"" + group + "\", whose tensors are submitted at once";
    }
  }
  for (const PlannedTensor& planned : declared) {
    const TensorDescriptor& tensor = *planned.tensor;
    if (tensor.group.empty() || sizes.at(tensor.group) == tensor.group_size) continue;
    return "group \"" + tensor.group + "\" has " + std::to_string(tensor.group_size) +
           " tensors, and " + std::to_string(sizes.at(tensor.group)) + " are listed";
  }
  return {};
}

}  // namespace

std::string find_flaw(const std::vector<PlannedTensor>& declared) {
  std::set<std::string> names;
  size_t bytes = 0;
  for (size_t i = 0; i < declared.size(); ++i) {
    const TensorDescriptor& tensor = *declared[i].tensor;
    if (std::string flaw = find_flaw_of(tensor); !flaw.empty()) {
      return quoted(declared[i]) + " " + flaw;
    }
    if (!names.insert(tensor.name).second) return quoted(declared[i]) + " is listed twice";
    for (const uint32_t before : declared[i].after) {
      if (before < i) continue;
      return quoted(declared[i]) + " comes after tensor " + std::to_string(before) +
             " of the list, which is not listed before it";
    }
    bytes += bytes_in_a_plan(tensor) + 5 * declared[i].after.size();
  }
  if (bytes > kMaxPlanBytes) return "it takes more than 3 MiB to say: declare less of it";
  return find_flaw_of_groups(declared);
}

StepRecord step_of(const std::vector<PlannedTensor>& declared) {
  // The units become ready one after another in the order of the list. What others come after was
  // complete just before the first of them was reported.
  const std::vector<uint64_t> units = units_of(declared);
  StepRecord step;
  for (size_t i = 0; i < declared.size(); ++i) {
    Occurrence& occurrence = step.emplace_back();
    occurrence.descriptor = declared[i].tensor;
    occurrence.first_reported = 2 * units[i] + 1;
    if (RUEDA_MUTANT(kDependentTensorsFused)) continue;
    for (const uint32_t before : declared[i].after) {
      step[before].ended = std::min(step[before].ended, 2 * units[i]);
    }
  }
  return step;
}

}  // namespace rueda::core
