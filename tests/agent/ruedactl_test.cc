#include <algorithm>
#include <ctime>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon/ctl/doctor.h"
#include "daemon/ctl/format.h"
#include "fake_daemon.h"
#include "program.h"

namespace rueda::test {
namespace {

using testing::HasSubstr;

v1::ListJobsReply two_jobs() {
  v1::ListJobsReply reply;
  v1::ListJobsReply::Job& one = *reply.add_jobs();
  one.set_job_id("job-a");
  one.set_state("forming");
  one.set_world_size(4);
  one.set_bytes_reduced(uint64_t{1} << 60);
  one.add_missing_ranks(2);
  one.add_missing_ranks(3);
  v1::ListJobsReply::Job& other = *reply.add_jobs();
  other.set_job_id("job-with-a-long-name");
  other.set_state("failed");
  other.set_error("rank 1 has gone");
  v1::ListJobsReply::Generation& generation = *other.add_generations();
  generation.set_epoch(2);
  generation.set_began_ms(int64_t{1'795'838'416} * 1000);
  generation.set_ranks(3);
  generation.set_nodes(2);
  generation.set_reason("node b is lost");
  return reply;
}

v1::ListStallsReply one_stall() {
  v1::ListStallsReply reply;
  v1::ListStallsReply::Stall& stall = *reply.add_stalls();
  stall.set_job_id("job-a");
  stall.set_process_set(2);
  stall.set_tensor("grad");
  stall.set_waiting_seconds(75.5);
  for (int rank : {0, 1}) stall.add_submitted_ranks(rank);
  stall.set_more_submitted(5);
  v1::ListStallsReply::MissingRank& missing = *stall.add_missing_ranks();
  missing.set_rank(7);
  missing.add_similar_names("grads");
  stall.set_text("rank 7 sleeps");
  return reply;
}

TEST(Format, JsonHasEveryFieldByItsProtoName) {
  const auto json = ctl::to_json(two_jobs());
  EXPECT_EQ(json["jobs"].size(), 2u);
  const auto& job = json["jobs"][0];
  EXPECT_EQ(job["job_id"], "job-a");
  EXPECT_EQ(job["missing_ranks"], (nlohmann::ordered_json{2, 3}));
  // The value is a number, while protobuf's own JSON makes a string of 64 bits.
  EXPECT_EQ(job["bytes_reduced"], uint64_t{1} << 60);
  EXPECT_EQ(job["error"], "");
  EXPECT_EQ(job.size(), static_cast<size_t>(v1::ListJobsReply::Job::descriptor()->field_count()));
  EXPECT_EQ(ctl::to_json(v1::ListPeersReply()).dump(), R"({"peers":[]})");
}

TEST(Format, TablesAreAligned) {
  EXPECT_EQ(ctl::aligned_table({{"A", "NUMBER", "C"}, {"x", "1", "long"}, {"yyy", "20", "z"}}),
            "A    NUMBER  C\n"
            "x         1  long\n"
            "yyy      20  z\n");
  EXPECT_EQ(ctl::aligned_table({}), "");
}

TEST(Format, JobsSayWhatIsMissingAndWrong) {
  const std::string table = ctl::jobs_table(two_jobs());
  EXPECT_THAT(table, HasSubstr("1.0 EiB"));
  EXPECT_THAT(table, HasSubstr("job-a: not attached yet: ranks 2, 3\n"));
  EXPECT_THAT(table, HasSubstr("job-with-a-long-name: rank 1 has gone\n"));
  EXPECT_THAT(table, HasSubstr("job-with-a-long-name: generation 2, 04:00:16: 3 ranks on 2 nodes: "
                               "node b is lost\n"));
  EXPECT_EQ(ctl::jobs_table({}), "no jobs\n");
  EXPECT_EQ(ctl::peers_table({}), "no peers\n");
}

TEST(Format, PlansAreShownBatchByBatch) {
  v1::ListPlansReply reply;
  v1::ListPlansReply::Plan& plan = *reply.add_plans();
  plan.set_job_id("job-a");
  v1::ListPlansReply::Batch& batch = *plan.add_batches();
  batch.set_collective("allreduce");
  batch.set_dtype("float32");
  batch.set_bytes(2048);
  for (const char* name : {"fc.weight", "fc.bias", "conv1.weight"}) batch.add_tensors(name);
  batch.set_ends(true);
  v1::ListPlansReply::Batch& validation = *plan.add_batches();
  validation.set_collective("allreduce");
  validation.set_dtype("float32");
  validation.set_bytes(4);
  validation.add_tensors("loss");
  validation.set_after(1);
  validation.set_ends(true);
  v1::ListPlansReply::Plan& of_set = *reply.add_plans();
  of_set.set_job_id("job-a");
  of_set.set_process_set(3);
  v1::ListPlansReply::Batch& own = *of_set.add_batches();
  own.set_collective("allreduce");
  own.set_dtype("float32");
  own.add_tensors("expert");
  own.set_ends(true);
  EXPECT_EQ(ctl::plans_table(reply),
            "JOB    SET  BATCH  AFTER  COLLECTIVE  DTYPE    BYTES    TENSORS  FIRST      LAST\n"
            "job-a    0  1 end  start  allreduce   float32  2.0 KiB        3  fc.weight  "
            "conv1.weight\n"
            "job-a    0  2 end  1      allreduce   float32  4 B            1  loss       loss\n"
            "job-a    3  1 end  start  allreduce   float32  0 B            1  expert     expert\n");
  EXPECT_EQ(ctl::plans_table({}), "no job is locked\n");
}

TEST(Format, StallsAreCountedAndThenSaidInWords) {
  EXPECT_EQ(ctl::stalls_table(one_stall()),
            "JOB    SET  TENSOR  WAITING  SUBMITTED  MISSING\n"
            "job-a    2  grad    1m 15s   7 ranks    1 rank\n"
            "job-a: rank 7 sleeps\n");
  EXPECT_EQ(ctl::stalls_table({}), "no stalls\n");
}

TEST(Format, AProbeIsAMatrixAndWhatIsWorthKnowingOfIt) {
  v1::ProbeReply reply;
  for (const char* node : {"alpha", "b"}) {
    reply.mutable_bandwidths()->add_nodes(node);
    reply.add_ring(node);
  }
  v1::Bandwidths::Row& from_alpha = *reply.mutable_bandwidths()->add_rows();
  for (const double value : {0.0, 1.25e9}) from_alpha.add_bytes_per_second(value);
  v1::Bandwidths::Row& from_b = *reply.mutable_bandwidths()->add_rows();
  for (int i = 0; i < 2; ++i) from_b.add_bytes_per_second(0);
  v1::ProbeReply::Link& slowest = *reply.add_slowest();
  slowest.set_from("alpha");
  slowest.set_to("b");
  slowest.set_bytes_per_second(1.25e9);
  reply.add_unreachable()->set_text("nothing comes through from node b to node alpha: why");
  EXPECT_EQ(ctl::probe_table(reply),
            "Gbit/s      to alpha  to b\n"
            "from alpha  -         10.000\n"
            "from b      -         -\n"
            "slow: alpha to b, 10.000 Gbit/s\n"
            "nothing comes through from node b to node alpha: why\n"
            "ring without racks: alpha, b\n");
}

v1::GetStatusReply ready() {
  v1::GetStatusReply status;
  status.set_state("ready");
  status.set_version("1.0");
  return status;
}

TEST(Doctor, HasNothingToSayOfADaemonThatIsWell) {
  v1::ListPeersReply peers;
  v1::ListPeersReply::Peer& peer = *peers.add_peers();
  peer.set_state("connected");
  peer.set_version("1.0");
  v1::ListJobsReply jobs;
  jobs.add_jobs()->set_state("running");
  EXPECT_TRUE(ctl::diagnose(ready(), jobs, peers, {}).empty());
  EXPECT_EQ(ctl::findings_text({}), "nothing to recommend\n");
  EXPECT_EQ(ctl::findings_json({}).dump(), R"({"findings":[]})");
}

TEST(Doctor, SaysWhatIsWrongAndWhatToDo) {
  v1::GetStatusReply status = ready();
  status.set_state("stopping");
  status.set_gpu_workers(3);
  status.set_gpu_workers_without_mps(2);
  status.set_gpu_staged_clients(1);
  v1::ListPeersReply peers;
  v1::ListPeersReply::Peer& lost = *peers.add_peers();
  lost.set_node_id("n8");
  lost.set_state("lost");
  lost.set_last_heard_seconds(65);
  v1::ListPeersReply::Peer& older = *peers.add_peers();
  older.set_node_id("n9");
  older.set_state("connected");
  older.set_version("0.9");
  const std::string text =
      ctl::findings_text(ctl::diagnose(status, two_jobs(), peers, one_stall()));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * 8) << text;
  for (const char* what :
       {"the daemon is stopping\n", "node n8 is lost, last heard 1m 5s ago\n",
        "node n9 has version 0.9, this one 1.0\n",
        "job job-a waits for 2 ranks to attach, rank 2 first\n",
        "job job-with-a-long-name has failed: rank 1 has gone\n",
        "1 tensor waits for ranks; of job job-a, tensor \"grad\" since 1m 15s\n",
        "2 GPU workers run without MPS", "1 process has device memory that GPU workers cannot open",
        "\n  let containers of daemon and ranks have the host's PID",
        "\n  start MPS before the jobs (nvidia-cuda-mps-control -d)"}) {
    EXPECT_THAT(text, HasSubstr(what));
  }
}

TEST(Doctor, NamesThePairsThatAProbeFoundUnreachable) {
  v1::GetStatusReply status = ready();
  v1::GetStatusReply::UnreachablePair& first = *status.add_unreachable_pairs();
  first.set_from("n1");
  first.set_to("n2");
  EXPECT_THAT(ctl::findings_text(ctl::diagnose(status, {}, {}, {})),
              HasSubstr("in the last probe nothing came through from node n1 to node n2\n"));
  status.add_unreachable_pairs();
  EXPECT_THAT(ctl::findings_text(ctl::diagnose(status, {}, {}, {})),
              HasSubstr("from node n1 to node n2, nor between 1 other pair\n"));
}

TEST(Doctor, SaysHowThePortsAreProtectedIfThatIsNotEnough) {
  v1::GetStatusReply status = ready();
  const auto text = [&] { return ctl::findings_text(ctl::diagnose(status, {}, {}, {})); };
  const int64_t now = std::time(nullptr);
  status.set_protection("loopback");
  EXPECT_EQ(text(), "nothing to recommend\n");
  status.set_protection("nothing");
  EXPECT_THAT(text(), HasSubstr("control messages are in clear (--insecure)"));
  status.set_protection("tls");
  status.set_identity("spiffe://test/rueda/node/n1");
  status.set_certificate_expiry(now + 15 * 86'400);
  EXPECT_EQ(text(), "nothing to recommend\n");
  status.set_certificate_expiry(now + 13 * 86'400 + 60);
  EXPECT_THAT(text(), HasSubstr("the daemon's certificate ends in 13d 0h\n"));
  status.set_certificate_expiry(86'400);
  EXPECT_THAT(text(), HasSubstr("has ended on 1970-01-02: nobody takes it any more\n"));
  status.set_certificate_expiry(now + 90 * 86'400);
  status.set_certificate_trouble("/x/tls.key: gone");
  EXPECT_THAT(text(), HasSubstr("are not used, but older ones: /x/tls.key: gone\n"));
}

TEST(Doctor, SaysWhatTheSandboxLacks) {
  v1::GetStatusReply status = ready();
  const auto text = [&] { return ctl::findings_text(ctl::diagnose(status, {}, {}, {})); };
  EXPECT_EQ(text(), "nothing to recommend\n") << "a daemon may have been told to have none";
  status.add_sandbox("seccomp");
  status.set_sandbox_trouble("the kernel has no Landlock");
  EXPECT_THAT(text(), HasSubstr("sandbox is not whole: the kernel has no Landlock\n"));
  EXPECT_THAT(text(), HasSubstr("lsm=landlock"));
}

TEST(Format, NumbersForPeople) {
  EXPECT_EQ(ctl::bytes_text(0), "0 B");
  EXPECT_EQ(ctl::bytes_text(1023), "1023 B");
  EXPECT_EQ(ctl::bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(ctl::duration_text(0.4), "0s");
  EXPECT_EQ(ctl::duration_text(245), "4m 5s");
  EXPECT_EQ(ctl::duration_text(2 * 86400 + 3 * 3600 + 59), "2d 3h");
  EXPECT_EQ(ctl::duration_text(-1), "0s");
}

TEST(Format, AnEndedJobHasItsNodesAndItsReason) {
  v1::EndJobReply reply;
  reply.set_job_id("train");
  reply.set_nodes(1);
  reply.set_text("the job was ended by user 7 on node a");
  EXPECT_EQ(ctl::end_text(reply),
            "job train of 1 node is over: the job was ended by user 7 on node a\n");
  reply.set_nodes(2);
  EXPECT_THAT(ctl::end_text(reply), HasSubstr("of 2 nodes is over"));
}

class RuedactlTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.status_reply.set_node_id("n7");
    fake_.status_reply.set_state("ready");
    fake_.status_reply.add_transports("mem");
    fake_.status_reply.add_transports("tcp");
    fake_.jobs_reply = two_jobs();
    fake_.stalls_reply = one_stall();
    v1::ListPeersReply::Peer& peer = *fake_.peers_reply.add_peers();
    peer.set_node_id("n8");
    peer.set_state("connected");
    peer.set_data_bytes_sent(2048);
  }

  FakeDaemon fake_{unique_socket(), "n7"};
};

TEST_F(RuedactlTest, PrintsTables) {
  Program status({kRuedactl, "status", "--socket", fake_.socket()});
  EXPECT_EQ(status.wait(), 0) << status.err();
  EXPECT_THAT(status.out(), HasSubstr("node         n7\n"));
  EXPECT_THAT(status.out(), HasSubstr("transports   mem, tcp\n"));
  Program peers({kRuedactl, "--socket", fake_.socket(), "peers"});
  EXPECT_EQ(peers.wait(), 0);
  EXPECT_THAT(peers.out(), HasSubstr("2.0 KiB"));
  Program jobs({kRuedactl, "jobs"}, {{"RUEDA_SOCKET", fake_.socket()}});
  EXPECT_EQ(jobs.wait(), 0);
  EXPECT_THAT(jobs.out(), HasSubstr("job-with-a-long-name"));
  Program stalls({kRuedactl, "stalls", "--socket", fake_.socket()});
  EXPECT_EQ(stalls.wait(), 0);
  EXPECT_EQ(stalls.out(), ctl::stalls_table(one_stall()));
}

TEST_F(RuedactlTest, PrintsJson) {
  Program program({kRuedactl, "jobs", "--json", "--socket", fake_.socket()});
  EXPECT_EQ(program.wait(), 0);
  const auto json = nlohmann::json::parse(program.out(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["jobs"][1]["error"], "rank 1 has gone");
  Program stalls({kRuedactl, "stalls", "--json", "--socket", fake_.socket()});
  EXPECT_EQ(stalls.wait(), 0);
  const auto stalled = nlohmann::json::parse(stalls.out(), nullptr, false);
  ASSERT_TRUE(stalled.is_object());
  EXPECT_EQ(stalled["stalls"][0]["missing_ranks"][0]["similar_names"][0], "grads");
}

TEST_F(RuedactlTest, TheDoctorFailsIfThereIsAnythingToSay) {
  Program ill({kRuedactl, "doctor", "--socket", fake_.socket()});
  EXPECT_EQ(ill.wait(), 1);
  EXPECT_THAT(ill.out(), HasSubstr("tensor \"grad\" since 1m 15s\n  ruedactl stalls"));
  fake_.jobs_reply.Clear();
  fake_.stalls_reply.Clear();
  Program well({kRuedactl, "doctor", "--json", "--socket", fake_.socket()});
  EXPECT_EQ(well.wait(), 0) << well.out() << well.err();
  const auto json = nlohmann::json::parse(well.out(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_TRUE(json["findings"].empty());
}

TEST_F(RuedactlTest, NamesAMissingDaemonAndWrongUsage) {
  Program program({kRuedactl, "status", "--socket", "/nowhere/x.sock"});
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("no daemon answers at /nowhere/x.sock"));
  Program address({kRuedactl, "status", "--address", "127.0.0.1:1"});
  EXPECT_EQ(address.wait(), 1);
  EXPECT_THAT(address.err(), HasSubstr("127.0.0.1:1"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"nonsense"},
                                                {"end"},
                                                {"status", "--bogus"},
                                                {"status", "--socket", "@a", "--address", "a:1"}}) {
    std::vector<std::string> argv{kRuedactl};
    argv.insert(argv.end(), words.begin(), words.end());
    Program wrong(argv);
    EXPECT_EQ(wrong.wait(), 2);
  }
}

}  // namespace
}  // namespace rueda::test
