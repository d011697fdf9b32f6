#include "daemon/observe/metrics.h"

#include <map>
#include <utility>
#include <vector>

#include <prometheus/family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "daemon/base/check.h"
#include "daemon/base/mutex.h"
#include "daemon/observe/process_metrics.h"

namespace rueda::observe {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

// The bounds go from one round trip on loopback to a stall that an operator would look into.
const Histogram::BucketBoundaries kSecondsBuckets = {
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,    0.1,    0.25,    0.5,    1,     2.5,    5,     10};

const Histogram::BucketBoundaries kRecoveryBuckets = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                      1,     2.5,  5,     10,   30,  60,   600};

Family<Counter>& counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Family<Gauge>& gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

Family<Histogram>& histograms(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

Counter& single_counter(prometheus::Registry& registry, const char* name, const char* help) {
  return counters(registry, name, help).Add({});
}

Gauge& single_gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return gauges(registry, name, help).Add({});
}

DaemonMetrics make_daemon_metrics(prometheus::Registry& registry) {
  Family<Counter>& control =
      counters(registry, "rueda_control_messages_total", "Control messages between daemons.");
  const auto message = [&control](const char* kind, const char* direction) -> Counter& {
    return control.Add({{"kind", kind}, {"direction", direction}});
  };
  Family<Counter>& input_bytes =
      counters(registry, "rueda_network_input_bytes_total",
               "Inputs that began their way round the ring, by whose memory they left.");
  Family<Gauge>& loop_stall = gauges(registry, "rueda_loop_stall_seconds",
                                     "How long a loop has owed an answer; 0: it turns.");
  Family<Counter>& slow_handlers =
      counters(registry, "rueda_slow_handlers_total",
               "Handlers that kept a loop from others for more than 100 ms of work.");
  Family<Counter>& refused =
      counters(registry, "rueda_refused_requests_total",
               "Requests of who may not make them, or for what cannot be, by port.");
  Family<Gauge>& sandbox =
      gauges(registry, "rueda_sandbox", "1 if this part of the daemon's sandbox is in force.");
  return DaemonMetrics{
      .clients = single_gauge(registry, "rueda_clients", "Training processes attached."),
      .jobs = single_gauge(registry, "rueda_jobs", "Jobs registered with this daemon."),
      .arena_bytes = single_gauge(registry, "rueda_arena_bytes", "Client memory mapped."),
      .staging_bytes =
          single_gauge(registry, "rueda_staging_bytes", "Slots and send buffers held."),
      .unstable_bytes = single_gauge(registry, "rueda_unstable_bytes",
                                     "Final values kept until every node of their job has them."),
      .rejected_clients = single_counter(registry, "rueda_rejected_clients_total",
                                         "Clients turned away at the unix socket."),
      .abandoned_doors =
          single_counter(registry, "rueda_abandoned_doors_total",
                         "Threads that were given up because a client's descriptor kept them "
                         "waiting."),
      .forged_frames = single_counter(
          registry, "rueda_forged_frames_total",
          "Frames between nodes that were changed, repeated or left out on their way."),
      .rejected_connections = single_counter(registry, "rueda_rejected_connections_total",
                                             "Connections turned away at the data port."),
      .refused_at_control = refused.Add({{"at", "control"}}),
      .refused_at_socket = refused.Add({{"at", "socket"}}),
      .refused_at_http = refused.Add({{"at", "http"}}),
      .rdma_channels = single_counter(registry, "rueda_rdma_channels_total",
                                      "Channels to and from neighbours that are over RDMA."),
      .rdma_fallbacks = single_counter(
          registry, "rueda_rdma_fallbacks_total",
          "Channels that are over TCP because RDMA could not be had on one of their ends."),
      .inputs_from_arenas = input_bytes.Add({{"from", "arena"}}),
      .inputs_from_buffers = input_bytes.Add({{"from", "buffer"}}),
      .inputs_from_gpus = input_bytes.Add({{"from", "gpu"}}),
      .job_failures =
          single_counter(registry, "rueda_job_failures_total", "Jobs that ended in failure."),
      .strangers_sent_away =
          single_counter(registry, "rueda_strangers_sent_away_total",
                         "Control links that no job needed, ended for others or after a while."),
      .unwanted_received = single_counter(
          registry, "rueda_unwanted_messages_total",
          "Messages on control links, of jobs that their senders are not in, dropped."),
      .late_joins = single_counter(registry, "rueda_late_joins_total",
                                   "Joins to jobs that were over, answered with the reason."),
      .control_loop_stall = loop_stall.Add({{"loop", "control"}}),
      .data_loop_stall = loop_stall.Add({{"loop", "data"}}),
      .control_slow_handlers = slow_handlers.Add({{"loop", "control"}}),
      .data_slow_handlers = slow_handlers.Add({{"loop", "data"}}),
      .log_lines_lost =
          single_counter(registry, "rueda_log_lines_lost_total",
                         "Lines of the log that found no room: who reads it does not keep up."),
      .certificate_expiry =
          single_gauge(registry, "rueda_certificate_expiry_timestamp_seconds",
                       "When the daemon's certificate ends, since 1970; +Inf without one."),
      .certificate_trouble =
          single_gauge(registry, "rueda_certificate_trouble",
                       "1 while files in --tls-dir are not sound, and older ones are used."),
      .sandbox_seccomp = sandbox.Add({{"part", "seccomp"}}),
      .sandbox_landlock = sandbox.Add({{"part", "landlock"}}),
      .insecure = single_gauge(registry, "rueda_insecure",
                               "1 if whoever reaches its ports is believed (--insecure)."),
      .unreachable_pairs = single_gauge(registry, "rueda_unreachable_pairs",
                                        "Pairs of nodes that nothing came through between when "
                                        "bandwidths were measured."),
      .unmeasured_jobs =
          single_counter(registry, "rueda_unmeasured_jobs_total",
                         "Jobs coordinated here with a node whose bandwidths are not known."),
      .gpu_workers = single_gauge(registry, "rueda_gpu_workers", "GPU worker processes."),
      .gpu_workers_without_mps =
          single_gauge(registry, "rueda_gpu_workers_without_mps",
                       "GPU workers whose kernels take turns with those of training."),
      .gpu_worker_losses =
          single_counter(registry, "rueda_gpu_worker_losses_total",
                         "GPU workers that ended, or were ended, while a job had them."),
      .gpu_memories = single_gauge(registry, "rueda_gpu_memories",
                                   "Pieces of clients' memory that GPU workers have open."),
      .gpu_memories_added = single_counter(
          registry, "rueda_gpu_memories_added_total",
          "Pieces of memory that clients shared with GPU workers: what their caches missed."),
      .gpu_submissions =
          single_counter(registry, "rueda_gpu_submissions_total",
                         "Submissions of ranks that GPU workers were given to carry out."),
      .gpu_copied_bytes =
          single_counter(registry, "rueda_gpu_copied_bytes_total",
                         "Bytes that GPUs copied to host memory, to go to other nodes from there."),
      .gpu_staged_bytes = single_counter(
          registry, "rueda_gpu_staged_bytes_total",
          "Bytes of batches in device memory that went between nodes through host memory."),
      .gpu_staged_clients =
          single_gauge(registry, "rueda_gpu_staged_clients",
                       "Clients with device memory that GPU workers cannot open."),
      .gpu_staged_submissions = single_counter(
          registry, "rueda_gpu_staged_submissions_total",
          "Submissions of device memory that clients copied to host memory for GPU workers."),
      .gpu_added_bytes = single_counter(
          registry, "rueda_gpu_added_bytes_total",
          "Bytes of batches in device memory that came from other nodes, and GPUs added up."),
      .gpu_across_bytes =
          single_counter(registry, "rueda_gpu_nccl_bytes_total",
                         "Bytes of batches in device memory that NCCL carried between nodes."),
      .gpu_communicators = single_gauge(registry, "rueda_gpu_nccl_communicators",
                                        "NCCL communicators that GPU workers have."),
      .gpu_across_waits = single_counter(
          registry, "rueda_gpu_nccl_waits_total",
          "Batches that NCCL had for longer than the ranks of a job may wait for each other."),
      .order_sent = message("order", "sent"),
      .order_received = message("order", "received"),
      .membership_sent = message("membership", "sent"),
      .membership_received = message("membership", "received"),
      .heartbeat_sent = message("heartbeat", "sent"),
      .heartbeat_received = message("heartbeat", "received"),
      .timeline_sent = message("timeline", "sent"),
      .timeline_received = message("timeline", "received"),
      .nonfinite_sent = message("nonfinite", "sent"),
      .nonfinite_received = message("nonfinite", "received"),
  };
}

