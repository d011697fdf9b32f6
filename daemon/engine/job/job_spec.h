// A job as it is registered, the daemon's options that it inherits, and what is told of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <sys/types.h>

#include "daemon/core/job/job.h"
#include "daemon/engine/data/data_loops.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/timeline.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/users/ledger.h"

namespace rueda::engine {

struct EngineOptions {
  std::string node_id;
  std::string rack;  // where this node stands; empty: nobody has said
  int64_t fusion_threshold_bytes = int64_t{64} << 20;
  core::Coordination coordination = core::kDefaultCoordination;
  core::Reducer reducer = core::Reducer::kNode;
  core::InterNode inter_node = core::InterNode::kRueda;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t staging_bytes = 64u << 20;
  // The one setting that waits for peers derive from (invariant I4).
  TicksMs timeout_ms = 10'000;
  TicksMs start_timeout_ms = 60'000;
  // How long some ranks of a job may wait for others (daemon/core/stall/stall.h).
  core::StallOptions stall{10'000, 0};
  core::TreeOptions tree;
  int lanes = 4;
  uint32_t streams = 1;            // of each channel
  bool corrupt_reduction = false;  // a fault that tests plant (daemon/faults.h)
  int64_t clock_skew_ns = 0;       // the same; of timelines
  // The program of a GPU worker and its arguments (GpuWorkerOptions). Empty: there is none.
  std::vector<std::string> gpu_worker_command;
  uint64_t gpu_staging_bytes = uint64_t{1} << 30;  // DeviceJobOptions::max_staging_bytes
  bool adds_on_gpu = false;  // what arrives from other nodes, for batches in device memory
};

// The parts of the daemon that its jobs share. All of them outlive the jobs.
struct EngineContext {
  boost::asio::io_context& control_loop;
  DataLoops& data_loops;
  ControlPlane& control_plane;
  observe::Metrics& metrics;
  const EngineOptions& options;
  // This node's, of each data loop, as others reach it; ":port" if it is where the control address
  // is. As join_addresses() has them.
  std::string data_address;
  // A small operation has been submitted or has ended: what comes next is microseconds away.
  std::function<void()> on_small = [] {};
  // What users of this node may have.
  std::shared_ptr<session::Ledger> ledger = std::make_shared<session::Ledger>();
};

// A job as a launcher registers it.
struct JobSpec {
  JobId job;
  std::string token;  // limits::kTokenBytes
  std::string user;   // for people
  uid_t uid = 0;      // whose processes may attach
  NodeIndex self;
  core::Layout layout;
  // Where nothing is said, the daemon's.
  std::optional<int64_t> fusion_threshold_bytes;
  TicksMs start_timeout_ms = 0;  // 0: the daemon's
  std::optional<core::Coordination> coordination;
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kAuto;  // of all-reduces
  std::optional<core::Reducer> reducer;
  std::optional<core::InterNode> inter_node;  // what carries device memory between its nodes
  core::Bandwidths bandwidths;  // between its nodes, as the daemon knows them; empty: it does not
  // Where nothing is said, core::AgreementOptions'.
  std::optional<int> lock_after_steps;
  std::optional<size_t> cache_capacity;
  // How long ranks may wait for others; where nothing is said, the daemon's.
  std::optional<TicksMs> stall_check_ms;
  std::optional<TicksMs> stall_shutdown_ms;
  // Registered once for each local rank, and there until the last registration is closed.
  bool is_shared = false;
  std::optional<TimelineRequest> timeline;  // to be written from the beginning; on node 0
  bool checks_finite = false;               // what this node's ranks contribute to reductions
  // Decision 51. The same on all nodes, as is the next.
  bool autotunes = false;
  bool replays = false;
  // These two are set on node 0 alone.
  std::shared_ptr<const core::Plan> replayed;  // null: there is none
  bool records_plan = false;
};

// The callbacks by which a job tells its launcher and the engine how it goes. They are called on
// the control loop.
struct JobListener {
  std::function<void(Epoch)> on_started;
  std::function<void(const Status&)> on_failed;
  // Called on node 0 with what becomes of the timeline (TimelineHost).
  std::function<bool(TimelineNews)> on_timeline = [](const TimelineNews&) { return false; };
  // On the coordinator's node: how the search for a setting goes, and which plan is in force.
  std::function<void(const core::TuningLine&)> on_tuning = [](const core::TuningLine&) {};
  std::function<void(const core::Plan&)> on_plan = [](const core::Plan&) {};
};

struct JobSnapshot {
  struct ProcessSet {
    uint32_t id = 0;
    std::vector<Rank> ranks;
    bool locked = false;
  };

  JobId job;
  std::string user;
  std::string state;
  uint32_t epoch = 0;
  int world_size = 0;
  int local_size = 0;
  int attached = 0;
  int nodes = 0;
  std::string coordinator;
  std::string mode;
  bool locked = false;  // a plan is in force
  uint64_t operations = 0;
  uint64_t bytes_reduced = 0;
  uint64_t in_flight = 0;
  std::string error;
  std::vector<Rank> missing_ranks;
  std::vector<std::string> ring;  // node ids in the order of the ring, of the epoch that runs
  std::vector<ProcessSet> process_sets;  // beside that of all ranks
};

// A locked schedule in force.
struct PlanSnapshot {
  JobId job;
  uint32_t process_set = 0;
  std::vector<Rank> ranks;
  core::Plan plan;
};

}  // namespace rueda::engine
