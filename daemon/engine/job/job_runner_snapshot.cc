// JobRunner's state, for operators.

#include <iterator>
#include <utility>

#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {

JobSnapshot JobRunner::snapshot() const {
  JobSnapshot snapshot;
  snapshot.job = spec_.job;
  snapshot.user = spec_.user;
  snapshot.state = core::to_string(core_.state());
  if (core_.state() == core::JobState::kForming && core_.attached() == 0) snapshot.state = "idle";
  snapshot.epoch = core_.epoch().value;
  snapshot.world_size = spec_.layout.world_size();
  snapshot.local_size = static_cast<int>(locals_.size());
  snapshot.attached = static_cast<int>(core_.attached());
  snapshot.nodes = spec_.layout.node_count();
  snapshot.coordinator = spec_.layout.node(spec_.layout.coordinator()).node_id;
  snapshot.mode = core_.mode();
  snapshot.locked = core_.is_locked();
  snapshot.operations = operations_done_;
  snapshot.bytes_reduced = bytes_reduced_;
  snapshot.in_flight = core_.submissions_in_flight();
  snapshot.error = core_.failure().message();
  snapshot.missing_ranks = core_.missing_ranks();
  if (data_epoch_open_) snapshot.ring = ring();
  for (const core::Collectives* set : core_.process_sets()) {
    if (set->id() == 0) continue;
    snapshot.process_sets.push_back({set->id(), set->layout().ranks(), set->is_locked()});
  }
  return snapshot;
}

std::vector<std::string> JobRunner::ring() const {
  std::vector<std::string> ids;
  for (const NodeIndex node : core_.layout().ring())
    ids.push_back(core_.layout().node(node).node_id);
  return ids;
}

std::vector<PlanSnapshot> JobRunner::plans() const {
  std::vector<PlanSnapshot> all;
  for (const core::Collectives* set : core_.process_sets()) {
    if (!set->plan()) continue;
    all.push_back({spec_.job, set->id(), set->layout().ranks(), *set->plan()});
  }
  return all;
}

std::vector<StallSnapshot> JobRunner::stalls() const {
  std::vector<StallSnapshot> all;
  for (const core::Collectives* set : core_.process_sets()) {
    const core::StallNotice notice = set->stalls().stalls(running_ms());
    std::vector<StallSnapshot> some = snapshot_stalls(spec_.job, set->id(), set->layout(), notice);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace rueda::engine
