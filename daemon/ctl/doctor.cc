#include "daemon/ctl/doctor.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include "daemon/ctl/format.h"

namespace rueda::ctl {
namespace {

// A certificate that has less time left is to be replaced.
constexpr double kSoonS = 14 * 86'400;

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

void add_gpus(const v1::GetStatusReply& status, std::vector<Finding>& findings) {
  if (const int32_t count = status.gpu_workers_without_mps(); count > 0) {
    findings.push_back(
        {counted(count, "GPU worker runs", "GPU workers run") +
             " without MPS, so that kernels of training and Rueda's take turns on the GPU",
         "start MPS before the jobs (nvidia-cuda-mps-control -d), and the daemon and the ranks in "
         "its environment"});
  }
  if (const int32_t count = status.gpu_staged_clients(); count > 0) {
    findings.push_back(
        {counted(count, "process has", "processes have") +
             " device memory that GPU workers cannot open, so that it goes through host memory",
         "let containers of daemon and ranks have the host's PID and IPC namespaces (hostPID and "
         "hostIPC in Kubernetes); the daemon's log has the reason"});
  }
}

void add_rdma(const v1::GetStatusReply& status, std::vector<Finding>& findings) {
  if (!status.rdma_trouble().empty()) {
    findings.push_back(
        {"this machine has an RDMA device that is not used: " + status.rdma_trouble(),
         "mend that and start the daemon again, or start it with --transport tcp"});
  }
  if (const int64_t count = status.rdma_fallbacks(); count > 0) {
    findings.push_back(
        {counted(count, "channel is", "channels are") +
             " over TCP, because RDMA could not be had on one of its ends",
         "look for \"rdma:\" in this daemon's log, which has the reason of each; --transport rdma "
         "makes such jobs fail instead"});
  }
}

void add_protection(const v1::GetStatusReply& status, std::vector<Finding>& findings) {
  if (status.protection() == "nothing") {
    findings.push_back(
        {"whoever reaches its ports is believed, and control messages are in clear (--insecure)",
         "give each daemon a certificate (ruedactl certs init and issue, docs/security.md), and "
         "start it with --tls-dir"});
  }
  if (status.identity().empty()) return;
  if (!status.certificate_trouble().empty()) {
    findings.push_back(
        {"the files in --tls-dir are not used, but older ones: " + status.certificate_trouble(),
         "mend them, or install them again: ruedactl certs install"});
  }
  const double left_s =
      static_cast<double>(status.certificate_expiry()) - static_cast<double>(std::time(nullptr));
  if (left_s >= kSoonS) return;
  findings.push_back(
      {left_s <= 0 ? "the daemon's certificate has ended on " +
                         day_text(status.certificate_expiry()) + ": nobody takes it any more"
                   : "the daemon's certificate ends in " + duration_text(left_s),
       "issue another one, and put it in its place, which needs no restart: ruedactl certs issue, "
       "and install"});
}

void add_sandbox(const v1::GetStatusReply& status, std::vector<Finding>& findings) {
  if (status.sandbox_trouble().empty()) return;
  findings.push_back(
      {"the daemon's sandbox is not whole: " + status.sandbox_trouble(),
       "give it a kernel that has both seccomp and Landlock (Linux 5.13, and lsm=landlock,... on "
       "its command line), in a container or unit that denies neither; --sandbox no says that it "
       "is to be so"});
}

void add_jobs(const v1::ListJobsReply& jobs, std::vector<Finding>& findings) {
  for (const v1::ListJobsReply::Job& job : jobs.jobs()) {
    if (job.state() == "failed") {
      findings.push_back({"job " + job.job_id() + " has failed: " + job.error(),
                          "mend that, and start the job again"});
    } else if (!job.missing_ranks().empty()) {
      findings.push_back(
          {"job " + job.job_id() + " waits for " +
               counted(job.missing_ranks().size(), "rank", "ranks") + " to attach, rank " +
               std::to_string(job.missing_ranks(0)) + " first",
           "look at the output of that rank: it may hang before init(), or have another socket"});
    }
  }
}

void add_peers(const v1::GetStatusReply& status, const v1::ListPeersReply& peers,
               std::vector<Finding>& findings) {
  for (const v1::ListPeersReply::Peer& peer : peers.peers()) {
    const std::string name = peer.node_id().empty() ? "the daemon at " + peer.control_address()
                                                    : "node " + peer.node_id();
    if (peer.state() == "lost") {
      findings.push_back(
          {name + " is lost, last heard " + duration_text(peer.last_heard_seconds()) + " ago",
           "look whether its daemon runs, and whether this node reaches it"});
    } else if (!peer.version().empty() && peer.version() != status.version()) {
      findings.push_back(
          {name + " has version " + peer.version() + ", this one " + status.version(),
           "install the same version on all nodes"});
    }
  }
}

void add_unreachable(const v1::GetStatusReply& status, std::vector<Finding>& findings) {
  if (status.unreachable_pairs().empty()) return;
  const v1::GetStatusReply::UnreachablePair& first = status.unreachable_pairs(0);
  const int others = status.unreachable_pairs().size() - 1;
  findings.push_back(
      {"in the last probe nothing came through from node " + first.from() + " to node " +
           first.to() +
           (others == 0 ? "" : ", nor between " + counted(others, "other pair", "other pairs")),
       "look for a firewall between their data ports, and for packets that are too large for the "
       "path (MTU); then ruedactl probe says whether it is mended"});
}

void add_stalls(const v1::ListStallsReply& stalls, std::vector<Finding>& findings) {
  if (stalls.stalls().empty()) return;
  const v1::ListStallsReply::Stall& first = stalls.stalls(0);
  findings.push_back({counted(stalls.stalls().size(), "tensor waits", "tensors wait") +
                          " for ranks; of job " + first.job_id() + ", tensor \"" + first.tensor() +
                          "\" since " + duration_text(first.waiting_seconds()),
                      "ruedactl stalls names the ranks and what they do instead"});
}

}  // namespace

std::vector<Finding> diagnose(const v1::GetStatusReply& status, const v1::ListJobsReply& jobs,
                              const v1::ListPeersReply& peers, const v1::ListStallsReply& stalls) {
  std::vector<Finding> findings;
  if (status.state() != "ready") {
    findings.push_back(
        {"the daemon is " + status.state(), "wait until it has ended, and start it"});
  }
  add_protection(status, findings);
  add_sandbox(status, findings);
  add_peers(status, peers, findings);
  add_unreachable(status, findings);
  add_jobs(jobs, findings);
  add_stalls(stalls, findings);
  add_gpus(status, findings);
  add_rdma(status, findings);
  return findings;
}

std::string findings_text(const std::vector<Finding>& findings) {
  if (findings.empty()) return "nothing to recommend\n";
  std::string text;
  for (const Finding& finding : findings) text += finding.what + "\n  " + finding.remedy + "\n";
  return text;
}

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = {{"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : findings) {
    all["findings"].push_back({{"what", finding.what}, {"remedy", finding.remedy}});
  }
  return all;
}

}  // namespace rueda::ctl
