// Holds all nodes of a job: the shipped recovery core on each, and a model of memory and ring
// around it. Messages that are sent are left in sent(): whoever drives the world decides what
// arrives, and when. A world is a value: it can be copied, to go on from one state in two ways.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/recovery/recovery_checks.h"
#include "tests/sim/setup/recovery_model.h"

namespace rueda::sim {

class RecoveryWorld {
 public:
  explicit RecoveryWorld(std::shared_ptr<const Plan> plan);
  void start(TicksMs now);

  // Makes the node's ranks submit the next operation of the plan.
  void submit(TicksMs now, int node);
  void arrive(TicksMs now, const Parcel& parcel);
  void suspect(TicksMs now, int node, int other);
  void tick(TicksMs now, int node);
  void crash(int node);

  std::vector<Parcel>& sent() { return sent_; }
  const std::vector<NodeModel>& nodes() const { return nodes_; }
  const NodeModel& node(int node) const { return nodes_[static_cast<size_t>(node)]; }
  const Plan& plan() const { return *plan_; }
  const RecoveryChecks& checks() const { return checks_; }
  RecoveryChecks& checks() { return checks_; }
  // Returns whether every submission on the node has ended.
  bool has_finished(int node) const;
  // Hashes everything that decides how the world goes on, except messages on their way.
  void hash(Fnv1a& hash) const;

 private:
  NodeModel& model(int node) { return nodes_[static_cast<size_t>(node)]; }
  core::Recovery& core(int node) { return *model(node).core; }

  void launch_ready(TicksMs now, int node);
  bool window_open(const NodeModel& model, Seq seq) const;
  void launch(TicksMs now, int node, Seq seq, int operation);
  void take_early(TicksMs now, int node);
  void on(TicksMs now, const Parcel& parcel, const Frame& frame);
  void on(TicksMs now, const Parcel& parcel, const FetchRequest& request);
  void on(TicksMs now, const Parcel& parcel, const FetchReply& reply);
  void on(TicksMs now, const Parcel& parcel, const core::RecoveryMessage& message);
  void store(TicksMs now, int node, Seq seq, size_t chunk, ChunkValue value);

  void carry_out(TicksMs now, int node, core::RecoveryOutput output);
  void enter(int node, const core::NextEpoch& next);
  void deliver(int node, const core::CompletedOperation& completed);
  void end(int node, const core::JobEnd& ended);
  void end_tensor(int node, int tensor);

  std::shared_ptr<const Plan> plan_;
  std::vector<NodeModel> nodes_;  // the witness is last
  std::vector<Parcel> sent_;
  RecoveryChecks checks_;
};

// Hashes everything in the parcel.
void hash_parcel(const Parcel& parcel, Fnv1a& hash);

}  // namespace rueda::sim
