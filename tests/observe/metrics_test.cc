#include "daemon/observe/metrics.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/support/paths.h"

namespace rueda::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const BuildInfo kBuild = {.version = "1.2.3", .node_id = "node-a", .simd = "AVX2"};

TEST(Metrics, BuildInfoIsOneWithLabels) {
  Metrics metrics(kBuild);
  EXPECT_THAT(metrics.render(),
              HasSubstr("rueda_build_info{node=\"node-a\",simd=\"AVX2\",version=\"1.2.3\"} 1\n"));
}

TEST(Metrics, DaemonSeriesAreThereFromTheStart) {
  Metrics metrics(kBuild);
  const std::string text = metrics.render();
  for (const char* line :
       {"rueda_clients 0\n", "rueda_jobs 0\n", "rueda_arena_bytes 0\n", "rueda_staging_bytes 0\n",
        "rueda_unstable_bytes 0\n", "rueda_rejected_clients_total 0\n",
        "rueda_rejected_connections_total 0\n", "rueda_job_failures_total 0\n",
        "rueda_late_joins_total 0\n", "rueda_unreachable_pairs 0\n",
        "rueda_unmeasured_jobs_total 0\n", "rueda_gpu_workers 0\n",
        "rueda_gpu_worker_losses_total 0\n",
        "rueda_control_messages_total{direction=\"sent\",kind=\"order\"} 0\n",
        "rueda_control_messages_total{direction=\"received\",kind=\"timeline\"} 0\n",
        "rueda_control_messages_total{direction=\"sent\",kind=\"nonfinite\"} 0\n",
        "rueda_control_messages_total{direction=\"received\",kind=\"heartbeat\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, EachDaemonFieldHasItsOwnSeries) {
  Metrics metrics(kBuild);
  DaemonMetrics& daemon = metrics.daemon();
  daemon.clients.Set(1);
  daemon.jobs.Set(2);
  daemon.arena_bytes.Set(3);
  daemon.staging_bytes.Set(4);
  daemon.rejected_clients.Increment(5);
  daemon.rejected_connections.Increment(6);
  daemon.job_failures.Increment(7);
  daemon.order_sent.Increment(8);
  daemon.order_received.Increment(9);
  daemon.membership_sent.Increment(10);
  daemon.membership_received.Increment(11);
  daemon.heartbeat_sent.Increment(12);
  daemon.heartbeat_received.Increment(13);
  daemon.unstable_bytes.Set(14);
  daemon.late_joins.Increment(15);
  daemon.unreachable_pairs.Set(16);
  daemon.unmeasured_jobs.Increment(17);
  daemon.gpu_workers.Set(18);
  daemon.gpu_worker_losses.Increment(19);
  daemon.gpu_workers_without_mps.Set(20);
  daemon.gpu_copied_bytes.Increment(29);
  daemon.gpu_staged_bytes.Increment(21);
  daemon.gpu_staged_clients.Set(22);
  daemon.gpu_staged_submissions.Increment(23);
  daemon.rdma_channels.Increment(24);
  daemon.rdma_fallbacks.Increment(25);
  daemon.inputs_from_arenas.Increment(26);
  daemon.inputs_from_buffers.Increment(27);
  daemon.inputs_from_gpus.Increment(28);
  const std::string text = metrics.render();
  for (const char* line : {"rueda_clients 1\n",
                           "rueda_jobs 2\n",
                           "rueda_arena_bytes 3\n",
                           "rueda_staging_bytes 4\n",
                           "rueda_rejected_clients_total 5\n",
                           "rueda_rejected_connections_total 6\n",
                           "rueda_job_failures_total 7\n",
                           "{direction=\"sent\",kind=\"order\"} 8\n",
                           "{direction=\"received\",kind=\"order\"} 9\n",
                           "{direction=\"sent\",kind=\"membership\"} 10\n",
                           "{direction=\"received\",kind=\"membership\"} 11\n",
                           "{direction=\"sent\",kind=\"heartbeat\"} 12\n",
                           "{direction=\"received\",kind=\"heartbeat\"} 13\n",
                           "rueda_unstable_bytes 14\n",
                           "rueda_late_joins_total 15\n",
                           "rueda_unreachable_pairs 16\n",
                           "rueda_unmeasured_jobs_total 17\n",
                           "rueda_gpu_workers 18\n",
                           "rueda_gpu_workers_without_mps 20\n",
                           "rueda_gpu_copied_bytes_total 29\n",
                           "rueda_gpu_staged_bytes_total 21\n",
                           "rueda_gpu_worker_losses_total 19\n",
                           "rueda_gpu_staged_clients 22\n",
                           "rueda_gpu_staged_submissions_total 23\n",
                           "rueda_rdma_channels_total 24\n",
                           "rueda_rdma_fallbacks_total 25\n",
                           "rueda_network_input_bytes_total{from=\"arena\"} 26\n",
                           "rueda_network_input_bytes_total{from=\"buffer\"} 27\n",
                           "rueda_network_input_bytes_total{from=\"gpu\"} 28\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, EachJobFieldHasItsOwnSeries) {
  Metrics metrics(kBuild);
  const auto job = metrics.job("j");
  job->of(CollectiveKind::kAllreduce).ok->Increment(1);
  job->of(CollectiveKind::kAllreduce).error->Increment(2);
  job->of(CollectiveKind::kBroadcast).ok->Increment(3);
  job->of(CollectiveKind::kBroadcast).error->Increment(4);
  job->of(CollectiveKind::kBarrier).ok->Increment(5);
  job->of(CollectiveKind::kBarrier).error->Increment(6);
  job->tensors.Increment(7);
  job->reduced_bytes.Increment(8);
  job->copied_in_bytes.Increment(9);
  job->copied_out_bytes.Increment(10);
  job->queue_depth.Set(11);
  job->stalled_tensors.Set(12);
  job->negotiation_seconds.Observe(0.002);
  job->ring_seconds.Observe(20);
  const std::string text = metrics.render();
  for (const char* line :
       {"rueda_operations_total{collective=\"allreduce\",job=\"j\",result=\"ok\"} 1\n",
        "rueda_operations_total{collective=\"allreduce\",job=\"j\",result=\"error\"} 2\n",
        "rueda_operations_total{collective=\"broadcast\",job=\"j\",result=\"ok\"} 3\n",
        "rueda_operations_total{collective=\"broadcast\",job=\"j\",result=\"error\"} 4\n",
        "rueda_operations_total{collective=\"barrier\",job=\"j\",result=\"ok\"} 5\n",
        "rueda_operations_total{collective=\"barrier\",job=\"j\",result=\"error\"} 6\n",
        "rueda_tensors_total{job=\"j\"} 7\n", "rueda_reduced_bytes_total{job=\"j\"} 8\n",
        "rueda_copied_in_bytes_total{job=\"j\"} 9\n",
        "rueda_copied_out_bytes_total{job=\"j\"} 10\n", "rueda_queue_depth{job=\"j\"} 11\n",
        "rueda_stalled_tensors{job=\"j\"} 12\n", "rueda_negotiation_seconds_count{job=\"j\"} 1\n",
        "rueda_negotiation_seconds_bucket{job=\"j\",le=\"0.001\"} 0\n",
        "rueda_negotiation_seconds_bucket{job=\"j\",le=\"0.0025\"} 1\n",
        "rueda_ring_seconds_bucket{job=\"j\",le=\"10\"} 0\n",
        "rueda_ring_seconds_bucket{job=\"j\",le=\"+Inf\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, SeriesOfAJobVanishWithItsLastUser) {
  Metrics metrics(kBuild);
  auto first = metrics.job("gone");
  auto second = metrics.job("gone");
  EXPECT_EQ(first, second);
  const auto kept = metrics.job("kept");
  kept->tensors.Increment(3);
  first.reset();
  EXPECT_THAT(metrics.render(), HasSubstr("job=\"gone\""));
  second.reset();
  EXPECT_THAT(metrics.render(), Not(HasSubstr("job=\"gone\"")));
  EXPECT_THAT(metrics.render(), HasSubstr("rueda_tensors_total{job=\"kept\"} 3\n"));
}

TEST(Metrics, AJobThatComesBackStartsAtZero) {
  Metrics metrics(kBuild);
  metrics.job("j")->tensors.Increment(3);
  const auto again = metrics.job("j");
  EXPECT_EQ(again->tensors.Value(), 0);
}

TEST(Metrics, AJobMayOutliveTheRegistry) {
  auto metrics = std::make_unique<Metrics>(kBuild);
  auto job = metrics->job("j");
  metrics.reset();
  job->tensors.Increment();
  EXPECT_EQ(job->tensors.Value(), 1);
  job.reset();
}

TEST(Metrics, APeerIsOneSeriesPerTransport) {
  Metrics metrics(kBuild);
  const auto tcp = metrics.peer("node-b", "tcp");
  tcp->sent_bytes.Increment(10);
  tcp->received_bytes.Increment(20);
  EXPECT_EQ(tcp, metrics.peer("node-b", "tcp"));
  EXPECT_NE(tcp, metrics.peer("node-b", "mem"));
  const std::string text = metrics.render();
  EXPECT_THAT(text,
              HasSubstr("rueda_network_sent_bytes_total{peer=\"node-b\",transport=\"tcp\"} 10\n"));
  EXPECT_THAT(
      text,
      HasSubstr("rueda_network_received_bytes_total{peer=\"node-b\",transport=\"tcp\"} 20\n"));
}

TEST(Metrics, TheSeriesOfPeersThatHaveGoneAreFew) {
  Metrics metrics(kBuild);
  const auto stays = metrics.peer("stays", "tcp");
  for (size_t i = 0; i < 3 * kMaxGonePeers; ++i) {
    metrics.peer("gone" + std::to_string(i), "tcp")->sent_bytes.Increment(1);
  }
  const std::string text = metrics.render();
  size_t series = 0;
  for (size_t at = 0; (at = text.find("rueda_network_sent_bytes_total{", at)) != std::string::npos;
       ++at) {
    ++series;
  }
  EXPECT_EQ(series, kMaxGonePeers + 1);
  EXPECT_THAT(text, HasSubstr("peer=\"stays\""));
  EXPECT_EQ(metrics.find_peer("gone0", "tcp"), nullptr);
  EXPECT_NE(metrics.find_peer("gone" + std::to_string(3 * kMaxGonePeers - 1), "tcp"), nullptr);
  EXPECT_EQ(metrics.find_peer("nobody", "tcp"), nullptr);
  EXPECT_THAT(metrics.render(), Not(HasSubstr("nobody"))) << "looking makes none";
}

TEST(Metrics, LabelValuesAreEscaped) {
  Metrics metrics(kBuild);
  metrics.peer("a\"b\\c\nd", "tcp");
  EXPECT_THAT(metrics.render(), HasSubstr("peer=\"a\\\"b\\\\c\\nd\""));
}

double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return std::nan("");
  return strtod(text.c_str() + at + name.size() + 2, nullptr);
}

TEST(Metrics, ProcessMetricsAreTrue) {
  Metrics metrics(kBuild);
  const std::string before = metrics.render();
  EXPECT_GT(value_of(before, "process_cpu_seconds_total"), 0);
  EXPECT_GT(value_of(before, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(value_of(before, "process_max_fds"), 2);
  const double age =
      static_cast<double>(time(nullptr)) - value_of(before, "process_start_time_seconds");
  EXPECT_GT(age, -5);
  EXPECT_LT(age, 3600);

  std::ifstream one_more("/proc/self/maps");
  ASSERT_TRUE(one_more.is_open());
  EXPECT_EQ(value_of(metrics.render(), "process_open_fds"),
            value_of(before, "process_open_fds") + 1);
}

TEST(Metrics, ManyThreadsUseOneRegistry) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  Metrics metrics(kBuild);
  const auto shared_job = metrics.job("shared");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int round = 0; round < kRounds; ++round) {
        metrics.job("shared")->tensors.Increment();
        metrics.job("brief")->queue_depth.Set(round);
        metrics.peer("node-b", t % 2 == 0 ? "tcp" : "mem")->sent_bytes.Increment(1);
        metrics.daemon().clients.Increment();
        if (round % 50 == 0) metrics.render();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared_job->tensors.Value(), kThreads * kRounds);
  EXPECT_EQ(metrics.daemon().clients.Value(), kThreads * kRounds);
  EXPECT_EQ(metrics.peer("node-b", "tcp")->sent_bytes.Value(), kThreads / 2 * kRounds);
  EXPECT_THAT(metrics.render(), Not(HasSubstr("job=\"brief\"")));
}

TEST(Metrics, PrincipalsAreShownWhileTheyAreToldOf) {
  Metrics metrics(kBuild);
  const std::string text =
      metrics.render({{"team-a", "jobs", 1, 2, 3}, {"others", "arena-bytes", 4096, 0, 0}});
  for (const char* series :
       {"rueda_principal_usage{principal=\"team-a\",resource=\"jobs\"} 1\n",
        "rueda_principal_limit{principal=\"team-a\",resource=\"jobs\"} 2\n",
        "rueda_quota_refusals_total{principal=\"team-a\",resource=\"jobs\"} 3\n",
        "rueda_principal_usage{principal=\"others\",resource=\"arena-bytes\"} 4096\n"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
  EXPECT_THAT(text, Not(HasSubstr("rueda_principal_limit{principal=\"others\"")));
  EXPECT_THAT(metrics.render(), Not(HasSubstr("rueda_principal_usage")));
}

TEST(Metrics, PromtoolFindsNothingWrong) {
  if (system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
  }
  Metrics metrics(kBuild);
  const auto job = metrics.job("j");
  job->negotiation_seconds.Observe(0.002);
  metrics.peer("node-b", "tcp")->sent_bytes.Increment(1e12);
  FILE* promtool = popen("promtool check metrics 2>&1", "w");
  ASSERT_NE(promtool, nullptr);
  const std::string text = metrics.render({{"team-a", "jobs", 1, 2, 3}});
  EXPECT_EQ(fwrite(text.data(), 1, text.size(), promtool), text.size());
  const int status = pclose(promtool);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "promtool objects, see above";
}

// docs/metrics.md promises to list every metric.
TEST(Metrics, EveryMetricIsDocumented) {
  std::ifstream file(testing_support::source_path("docs/metrics.md"));
  ASSERT_TRUE(file.is_open()) << "docs/metrics.md";
  std::stringstream document;
  document << file.rdbuf();
  Metrics metrics(kBuild);
  const auto job = metrics.job("j");
  metrics.peer("node-b", "tcp");
  std::istringstream text(metrics.render({{"team-a", "jobs", 1, 2, 3}}));
  int families = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, type, name;
    words >> hash >> type >> name;
    if (hash != "#" || type != "TYPE") continue;
    ++families;
    EXPECT_THAT(document.str(), HasSubstr("`" + name + "`"));
  }
  EXPECT_GT(families, 20);
}

}  // namespace
}  // namespace rueda::observe