std::vector<prometheus::MetricFamily> families_of(const std::vector<PrincipalUse>& uses) {
  using prometheus::MetricType;
  prometheus::MetricFamily usage{"rueda_principal_usage",
                                 "What a user, or a named socket, has of the daemon.",
                                 MetricType::Gauge,
                                 {}};
  prometheus::MetricFamily limit{
      "rueda_principal_limit", "The most that it may have.", MetricType::Gauge, {}};
  prometheus::MetricFamily refusals{
      "rueda_quota_refusals_total", "How often it has been refused more.", MetricType::Counter, {}};
  const auto series_of = [](prometheus::MetricFamily & family, const PrincipalUse& use) -> auto& {
    prometheus::ClientMetric& series = family.metric.emplace_back();
    series.label = {{"principal", use.principal}, {"resource", use.resource}};
    return series;
  };
  for (const PrincipalUse& use : uses) {
    series_of(usage, use).gauge.value = static_cast<double>(use.has);
    if (use.most > 0) series_of(limit, use).gauge.value = static_cast<double>(use.most);
    series_of(refusals, use).counter.value = static_cast<double>(use.refused);
  }
  return {std::move(usage), std::move(limit), std::move(refusals)};
}

// The families whose series come and go with the jobs.
struct JobFamilies {
  explicit JobFamilies(prometheus::Registry& registry)
      : operations(counters(registry, "rueda_operations_total",
                            "Collective operations ended, by collective and result.")),
        tensors(counters(registry, "rueda_tensors_total", "Tensors delivered.")),
        reduced_bytes(counters(registry, "rueda_reduced_bytes_total",
                               "Payload of delivered tensors, counted once a node.")),
        transferred_bytes(counters(registry, "rueda_transferred_bytes_total",
                                   "Payload that ranks of this node received from other ranks.")),
        copied_in_bytes(counters(registry, "rueda_copied_in_bytes_total",
                                 "Bytes copied from foreign client memory into an arena.")),
        copied_out_bytes(counters(registry, "rueda_copied_out_bytes_total",
                                  "Bytes copied from an arena back to foreign client memory.")),
        queue_depth(gauges(registry, "rueda_queue_depth", "Submissions accepted, not yet ended.")),
        locked(gauges(registry, "rueda_locked",
                      "1 while a plan of all ranks is in force and nothing is said about order.")),
        timeline_dropped_events(
            counters(registry, "rueda_timeline_dropped_events_total",
                     "Events of a timeline that found no room on their way to the file")),
        nonfinite_contributions(
            counters(registry, "rueda_nonfinite_contributions_total",
                     "Tensors that ranks of this node have submitted with NaN or infinity.")),
        order_rounds(counters(registry, "rueda_order_rounds_total",
                              "Rounds in which the order was agreed on, in modes with a cycle.")),
        plans_abandoned(counters(registry, "rueda_plans_abandoned_total",
                                 "Plans declared or recorded that ranks did not keep to.")),
        autotuning(gauges(registry, "rueda_autotuning",
                          "1 on the coordinator's node while a setting is searched for.")),
        tuning_windows(counters(registry, "rueda_autotune_windows_total",
                                "Stretches of steps that autotuning has measured.")),
        epoch(gauges(registry, "rueda_job_epoch", "The epoch that runs here, or ran last.")),
        generations(counters(registry, "rueda_job_generations_total",
                             "Generations of an elastic job that have ended here, by cause.")),
        recovery_seconds(histograms(registry, "rueda_job_recovery_seconds",
                                    "From the end of a generation to the begin of the next.")),
        node_loss_seconds(
            histograms(registry, "rueda_node_loss_seconds",
                       "From the last that was heard of a node until it was taken for lost.")),
        awaited_ranks(gauges(registry, "rueda_awaited_ranks",
                             "Processes of this node that the next generation waits for.")),
        process_sets(gauges(registry, "rueda_process_sets",
                            "Process sets of the job, beside that of all ranks.")),
        locked_process_sets(gauges(registry, "rueda_locked_process_sets",
                                   "Of rueda_process_sets, those with a plan in force.")),
        stalled_tensors(gauges(registry, "rueda_stalled_tensors",
                               "Tensors that some ranks wait for and others do not submit.")),
        negotiation_seconds(histograms(registry, "rueda_negotiation_seconds",
                                       "From the last local rank's submission to the launch.")),
        ring_seconds(histograms(registry, "rueda_ring_seconds", "From launch to completion.")) {}

