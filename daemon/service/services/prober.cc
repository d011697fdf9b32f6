#include "daemon/service/services/prober.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <pthread.h>
#include <spdlog/spdlog.h>

#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/mutex.h"
#include "daemon/core/schedules/ring_order.h"
#include "daemon/engine/channels/link_measurement.h"
#include "rueda/v1/probe.grpc.pb.h"

namespace rueda::service {
namespace {

constexpr int kMaxSlowest = 3;
constexpr TicksMs kMaxProbeMs = 600'000;
// The time for a measurement, and for a node that is slow to answer.
constexpr auto kCallTimeout =
    std::chrono::milliseconds(engine::kLinkConnectMs + engine::kMaxLinkMeasurementMs + 4'000);

struct Node {
  std::string id;
  std::string address;
  std::unique_ptr<v1::Probe::Stub> stub;
};

std::string random_bytes(size_t count) {
  std::random_device device;
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(device());
  return bytes;
}

}  // namespace

class Prober::Run {
 public:
  Run(const Membership& membership, const std::string& self, const rpc::Credentials& credentials)
      : membership_(membership), self_(self), credentials_(credentials) {}

  Result<v1::ProbeReply> run();
  // May be called on any thread.
  void cancel() {
    const MutexLock lock(mutex_);
    is_cancelled_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  // Returns what the errand is, or nothing if it is not the last one. May be called on any thread.
  std::optional<v1::Explanation> explain(const v1::Errand& errand) {
    const MutexLock lock(mutex_);
    const bool is_last = errand.probe() == probe_ && errand.number() == errand_number_;
    return is_last && !is_cancelled_ ? std::optional(explanation_) : std::nullopt;
  }

 private:
  Status find_nodes();
  Result<v1::SendReply> measure(const Node& from, const Node& to);
  Status measure_all();
  Status tell_all();
  void sum_up();

  // Gives the node an errand, and waits until it is done.
  template <class Reply>
  Status ask(const Node& node,
             grpc::Status (v1::Probe::Stub::*method)(grpc::ClientContext*, const v1::Errand&,
                                                     Reply*),
             v1::Explanation explanation, Reply& reply);

  const Membership& membership_;
  const std::string self_;
  const rpc::Credentials& credentials_;
  const double began_s_ = steady_now_s();
  std::vector<Node> nodes_;
  uint64_t probe_ = 0;  // It is set before the first errand is given out.
  uint32_t pair_ = 0;
  v1::ProbeReply reply_;
  Mutex mutex_;
  bool is_cancelled_ RUEDA_GUARDED_BY(mutex_) = false;
  uint32_t errand_number_ RUEDA_GUARDED_BY(mutex_) = 0;
  v1::Explanation explanation_ RUEDA_GUARDED_BY(mutex_);          // What that errand is.
  grpc::ClientContext* call_ RUEDA_GUARDED_BY(mutex_) = nullptr;  // The call under way.
};

Result<v1::ProbeReply> Prober::Run::run() {
  if (Status status = find_nodes(); !status.is_ok()) return status;
  spdlog::info("probe: measures the bandwidths between {} nodes", nodes_.size());
  if (Status status = measure_all(); !status.is_ok()) return status;
  sum_up();
  if (Status status = tell_all(); !status.is_ok()) return status;
  reply_.set_seconds(steady_now_s() - began_s_);
  spdlog::info("probe: took {:.1f} s", reply_.seconds());
  return reply_;
}

Status Prober::Run::find_nodes() {
  const std::vector<std::string> ids = membership_.node_ids();
  if (ids.size() < 2 || ids.size() > limits::kMaxProbedNodes) {
    return {Code::kInvalidArgument,
            "a probe measures between 2 and " + std::to_string(limits::kMaxProbedNodes) +
                " nodes, and --nodes of node " + self_ + " has " + std::to_string(ids.size()) +
                "; give all daemons the same list, or say where nodes stand with --label rack=..."};
  }
  if (!membership_.address_of(self_).is_ok()) {
    return {Code::kInvalidArgument, "node " + self_ +
                                        " is not in its own --nodes; give all "
                                        "daemons the same list"};
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  for (const std::string& id : ids) {
    const std::string address = membership_.address_of(id).value();
    const Result<HostPort> where = parse_dial_address(address);
    const Result<std::string> target =
        where.is_ok() ? dial_target(where.value()) : Result<std::string>(where.status());
    if (!target.is_ok()) {
      return {target.status().code(), "node " + id + ": " + target.status().message()};
    }
    const auto channel =
        grpc::CreateCustomChannel(target.value(), credentials_.channel(), arguments);
    nodes_.push_back({id, address, v1::Probe::NewStub(channel)});
  }
  std::random_device device;
  probe_ = (uint64_t{device()} << 32) | device();
  return Status::ok();
}

template <class Reply>
Status Prober::Run::ask(const Node& node,
                        grpc::Status (v1::Probe::Stub::*method)(grpc::ClientContext*,
                                                                const v1::Errand&, Reply*),
                        v1::Explanation explanation, Reply& reply) {
  v1::Errand errand;
  errand.set_prober(self_);
  errand.set_probe(probe_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  {
    const MutexLock lock(mutex_);
    if (is_cancelled_) return {Code::kShutDown, "the probe was broken off"};
    call_ = &context;
    errand.set_number(++errand_number_);
    explanation_ = std::move(explanation);
  }
  const grpc::Status status = ((*node.stub).*method)(&context, errand, &reply);
  const MutexLock lock(mutex_);
  call_ = nullptr;
  if (status.ok() && rpc::is_node(credentials_, context, node.id)) return Status::ok();
  if (status.ok()) {
    return {Code::kPermission, "the daemon at " + node.address +
                                   " has another node's certificate "
                                   "than that of " +
                                   node.id + ": correct --nodes"};
  }
  if (is_cancelled_) return {Code::kShutDown, "the probe was broken off"};
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Code::kNodeLost, "node " + node.id + " does not answer at " + node.address + " (" +
                                   status.error_message() +
                                   "); start its daemon, or take it out of --nodes"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kVersion, "the daemon on node " + node.id +
                                  " is of a version that measures no bandwidths; update it"};
    default: return {Code::kUnavailable, status.error_message()};
  }
}

Result<v1::SendReply> Prober::Run::measure(const Node& from, const Node& to) {
  v1::Measurement measurement;
  measurement.set_probe(probe_);
  measurement.set_pair(++pair_);
  measurement.set_token(random_bytes(limits::kTokenBytes));
  measurement.set_from(from.id);
  measurement.set_to(to.id);
  v1::Explanation explanation;
  *explanation.mutable_receive() = measurement;
  v1::ReceiveReply ready;
  Status status = ask(to, &v1::Probe::Stub::Receive, explanation, ready);
  if (!status.is_ok()) return status;
  *explanation.mutable_send()->mutable_measurement() = measurement;
  explanation.mutable_send()->set_data_address(ready.data_address());
  v1::SendReply sent;
  status = ask(from, &v1::Probe::Stub::Send, explanation, sent);
  if (!status.is_ok()) return status;
  return sent;
}

Status Prober::Run::measure_all() {
  for (const Node& from : nodes_) reply_.mutable_bandwidths()->add_nodes(from.id);
  for (const Node& from : nodes_) {
    v1::Bandwidths::Row& row = *reply_.mutable_bandwidths()->add_rows();
    for (const Node& to : nodes_) {
      if (&from == &to) {
        row.add_bytes_per_second(0);
        continue;
      }
      if ((steady_now_s() - began_s_) * 1000 > static_cast<double>(kMaxProbeMs)) {
        return {Code::kTimeout, "the probe was not over in " + std::to_string(kMaxProbeMs / 1000) +
                                    " s; it had come to the way from node " + from.id +
                                    " to node " + to.id};
      }
      Result<v1::SendReply> sent = measure(from, to);
      if (!sent.is_ok()) return sent.status();
      row.add_bytes_per_second(sent.value().bytes_per_second());
      if (sent.value().error().empty()) continue;
      v1::ProbeReply::Unreachable& unreachable = *reply_.add_unreachable();
      unreachable.set_from(from.id);
      unreachable.set_to(to.id);
      unreachable.set_text("nothing comes through from node " + from.id + " to node " + to.id +
                           ": " + sent.value().error());
    }
  }
  return Status::ok();
}

void Prober::Run::sum_up() {
  core::Bandwidths bandwidths;
  std::vector<v1::ProbeReply::Link> links;
  for (const v1::Bandwidths::Row& row : reply_.bandwidths().rows()) {
    const std::string& from = nodes_[bandwidths.size()].id;
    bandwidths.emplace_back(row.bytes_per_second().begin(), row.bytes_per_second().end());
    for (size_t to = 0; to < nodes_.size(); ++to) {
      if (bandwidths.back()[to] == 0) continue;
      v1::ProbeReply::Link& link = links.emplace_back();
      link.set_from(from);
      link.set_to(nodes_[to].id);
      link.set_bytes_per_second(bandwidths.back()[to]);
    }
  }
  std::stable_sort(links.begin(), links.end(), [](const auto& a, const auto& b) {
    return a.bytes_per_second() < b.bytes_per_second();
  });
  for (size_t i = 0; i < links.size() && i < kMaxSlowest; ++i) *reply_.add_slowest() = links[i];
  const std::vector<std::string> no_racks(nodes_.size());
  for (const int place : core::ring_order(no_racks, bandwidths)) {
    reply_.add_ring(nodes_[static_cast<size_t>(place)].id);
  }
}

Status Prober::Run::tell_all() {
  v1::Explanation explanation;
  *explanation.mutable_keep() = reply_.bandwidths();
  for (const Node& node : nodes_) {
    v1::KeepReply kept;
    const Status status = ask(node, &v1::Probe::Stub::Keep, explanation, kept);
    if (status.is_ok()) continue;
    return {status.code(),
            "not all nodes have the new bandwidths, probe again: " + status.message()};
  }
  return Status::ok();
}

Prober::Prober(const Membership& membership, const DaemonInfo& info,
               const rpc::Credentials& credentials)
    : membership_(membership), info_(info), credentials_(credentials) {}

Prober::~Prober() { stop(); }

uint64_t Prober::start(Done done) {
  MutexLock lock(mutex_);
  if (stopped_ || run_) {
    const std::string why = stopped_ ? " is stopping" : " has a probe under way; wait for it";
    lock.unlock();
    done(Status(Code::kUnavailable, "the daemon on node " + info_.node_id + why));
    return 0;
  }
  if (thread_.joinable()) thread_.join();  // The thread will not take the mutex again.
  run_ = std::make_unique<Run>(membership_, info_.node_id, credentials_);
  thread_ = std::thread([this, done = std::move(done), run = run_.get()] {
    ::pthread_setname_np(::pthread_self(), "rueda-probe");
    const Result<v1::ProbeReply> result = run->run();
    if (!result.is_ok()) spdlog::warn("probe: {}", result.status().message());
    {
      const MutexLock ended(mutex_);
      run_.reset();
    }
    done(result);  // The callback may start the next probe.
  });
  return ++number_;
}

void Prober::cancel(uint64_t number) {
  const MutexLock lock(mutex_);
  if (run_ && number == number_) run_->cancel();
}

Result<v1::Explanation> Prober::explain(const v1::Errand& errand) {
  const MutexLock lock(mutex_);
  std::optional<v1::Explanation> explanation;
  if (run_) explanation = run_->explain(errand);
  if (explanation) return *std::move(explanation);
  return Status(Code::kNotFound, "node " + info_.node_id + " has given out no such errand");
}

void Prober::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    if (run_) run_->cancel();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace rueda::service
