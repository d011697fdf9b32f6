#include "daemon/engine/job/device_path.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/device/device_operation.h"

namespace rueda::engine {

DevicePath::DevicePath(const EngineContext& context, const JobSpec& spec, PathHost& host,
                       SubmissionLedger& ledger, JobLinks& links, HostPath& host_path,
                       observe::JobMetrics& metrics)
    : context_(context),
      spec_(spec),
      host_(host),
      ledger_(ledger),
      host_path_(host_path),
      metrics_(metrics),
      device_(host, ledger),
      nccl_(context, spec, host, ledger, links, device_),
      staged_(context, spec, host, ledger, host_path, device_) {}

// --- Memory --------------------------------------------------------------------------------------

Status DevicePath::check() const {
  const std::string job = "job " + spec_.job;
  const size_t local_ranks = spec_.layout.node(spec_.self).ranks.size();
  if (local_ranks > gpu::kMaxSources) {
    return Status(Code::kInvalidArgument,
                  "tensors in device memory are reduced among " + std::to_string(gpu::kMaxSources) +
                      " ranks of a node at most, and " + job + " has " +
                      std::to_string(local_ranks) + ": hand over host memory");
  }
  if (context_.options.gpu_workers == nullptr) {
    return Status(Code::kUnavailable, "this daemon has no GPU workers: hand over host memory");
  }
  return Status::ok();
}

void DevicePath::add(LocalRank rank, session::DeviceMemory memory) {
  if (!device_.is_open()) {
    const Status opened = open();
    if (!opened.is_ok()) return host_.device_memory_added(rank, memory.id, opened);
  }
  device_.worker().add(rank, std::move(memory));
}

Status DevicePath::open() {
  Result<session::Charge> paid =
      session::charge({context_.ledger, spec_.owner}, session::Resource::kGpuWorkers, 1);
  if (!paid.is_ok()) return paid.status();
  worker_ = std::move(paid).value();
  DeviceJobOptions options;
  options.who =
      "the GPU worker of job " + spec_.job + " on node " + spec_.layout.node(spec_.self).node_id;
  options.fork_server = context_.options.gpu_workers;
  options.timeout_ms = context_.options.timeout_ms;
  options.max_staging_bytes = context_.options.gpu_staging_bytes;
  options.is_direct = context_.options.adds_on_gpu && context_.options.sends_from_gpu;
  auto on_added = [this](LocalRank rank, uint32_t id, const Status& status) {
    host_.device_memory_added(rank, id, status);
  };
  device_.open(std::make_unique<DeviceJob>(context_.control_loop, context_.metrics,
                                           std::move(options), std::move(on_added)));
  nccl_.open();
  return Status::ok();
}

void DevicePath::remove(LocalRank rank, uint32_t id) {
  if (device_.is_open()) device_.worker().remove(rank, id);
}

void DevicePath::drop(LocalRank rank) {
  if (device_.is_open()) device_.worker().drop(rank);
}

void DevicePath::stop(std::function<void()> then) {
  nccl_.stop();
  if (!device_.is_open()) return then();
  device_.worker().stop(lifetime_.guard([this, then = std::move(then)] {
    worker_ = session::Charge();
    then();
  }));
}

// --- Batches -------------------------------------------------------------------------------------

void DevicePath::close_set(uint32_t process_set) {
  nccl_.close_set(process_set);
  staged_.close_set(process_set);
}

void DevicePath::count(const core::Launch& launch) {
  const std::vector<LocalRank>& locals = host_.find_set(launch.process_set)->locals();
  double last_submitted_s = 0;
  uint64_t submissions = 0;
  uint64_t staged = 0;
  for (size_t i = 0; i < launch.tickets.size(); ++i) {
    if (!launch.tickets[i]) continue;
    const LocalRank rank = locals[i % locals.size()];
    last_submitted_s =
        std::max(last_submitted_s, ledger_.held(rank, *launch.tickets[i]).submitted_s);
    ++submissions;
    const SubmittedOnDevice& places = ledger_.on_device(rank, *launch.tickets[i]);
    if (device_.worker().is_staging(rank, places.input.memory) ||
        device_.worker().is_staging(rank, places.output.memory)) {
      ++staged;
    }
  }
  if (submissions > 0) metrics_.negotiation_seconds.Observe(steady_now_s() - last_submitted_s);
  context_.metrics.daemon().gpu_submissions.Increment(static_cast<double>(submissions));
  context_.metrics.daemon().gpu_staged_submissions.Increment(static_cast<double>(staged));
}

void DevicePath::launch(const core::Launch& launch) {
  count(launch);
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (first.memory == MemorySpace::kDeviceNccl) return nccl_.launch(launch);
  const core::Collectives& set = *host_.find_set(launch.process_set);
  if (set.layout().members().size() > 1) return staged_.launch(launch);

  std::vector<gpu::WorkerOperation> operations =
      build_device_operations(launch, device_.how(launch), device_.places(launch));
  const OperationKey key{launch.process_set, launch.seq};
  ledger_.begin(key, first.kind, 1, nullptr);
  auto ended = [this, key](const Status& status) {
    if (!status.is_ok()) return host_.fail_operation(key.second, status);
    host_.end_operation(key);
  };
  if (!operations.empty()) return device_.worker().run(std::move(operations), std::move(ended));
  // All ranks have joined, so there is nothing to do.
  boost::asio::post(context_.control_loop, lifetime_.guard([ended] { ended(Status::ok()); }));
}

}  // namespace rueda::engine
