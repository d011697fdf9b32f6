// Every metric that the daemon exports, by name. There is one registry per daemon, which main.cc
// has, and it is thread-safe throughout: no thread owns it, and any may count. Names follow
// Prometheus: base units, `_total` for counters, prefix rueda_. docs/metrics.md lists them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// The series of one job, which vanish with it.
struct JobMetrics {
  // rueda_operations_total{job,collective,result}: result is "ok" or "error". There is one for each
  // kind that moves data.
  struct Outcomes {
    prometheus::Counter* ok = nullptr;
    prometheus::Counter* error = nullptr;
  };
  std::array<Outcomes, kCollectiveKindCount> operations;
  Outcomes& of(CollectiveKind kind) { return operations[static_cast<size_t>(kind)]; }
  // rueda_tensors_total{job}: tensors that were delivered (a batch has several)
  prometheus::Counter& tensors;
  // rueda_reduced_bytes_total{job}: payload of delivered tensors, once a node
  prometheus::Counter& reduced_bytes;
  // rueda_transferred_bytes_total{job}: payload that this node's ranks received from other ranks
  prometheus::Counter& transferred_bytes;
  prometheus::Counter& copied_in_bytes;   // rueda_copied_in_bytes_total{job}
  prometheus::Counter& copied_out_bytes;  // rueda_copied_out_bytes_total{job}
  // rueda_queue_depth{job}: submissions accepted and not yet ended
  prometheus::Gauge& queue_depth;
  // rueda_locked{job}: 1 while a plan of all ranks is in force and nothing is said about order
  prometheus::Gauge& locked;
  // rueda_order_rounds_total{job}: rounds in which the order was agreed on, in modes with a cycle.
  prometheus::Counter& order_rounds;
  // rueda_plans_abandoned_total{job}: plans that were declared ahead or recorded, and were wrong
  prometheus::Counter& plans_abandoned;
  // rueda_autotuning{job}: 1 on the coordinator's node while a setting is searched for
  prometheus::Gauge& autotuning;
  // rueda_autotune_windows_total{job}: windows that were measured, on the coordinator's node
  prometheus::Counter& tuning_windows;
  // rueda_timeline_dropped_events_total{job}: events that found no room on their way to the file
  prometheus::Counter& timeline_dropped_events;
  // rueda_nonfinite_contributions_total{job}: contributions of this node's ranks with NaN or
  // infinity
  prometheus::Counter& nonfinite_contributions;
  // rueda_job_epoch{job}: the epoch that runs here, or ran last
  prometheus::Gauge& epoch;
  // rueda_job_generations_total{job,cause}: generations of an elastic job that have ended here: by
  // a rank or a node that was lost, in good order, or otherwise (a stall, or what other nodes say)
  struct GenerationEnds {
    prometheus::Counter* rank_lost = nullptr;
    prometheus::Counter* node_lost = nullptr;
    prometheus::Counter* left = nullptr;
    prometheus::Counter* other = nullptr;
  };
  GenerationEnds generations;
  // rueda_job_recovery_seconds{job}: time from the end of a generation here to the first epoch
  // after it
  prometheus::Histogram& recovery_seconds;
  // rueda_node_loss_seconds{job}: time from the last that was heard of a node of the job until it
  // was taken for lost
  prometheus::Histogram& node_loss_seconds;
  // rueda_awaited_ranks{job}: processes of this node that live, and that the next generation waits
  // for
  prometheus::Gauge& awaited_ranks;
  // rueda_process_sets{job}: process sets beside that of all ranks
  prometheus::Gauge& process_sets;
  // rueda_locked_process_sets{job}: those of them that have a plan in force
  prometheus::Gauge& locked_process_sets;
  // rueda_stalled_tensors{job}: tensors that some ranks have submitted, and others have not for too
  // long
  prometheus::Gauge& stalled_tensors;
  // rueda_negotiation_seconds{job}: time from the last local rank's submission to launch
  prometheus::Histogram& negotiation_seconds;
  // rueda_ring_seconds{job}: time from launch to completion
  prometheus::Histogram& ring_seconds;
};

// The series of neighbours that nobody uses any more stay for this long, and those of at most so
// many neighbours, because a scrape should see how a job ended.
inline constexpr std::chrono::seconds kGonePeersStay{300};
inline constexpr size_t kMaxGonePeers = 64;

// The series of one neighbour on the data plane.
struct PeerMetrics {
  prometheus::Counter& sent_bytes;      // rueda_network_sent_bytes_total{peer,transport}
  prometheus::Counter& received_bytes;  // rueda_network_received_bytes_total{peer,transport}
};