  JobMetrics add(const std::string& job_id) {
    const Labels job = {{"job", job_id}};
    return JobMetrics{
        .operations = add_operations(job_id),
        .tensors = tensors.Add(job),
        .reduced_bytes = reduced_bytes.Add(job),
        .transferred_bytes = transferred_bytes.Add(job),
        .copied_in_bytes = copied_in_bytes.Add(job),
        .copied_out_bytes = copied_out_bytes.Add(job),
        .queue_depth = queue_depth.Add(job),
        .locked = locked.Add(job),
        .order_rounds = order_rounds.Add(job),
        .plans_abandoned = plans_abandoned.Add(job),
        .autotuning = autotuning.Add(job),
        .tuning_windows = tuning_windows.Add(job),
        .timeline_dropped_events = timeline_dropped_events.Add(job),
        .nonfinite_contributions = nonfinite_contributions.Add(job),
        .epoch = epoch.Add(job),
        .generations = add_generations(job_id),
        .recovery_seconds = recovery_seconds.Add(job, kRecoveryBuckets),
        .node_loss_seconds = node_loss_seconds.Add(job, kRecoveryBuckets),
        .awaited_ranks = awaited_ranks.Add(job),
        .process_sets = process_sets.Add(job),
        .locked_process_sets = locked_process_sets.Add(job),
        .stalled_tensors = stalled_tensors.Add(job),
        .negotiation_seconds = negotiation_seconds.Add(job, kSecondsBuckets),
        .ring_seconds = ring_seconds.Add(job, kSecondsBuckets),
    };
  }

