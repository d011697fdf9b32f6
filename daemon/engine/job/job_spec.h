// A job as it is registered, the daemon's options that it inherits, and what its listeners are
// told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/principal.h"
#include "daemon/core/generations/generation.h"
#include "daemon/core/job/job.h"
#include "daemon/engine/data/data_loops.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/timeline.h"
#include "daemon/gpu/worker/fork_server.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/users/ledger.h"

namespace rueda::engine {

struct EngineOptions {
  std::string node_id;
  std::string rack;  // Where this node stands; empty if nobody has said.
  int64_t fusion_threshold_bytes = int64_t{64} << 20;
  core::Coordination coordination = core::kDefaultCoordination;
  core::Reducer reducer = core::Reducer::kNode;
  std::string transport = "tcp";  // What carries frames: "tcp", "rdma" or "grpc".
  // How frames between nodes are protected: "none", "authenticate" or "encrypt".
  std::string data_protection = "none";
  core::InterNode inter_node = core::InterNode::kRueda;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t staging_bytes = 64u << 20;
  // The one setting from which all waits for peers derive (invariant I4).
  TicksMs timeout_ms = 5'000;
  TicksMs start_timeout_ms = 60'000;
  // How long some ranks of a job may wait for others (daemon/core/stall/stall.h).
  core::StallOptions stall{10'000, 0};
  core::TreeOptions tree;
  int lanes = 4;
  uint32_t streams = 1;  // The streams of each channel.
  // Data connections go to the host of a node's control address, whatever host the node has told.
  bool dials_control_hosts = false;
  bool corrupt_reduction = false;  // A fault that tests plant (daemon/faults.h).
  int64_t clock_skew_ns = 0;       // A fault that tests plant in the clock of timelines.
  // Another: is called at each step of an elastic job's agreement, with its name.
  std::function<void(const char*)> at_step = [](const char*) {};
  gpu::ForkServer* gpu_workers = nullptr;          // It starts GPU workers; null: there are none.
  uint64_t gpu_staging_bytes = uint64_t{1} << 30;  // See DeviceJobOptions::max_staging_bytes.
  // The GPU adds what arrives from other nodes, for batches in device memory.
  bool adds_on_gpu = false;
  // Where the GPU adds, network cards read what a node begins to send from the GPU's memory, if
  // they can.
  bool sends_from_gpu = true;
};

// The parts of the daemon that its jobs share. All of them outlive the jobs.
struct EngineContext {
  boost::asio::io_context& control_loop;
  DataLoops& data_loops;
  ControlPlane& control_plane;
  observe::Metrics& metrics;
  const EngineOptions& options;
  // The addresses of this node's data loops, as others reach them, in the form of join_addresses();
  // ":port" if the host is that of the control address.
  std::string data_address;
  // It is called when a small operation has been submitted or has ended: the next event is
  // microseconds away.
  std::function<void()> on_small = [] {};
  // Keeps what principals of this node may have.
  std::shared_ptr<session::Ledger> ledger = std::make_shared<session::Ledger>();
};

// A job whose ranks may come and go.
struct ElasticSpec {
  int min_ranks = 1;
  int max_ranks = 0;             // 0: as many as the layout has.
  TicksMs timeout_ms = 600'000;  // How long the job waits for min_ranks.
  // How long after the end of a generation its processes may take to come back, before the launcher
  // is told of those that have not; 0: for ever.
  TicksMs rank_timeout_ms = 0;
  // The incarnations of the layout's nodes, by index (core::MemberId).
  std::vector<uint64_t> incarnations;
  // Set if the job runs already: control addresses of nodes that may know of it. The layout is this
  // node alone then, with its slots.
  std::vector<std::string> contacts;
  // Set if a daemon that had the job here has died: what it asked to keep (keep_votes), and the
  // slots whose processes have ended since then.
  std::string votes;
  std::vector<core::Slot> ended_slots;
  std::vector<core::Slot> finished_slots;  // Those that have ended well.
  int slots = 0;  // How many processes are wanted here; 0: as many as the layout has.
};

// A job as a launcher registers it.
struct JobSpec {
  JobId job;
  std::string token;  // It has limits::kTokenBytes.
  std::string user;   // It is for people.
  Principal owner;    // Whose processes may attach.
  NodeIndex self;
  core::Layout layout;
  Epoch first_epoch{1};
  // Present if the job is elastic (ElasticJob).
  std::optional<ElasticSpec> elastic;
  // These three are the daemon's if nothing is said.
  std::optional<int64_t> fusion_threshold_bytes;
  TicksMs start_timeout_ms = 0;  // 0 means the daemon's.
  std::optional<core::Coordination> coordination;
  // The way of all-reduces between nodes.
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kAuto;
  int servers = 1;                 // With kCentral: so many of the first nodes are servers.
  TicksMs failure_timeout_ms = 0;  // That the daemon must have; 0: any.
  // The transport that the daemon must have: "tcp", "rdma" or "grpc"; empty: any.
  std::string transport;
  // How the daemon must protect data: "none", "authenticate" or "encrypt"; empty: any.
  std::string data_protection;
  std::optional<core::Reducer> reducer;
  std::optional<core::InterNode> inter_node;  // What carries device memory between its nodes.
  // Between its nodes, as far as the daemon knows them; empty if it does not.
  core::Bandwidths bandwidths;
  // These four are those of core::AgreementOptions if nothing is said.
  std::optional<int> lock_after_steps;
  std::optional<size_t> cache_capacity;
  std::optional<TicksUs> cycle_time_us;
  std::optional<int> sleep_agreed_every;
  // How long ranks may wait for others; the daemon's if nothing is said.
  std::optional<TicksMs> stall_check_ms;
  std::optional<TicksMs> stall_shutdown_ms;
  // The job is registered once for each local rank, and is there until the last registration is
  // closed.
  bool is_shared = false;
  // Set on node 0 if a timeline is written from the beginning.
  std::optional<TimelineRequest> timeline;
  bool checks_finite = false;  // Contributions of this node's ranks to reductions are checked.
  // These two are about decision 51, and must be the same on all nodes.
  bool autotunes = false;
  bool replays = false;
  // These two are set on node 0 alone.
  std::shared_ptr<const core::Plan> replayed;  // Null if there is none.
  bool records_plan = false;
};

// The callbacks by which a job tells its launcher and the engine how it goes. They are called on
// the control loop.
struct JobListener {
  std::function<void(Epoch)> on_started;
  std::function<void(const Status&)> on_failed;
  // The link to a node of the epoch has broken; on_failed may follow, or has come already.
  std::function<void(NodeIndex)> on_node_lost = nullptr;
  // All ranks have left the epoch.
  std::function<void()> on_finished = [] {};
  // An elastic job's process of this slot lives, and has not come back; the text says for how long.
  std::function<void(Rank, const std::string&)> on_silent = [](Rank, const std::string&) {};
  // An elastic job's process of this slot waits in vain, because others have ended well.
  std::function<void(Rank)> on_unneeded = [](Rank) {};
  // An elastic job asks its launcher to keep these bytes, in place of those before, and to say when
  // it has.
  std::function<void(std::string, std::function<void()>)> keep_votes =
      [](const std::string&, const std::function<void()>& kept) { kept(); };
  // It is called on node 0 with what becomes of the timeline (TimelineHost).
  std::function<bool(TimelineNews)> on_timeline = [](const TimelineNews&) { return false; };
  // These are called on the coordinator's node with how the search for a setting goes, and with the
  // plan in force.
  std::function<void(const core::TuningLine&)> on_tuning = [](const core::TuningLine&) {};
  std::function<void(const core::Plan&)> on_plan = [](const core::Plan&) {};
};

struct JobSnapshot {
  struct ProcessSet {
    uint32_t id = 0;
    std::vector<Rank> ranks;
    bool locked = false;
  };