// The series of the daemon itself.
struct DaemonMetrics {
  prometheus::Gauge& clients;        // rueda_clients
  prometheus::Gauge& jobs;           // rueda_jobs
  prometheus::Gauge& arena_bytes;    // rueda_arena_bytes: client memory mapped
  prometheus::Gauge& staging_bytes;  // rueda_staging_bytes: slots and send buffers held
  // rueda_unstable_bytes: final values kept until every node of their job has them
  prometheus::Gauge& unstable_bytes;
  prometheus::Counter& rejected_clients;  // rueda_rejected_clients_total
  // rueda_abandoned_doors_total: threads that a client's descriptor kept waiting, and that were
  // given up
  prometheus::Counter& abandoned_doors;
  prometheus::Counter& forged_frames;         // rueda_forged_frames_total: that did not open
  prometheus::Counter& rejected_connections;  // rueda_rejected_connections_total: on the data port
  // rueda_refused_requests_total{at}: what was asked for by who may not, or cannot be, at the
  // control port, the unix socket and the HTTP port
  prometheus::Counter& refused_at_control;
  prometheus::Counter& refused_at_socket;
  prometheus::Counter& refused_at_http;
  // rueda_rdma_channels_total: channels to and from neighbours; rueda_rdma_fallbacks_total:
  // channels that are over TCP instead
  prometheus::Counter& rdma_channels;
  prometheus::Counter& rdma_fallbacks;
  // rueda_network_input_bytes_total{from}: inputs that began their way to other nodes round the
  // ring from the rank's own memory ("arena"), or from the daemon's, where ranks were added up or
  // values were copied ("buffer")
  prometheus::Counter& inputs_from_arenas;
  prometheus::Counter& inputs_from_buffers;
  prometheus::Counter& inputs_from_gpus;
  prometheus::Counter& job_failures;  // rueda_job_failures_total
  // rueda_strangers_sent_away_total: control links that no job needed, and that were closed for
  // others or after a while
  prometheus::Counter& strangers_sent_away;
  // rueda_unwanted_messages_total: messages on control links about jobs that their senders are not
  // in
  prometheus::Counter& unwanted_received;
  // rueda_late_joins_total: joins to jobs that were over here, which were answered with the reason
  prometheus::Counter& late_joins;
  // rueda_loop_stall_seconds{loop}: how long a loop has owed an answer; for the data loops, it is
  // the one that has owed it longest
  prometheus::Gauge& control_loop_stall;
  prometheus::Gauge& data_loop_stall;
  // rueda_slow_handlers_total{loop}: handlers that worked for more than 100 ms in one go
  prometheus::Counter& control_slow_handlers;
  prometheus::Counter& data_slow_handlers;
  prometheus::Counter& log_lines_lost;  // rueda_log_lines_lost_total
  // rueda_certificate_expiry_timestamp_seconds: when the daemon's certificate ends, in seconds
  // since 1970; +Inf without one
  prometheus::Gauge& certificate_expiry;
  // rueda_certificate_trouble: 1 while the files in --tls-dir are not sound, and older ones are
  // used
  prometheus::Gauge& certificate_trouble;
  // rueda_sandbox{part}: 1 if this part of the daemon's sandbox is in force
  prometheus::Gauge& sandbox_seccomp;
  prometheus::Gauge& sandbox_landlock;
  prometheus::Gauge& insecure;  // rueda_insecure: 1 with --insecure, and no certificates
  // rueda_unreachable_pairs: pairs of nodes that cannot reach each other, in the bandwidths that
  // are kept
  prometheus::Gauge& unreachable_pairs;
  // rueda_unmeasured_jobs_total: jobs that are coordinated here, with a node that these bandwidths
  // lack
  prometheus::Counter& unmeasured_jobs;
  prometheus::Gauge& gpu_workers;              // rueda_gpu_workers: processes that are there
  prometheus::Gauge& gpu_workers_without_mps;  // rueda_gpu_workers_without_mps
  prometheus::Counter& gpu_worker_losses;      // rueda_gpu_worker_losses_total: by whatever cause
  prometheus::Gauge& gpu_memories;             // rueda_gpu_memories: open in GPU workers
  prometheus::Counter& gpu_memories_added;     // rueda_gpu_memories_added_total
  prometheus::Counter& gpu_submissions;        // rueda_gpu_submissions_total: handed to workers
  prometheus::Counter& gpu_copied_bytes;       // rueda_gpu_copied_bytes_total: to host memory
  prometheus::Counter& gpu_staged_bytes;  // rueda_gpu_staged_bytes_total: that left for other nodes
  // rueda_gpu_staged_clients, rueda_gpu_staged_submissions_total: clients and submissions with
  // memory that workers cannot open
  prometheus::Gauge& gpu_staged_clients;
  prometheus::Counter& gpu_staged_submissions;
  prometheus::Counter& gpu_added_bytes;  // rueda_gpu_added_bytes_total: that came, added by GPUs
  // rueda_gpu_nccl_bytes_total: bytes that NCCL took to other nodes; rueda_gpu_nccl_communicators
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

// What one principal has of one resource.
struct PrincipalUse {
  std::string principal;
  const char* resource = "";
  uint64_t has = 0;      // rueda_principal_usage{principal,resource}
  uint64_t most = 0;     // rueda_principal_limit{principal,resource}; no series if it is 0
  uint64_t refused = 0;  // rueda_quota_refusals_total{principal,resource}
};

class Metrics {
 public:
  explicit Metrics(const BuildInfo& build);  // It also sets rueda_build_info to 1.
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  DaemonMetrics& daemon();
  // Returns the job's series, which are made on first use. The shared_ptr keeps the series alive;
  // when the last one goes, they go.
  std::shared_ptr<JobMetrics> job(const std::string& job_id);
  // Returns the neighbour's series, which are made on first use. They stay while somebody holds
  // them, and kGonePeersStay longer; of those that nobody holds, at most kMaxGonePeers stay.
  std::shared_ptr<PeerMetrics> peer(const std::string& node_id, const std::string& transport);
  // Returns null if the neighbour has no series.
  std::shared_ptr<PeerMetrics> find_peer(const std::string& node_id,
                                         const std::string& transport) const;
  // Returns all series in the Prometheus text exposition format, version 0.0.4, with those of these
  // principals, which are not kept.
  std::string render(const std::vector<PrincipalUse>& uses = {}) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // It is shared with all JobMetrics that are alive.
};

}  // namespace rueda::observe