  std::array<JobMetrics::Outcomes, kCollectiveKindCount> add_operations(const std::string& job_id) {
    std::array<JobMetrics::Outcomes, kCollectiveKindCount> all;
    for (int i = 0; i < kCollectiveKindCount; ++i) {
      const auto kind = static_cast<CollectiveKind>(i);
      if (!moves_data(kind)) continue;
      const auto add = [&](const char* result) {
        return &operations.Add(
            {{"job", job_id}, {"collective", to_string(kind)}, {"result", result}});
      };
      all[static_cast<size_t>(i)] = {add("ok"), add("error")};
    }
    return all;
  }

  JobMetrics::GenerationEnds add_generations(const std::string& job_id) {
    const auto add = [&](const char* cause) {
      return &generations.Add({{"job", job_id}, {"cause", cause}});
    };
    return {add("rank_lost"), add("node_lost"), add("left"), add("other")};
  }

  void remove(JobMetrics& job) {
    epoch.Remove(&job.epoch);
    for (Counter* const ends : {job.generations.rank_lost, job.generations.node_lost,
                                job.generations.left, job.generations.other}) {
      generations.Remove(ends);
    }
    recovery_seconds.Remove(&job.recovery_seconds);
    node_loss_seconds.Remove(&job.node_loss_seconds);
    awaited_ranks.Remove(&job.awaited_ranks);
    for (const JobMetrics::Outcomes& outcomes : job.operations) {
      if (outcomes.ok) operations.Remove(outcomes.ok);
      if (outcomes.error) operations.Remove(outcomes.error);
    }
    tensors.Remove(&job.tensors);
    reduced_bytes.Remove(&job.reduced_bytes);
    transferred_bytes.Remove(&job.transferred_bytes);
    copied_in_bytes.Remove(&job.copied_in_bytes);
    copied_out_bytes.Remove(&job.copied_out_bytes);
    queue_depth.Remove(&job.queue_depth);
    locked.Remove(&job.locked);
    order_rounds.Remove(&job.order_rounds);
    plans_abandoned.Remove(&job.plans_abandoned);
    autotuning.Remove(&job.autotuning);
    tuning_windows.Remove(&job.tuning_windows);
    timeline_dropped_events.Remove(&job.timeline_dropped_events);
    nonfinite_contributions.Remove(&job.nonfinite_contributions);
    process_sets.Remove(&job.process_sets);
    locked_process_sets.Remove(&job.locked_process_sets);
    stalled_tensors.Remove(&job.stalled_tensors);
    negotiation_seconds.Remove(&job.negotiation_seconds);
    ring_seconds.Remove(&job.ring_seconds);
  }