  // A generation of an elastic job that has begun here.
  struct Generation {
    uint32_t epoch = 0;
    int64_t began_ms = 0;  // Since 1970.
    int ranks = 0;
    int nodes = 0;
    std::string reason;  // Why the one before has ended.
  };

  JobId job;
  Principal owner;  // Who has registered it.
  std::string user;
  std::string state;
  uint32_t epoch = 0;
  int world_size = 0;
  int local_size = 0;
  int attached = 0;
  int nodes = 0;
  std::string coordinator;
  std::string mode;
  bool locked = false;  // A plan is in force.
  uint64_t operations = 0;
  uint64_t bytes_reduced = 0;
  uint64_t in_flight = 0;
  std::string error;
  std::vector<Rank> missing_ranks;
  std::vector<std::string> ring;  // The node ids in the order of the ring, of the epoch that runs.
  std::vector<ProcessSet> process_sets;  // The sets beside that of all ranks.
  std::vector<Generation> generations;   // The last ones, the newest last.
  TicksMs failure_timeout_ms = 0;        // The daemon's.
};

// A locked schedule in force.
struct PlanSnapshot {
  JobId job;
  Principal owner;
  uint32_t process_set = 0;
  std::vector<Rank> ranks;
  core::Plan plan;
};

}  // namespace rueda::engine
