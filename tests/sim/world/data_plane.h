// Models what the cores' launches lead to: an operation completes on each node in its own time,
// once every node that it needs has launched it. A broadcast needs the nodes from its root on round
// the ring; under policy `shrink` it needs all. Nodes that mean different batches by a name learn
// it from their neighbours' frames. Under `shrink` each node also remembers what it holds of P and
// F, and says which rule a core breaks that lets go of the wrong thing; such a job has one process
// set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sim/setup/random_choices.h"
#include "tests/sim/world/world.h"

namespace rueda::sim {

class DataPlane {
 public:
  DataPlane(const RunSetup& setup, EventQueue& queue, RandomChoices& choices, const World& world)
      : setup_(setup),
        queue_(queue),
        choices_(choices),
        world_(world),
        under_way_(static_cast<size_t>(world.node_count())),
        memories_(under_way_.size()) {}

  void on_launch(int node, const core::Launch& launch);
  // L3, L7: drops the operations that the node had launched and not ended, and the frames of their
  // generation.
  void on_cancel(int node, const core::Cancel& cancel);
  // Closes the node's data channels with the epoch; neighbours may see that before they know why.
  void on_epoch_over(int node, uint32_t epoch);
  // Hears that a node is gone or stands still: neighbours see its data channel break now, or later.
  void on_silence(int node, const Status& status);
  // Returns whether an end that was on its way still comes. It does not if a node died that it
  // needed, or if the operation was cancelled.
  bool completes(int node, const SimEvent& event);

  // --- Policy `shrink`
  // Stops the sealed epoch, and returns what the node has of it.
  core::DataStopped on_stop(int node, Epoch epoch);
  void on_recovered(int node, const core::NextEpoch& next);
  // Hears what the core lets go of, and checks that what is left is within the bound.
  void on_freed(int node, const core::Output& output);
  // Returns the first rule that was broken, or "" if none was.
  const std::string& violation() const { return violation_; }
  uint64_t operations_completed() const { return operations_completed_; }

 private:
  struct Operation {
    uint64_t members = 0;  // bit i: node i has a rank in the process set
    CollectiveKind kind = CollectiveKind::kAllreduce;
    int root = 0;              // the root's node
    uint64_t launched_on = 0;  // bit i: node i has launched it
    uint64_t scheduled_on = 0;
  };
  struct Name {
    uint32_t generation = 0;
    uint64_t plan_hash = 0;
    auto operator<=>(const Name&) const = default;
  };
  // Describes what a node's memory has of an operation of its epoch.
  struct Memory {
    Name name;
    int64_t bytes = 0;
    bool launched = false;
    bool partial = true;       // P
    std::vector<bool> chunks;  // F
    bool freed = false;        // F is gone
    std::vector<core::Fetch> fetches;

    bool whole() const { return std::find(chunks.begin(), chunks.end(), false) == chunks.end(); }
  };
  using Key = std::tuple<uint32_t, uint32_t, Seq, Name>;  // begins with epoch and process set
  using Place = std::pair<uint32_t, Seq>;                 // begins with the process set

  // Returns the nodes that must have launched the operation before it can complete on this one.
  uint64_t needed_by(const Operation& operation, int node) const;
  void compare_neighbours(int node, const core::Launch& launch);
  // Returns the layout of the process set, as the node knows it.
  const core::Layout& layout_of(int node, uint32_t process_set) const;
  uint64_t members_of(int node, uint32_t process_set) const;
  Memory* memory(int node, Seq seq);
  void remember_launch(int node, const core::Launch& launch, const Name& name);
  void check_bound(int node, core::Track track);
  bool fetched(int node, const SimEvent& event, const Memory& memory);
  void violated(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }

  const RunSetup& setup_;
  EventQueue& queue_;
  RandomChoices& choices_;
  const World& world_;
  std::map<Key, Operation> operations_;
  std::vector<std::map<Place, Name>> under_way_;  // by node
  uint64_t operations_completed_ = 0;
  std::vector<std::map<Seq, Memory>> memories_;  // by node, of its epoch
  std::string violation_;
};

}  // namespace rueda::sim