  Family<Counter>& operations;
  Family<Counter>& tensors;
  Family<Counter>& reduced_bytes;
  Family<Counter>& transferred_bytes;
  Family<Counter>& copied_in_bytes;
  Family<Counter>& copied_out_bytes;
  Family<Gauge>& queue_depth;
  Family<Gauge>& locked;
  Family<Counter>& timeline_dropped_events;
  Family<Counter>& nonfinite_contributions;
  Family<Counter>& order_rounds;
  Family<Counter>& plans_abandoned;
  Family<Gauge>& autotuning;
  Family<Counter>& tuning_windows;
  Family<Gauge>& epoch;
  Family<Counter>& generations;
  Family<Histogram>& recovery_seconds;
  Family<Histogram>& node_loss_seconds;
  Family<Gauge>& awaited_ranks;
  Family<Gauge>& process_sets;
  Family<Gauge>& locked_process_sets;
  Family<Gauge>& stalled_tensors;
  Family<Histogram>& negotiation_seconds;
  Family<Histogram>& ring_seconds;
};

}  // namespace

// The object is shared with the deleters of JobMetrics, so that these may outlive Metrics.
struct Metrics::Impl {
  struct JobEntry {
    std::weak_ptr<JobMetrics> current;
    // The number of JobMetrics that are alive on the same series: a job that comes back while the
    // last user of the old object lets go of it must not lose its series.
    int users = 0;
  };

  Impl()
      : daemon(make_daemon_metrics(registry)),
        families(registry),
        sent_bytes(counters(registry, "rueda_network_sent_bytes_total",
                            "Bytes sent to a neighbour on the data plane.")),
        received_bytes(counters(registry, "rueda_network_received_bytes_total",
                                "Bytes received from a neighbour on the data plane.")) {}

  void release(const std::string& job_id, JobMetrics* metrics) {
    const MutexLock lock(mutex);
    const auto entry = jobs.find(job_id);
    RUEDA_CHECK(entry != jobs.end());
    if (--entry->second.users == 0) {
      families.remove(*metrics);
      jobs.erase(entry);
    }
    delete metrics;
  }

