// Every metric that the daemon exports, by name. One registry per daemon; thread-safe throughout.
// Names follow Prometheus: base units, `_total` for counters, prefix rueda_. docs/metrics.md lists
// them.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include "daemon/base/dtype.h"

namespace rueda::observe {

struct BuildInfo {
  std::string version;
  std::string node_id;
  std::string simd;
};

// Series of one job; they vanish with it.
struct JobMetrics {
  // rueda_operations_total{job,collective,result}: result is "ok" or "error". Of kinds that move
  // data; by kind.
  struct Outcomes {
    prometheus::Counter* ok = nullptr;
    prometheus::Counter* error = nullptr;
  };
  std::array<Outcomes, kCollectiveKindCount> operations;
  Outcomes& of(CollectiveKind kind) { return operations[static_cast<size_t>(kind)]; }
  // rueda_tensors_total{job}: tensors delivered (a batch has several)
  prometheus::Counter& tensors;
  // rueda_reduced_bytes_total{job}: payload of delivered tensors, once a node
  prometheus::Counter& reduced_bytes;
  prometheus::Counter& copied_in_bytes;   // rueda_copied_in_bytes_total{job}
  prometheus::Counter& copied_out_bytes;  // rueda_copied_out_bytes_total{job}
  // rueda_queue_depth{job}: submissions accepted and not yet ended
  prometheus::Gauge& queue_depth;
  // rueda_locked{job}: 1 while a plan of all ranks is in force and nothing is said about order
  prometheus::Gauge& locked;
  // rueda_plans_abandoned_total{job}: declared ahead, and wrong
  prometheus::Counter& plans_abandoned;
  // rueda_autotuning{job}: 1 on the coordinator's node while a setting is searched for
  prometheus::Gauge& autotuning;
  // rueda_autotune_windows_total{job}: measured, likewise
  prometheus::Counter& tuning_windows;
  // rueda_timeline_dropped_events_total{job}: that found no room on their way to the file
  prometheus::Counter& timeline_dropped_events;
  // rueda_nonfinite_contributions_total{job}: of this node's ranks, with NaN or infinity
  prometheus::Counter& nonfinite_contributions;
  // rueda_process_sets{job}: beside that of all ranks
  prometheus::Gauge& process_sets;
  // rueda_locked_process_sets{job}: of those
  prometheus::Gauge& locked_process_sets;
  // rueda_stalled_tensors{job}: submitted by some ranks and for too long not by others
  prometheus::Gauge& stalled_tensors;
  // rueda_negotiation_seconds{job}: last local rank's submission to launch
  prometheus::Histogram& negotiation_seconds;
  // rueda_ring_seconds{job}: launch to completion
  prometheus::Histogram& ring_seconds;
};

// The series of neighbours that nobody uses any more stay this long, and those of at most so many
// neighbours: a scrape is to see how a job ended.
inline constexpr std::chrono::seconds kGonePeersStay{300};
inline constexpr size_t kMaxGonePeers = 64;

// Series of one neighbour on the data plane.
struct PeerMetrics {
  prometheus::Counter& sent_bytes;      // rueda_network_sent_bytes_total{peer,transport}
  prometheus::Counter& received_bytes;  // rueda_network_received_bytes_total{peer,transport}
};

// Series of the daemon itself.
struct DaemonMetrics {
  prometheus::Gauge& clients;        // rueda_clients
  prometheus::Gauge& jobs;           // rueda_jobs
  prometheus::Gauge& arena_bytes;    // rueda_arena_bytes: client memory mapped
  prometheus::Gauge& staging_bytes;  // rueda_staging_bytes: slots and send buffers held
  // rueda_unstable_bytes: final values kept until every node of their job has them
  prometheus::Gauge& unstable_bytes;
  prometheus::Counter& rejected_clients;  // rueda_rejected_clients_total
  // rueda_abandoned_doors_total: threads that a client's descriptor kept waiting
  prometheus::Counter& abandoned_doors;
  prometheus::Counter& rejected_connections;  // rueda_rejected_connections_total: on the data port
  // rueda_rdma_channels_total: to and from neighbours; rueda_rdma_fallbacks_total: over TCP instead
  prometheus::Counter& rdma_channels;
  prometheus::Counter& rdma_fallbacks;
  prometheus::Counter& job_failures;  // rueda_job_failures_total
  // rueda_strangers_sent_away_total: control links that no job needed, for others or after a while
  prometheus::Counter& strangers_sent_away;
  // rueda_unwanted_messages_total: on control links, of jobs that their senders are not in
  prometheus::Counter& unwanted_received;
  // rueda_late_joins_total: to jobs that were over here, answered with the reason
  prometheus::Counter& late_joins;
  // rueda_loop_stall_seconds{loop}: for how long a loop has owed an answer; of the data loops, the
  // one that has owed it longest
  prometheus::Gauge& control_loop_stall;
  prometheus::Gauge& data_loop_stall;
  prometheus::Counter& log_lines_lost;  // rueda_log_lines_lost_total
  // rueda_unreachable_pairs: of nodes, in the bandwidths that are kept
  prometheus::Gauge& unreachable_pairs;
  // rueda_unmeasured_jobs_total: coordinated here, with a node that these bandwidths lack
  prometheus::Counter& unmeasured_jobs;
  prometheus::Gauge& gpu_workers;              // rueda_gpu_workers: processes that are there
  prometheus::Gauge& gpu_workers_without_mps;  // rueda_gpu_workers_without_mps
  prometheus::Counter& gpu_worker_losses;      // rueda_gpu_worker_losses_total: by whatever cause
  prometheus::Gauge& gpu_memories;             // rueda_gpu_memories: open in GPU workers
  prometheus::Counter& gpu_memories_added;     // rueda_gpu_memories_added_total
  prometheus::Counter& gpu_submissions;        // rueda_gpu_submissions_total: handed to workers
  prometheus::Counter& gpu_staged_bytes;  // rueda_gpu_staged_bytes_total: that left for other nodes
  // rueda_gpu_staged_clients, rueda_gpu_staged_submissions_total: in memory that workers cannot
  // open
  prometheus::Gauge& gpu_staged_clients;
  prometheus::Counter& gpu_staged_submissions;
  prometheus::Counter& gpu_added_bytes;  // rueda_gpu_added_bytes_total: that came, added by GPUs
  // rueda_gpu_nccl_bytes_total: that NCCL took to other nodes; rueda_gpu_nccl_communicators
  prometheus::Counter& gpu_across_bytes;
  prometheus::Gauge& gpu_communicators;
  prometheus::Counter& gpu_across_waits;  // rueda_gpu_nccl_waits_total: batches, for too long
  // rueda_control_messages_total{kind,direction}: kind is order (ready, decree), membership
  // (hello, join, start, leave, fail), heartbeat, timeline or nonfinite.
  prometheus::Counter& order_sent;
  prometheus::Counter& order_received;
  prometheus::Counter& membership_sent;
  prometheus::Counter& membership_received;
  prometheus::Counter& heartbeat_sent;
  prometheus::Counter& heartbeat_received;
  prometheus::Counter& timeline_sent;
  prometheus::Counter& timeline_received;
  prometheus::Counter& nonfinite_sent;
  prometheus::Counter& nonfinite_received;
};

class Metrics {
 public:
  explicit Metrics(const BuildInfo& build);  // also sets rueda_build_info to 1
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  DaemonMetrics& daemon();
  // Made on first use. The shared_ptr keeps the series alive; when the last one goes, they go.
  std::shared_ptr<JobMetrics> job(const std::string& job_id);
  // Made on first use. The series stay while somebody holds them, and kGonePeersStay longer; of
  // those that nobody holds kMaxGonePeers at most.
  std::shared_ptr<PeerMetrics> peer(const std::string& node_id, const std::string& transport);
  // Null: it has no series.
  std::shared_ptr<PeerMetrics> find_peer(const std::string& node_id,
                                         const std::string& transport) const;
  // The Prometheus text exposition format, version 0.0.4.
  std::string render() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the JobMetrics alive
};

}  // namespace rueda::observe