  prometheus::Registry registry;
  DaemonMetrics daemon;
  JobFamilies families;
  Family<Counter>& sent_bytes;
  Family<Counter>& received_bytes;

  Mutex mutex;
  std::map<std::string, JobEntry> jobs RUEDA_GUARDED_BY(mutex);
  // The names of the node and the transport.
  using PeerName = std::pair<std::string, std::string>;
  struct PeerEntry {
    std::shared_ptr<PeerMetrics> series;
    // When it was first seen that nobody holds the series.
    std::optional<std::chrono::steady_clock::time_point> gone_since;
  };
  std::map<PeerName, PeerEntry> peers RUEDA_GUARDED_BY(mutex);

  // Lets go of the series of peers that have been gone for long, or are too many.
  void forget_gone_peers() RUEDA_REQUIRES(mutex) {
    const auto now = std::chrono::steady_clock::now();
    std::multimap<std::chrono::steady_clock::time_point, PeerName> gone;
    for (auto& [name, entry] : peers) {
      if (entry.series.use_count() > 1) {
        entry.gone_since.reset();
      } else {
        if (!entry.gone_since) entry.gone_since = now;
        gone.emplace(*entry.gone_since, name);
      }
    }
    for (auto it = gone.begin(); it != gone.end(); it = gone.erase(it)) {
      if (gone.size() <= kMaxGonePeers && now - it->first < kGonePeersStay) break;
      PeerMetrics& series = *peers.at(it->second).series;
      sent_bytes.Remove(&series.sent_bytes);
      received_bytes.Remove(&series.received_bytes);
      peers.erase(it->second);
    }
  }
};

Metrics::Metrics(const BuildInfo& build) : impl_(std::make_shared<Impl>()) {
  gauges(impl_->registry, "rueda_build_info", "Always 1; the labels say what runs.")
      .Add({{"version", build.version}, {"node", build.node_id}, {"simd", build.simd}})
      .Set(1);
}

Metrics::~Metrics() = default;

DaemonMetrics& Metrics::daemon() { return impl_->daemon; }

std::shared_ptr<JobMetrics> Metrics::job(const std::string& job_id) {
  const MutexLock lock(impl_->mutex);
  Impl::JobEntry& entry = impl_->jobs[job_id];
  if (auto current = entry.current.lock()) return current;
  ++entry.users;
  std::shared_ptr<JobMetrics> made(
      new JobMetrics(impl_->families.add(job_id)),
      [impl = impl_, job_id](JobMetrics* metrics) { impl->release(job_id, metrics); });
  entry.current = made;
  return made;
}

std::shared_ptr<PeerMetrics> Metrics::peer(const std::string& node_id,
                                           const std::string& transport) {
  const MutexLock lock(impl_->mutex);
  Impl::PeerEntry& entry = impl_->peers[{node_id, transport}];
  if (!entry.series) {
    const Labels labels = {{"peer", node_id}, {"transport", transport}};
    entry.series = std::make_shared<PeerMetrics>(
        PeerMetrics{impl_->sent_bytes.Add(labels), impl_->received_bytes.Add(labels)});
  }
  std::shared_ptr<PeerMetrics> series = entry.series;  // From here on somebody uses the series.
  impl_->forget_gone_peers();
  return series;
}

std::shared_ptr<PeerMetrics> Metrics::find_peer(const std::string& node_id,
                                                const std::string& transport) const {
  const MutexLock lock(impl_->mutex);
  const auto it = impl_->peers.find({node_id, transport});
  return it == impl_->peers.end() ? nullptr : it->second.series;
}

std::string Metrics::render(const std::vector<PrincipalUse>& uses) const {
  {
    const MutexLock lock(impl_->mutex);
    impl_->forget_gone_peers();
  }
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  for (auto& family : collect_process_metrics()) families.push_back(std::move(family));
  if (!uses.empty()) {
    for (auto& family : families_of(uses)) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace rueda::observe
