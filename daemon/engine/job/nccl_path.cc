#include "daemon/engine/job/nccl_path.h"

#include <algorithm>
#include <chrono>
#include <string>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/engine/device/device_operation.h"

namespace rueda::engine {

NcclPath::NcclPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
                   SubmissionLedger& ledger, JobLinks& links, DeviceLaunches& device)
    : context_(context),
      spec_(spec),
      host_(host),
      ledger_(ledger),
      links_(links),
      device_(device),
      timer_(context.control_loop) {}

bool NcclPath::is_wanted() const {
  return spec_.inter_node.value_or(context_.options.inter_node) == core::InterNode::kNccl &&
         spec_.layout.node_count() > 1;
}

void NcclPath::open() {
  if (!is_wanted()) return;
  NcclSetsOptions options;
  options.who = "job " + spec_.job + " on node " + spec_.layout.node(spec_.self).node_id;
  options.connect_timeout_ms =
      spec_.start_timeout_ms > 0 ? spec_.start_timeout_ms : context_.options.start_timeout_ms;
  sets_ = std::make_unique<NcclSets>(device_.worker(), context_.metrics, std::move(options),
                                     [this](uint32_t process_set, const gpu::CommunicatorId& id) {
                                       pass_on({spec_.job, process_set, id}, std::nullopt);
                                     });
}

void NcclPath::stop() {
  sets_.reset();
  under_way_.clear();
}

void NcclPath::close_set(uint32_t process_set) {
  if (sets_) sets_->drop(process_set);
}

// Tensors of sets of one node stay as they are, and so do those that NCCL has no reduction for:
// they go by way of host memory, as without NCCL.
bool NcclPath::carries(const core::TensorDescriptor& tensor) const {
  if (tensor.memory != MemorySpace::kDevice ||
      !can_be_by_nccl(tensor.kind, tensor.dtype, tensor.op)) {
    return false;
  }
  const core::Collectives* const set = host_.find_set(tensor.process_set);
  return set && set->layout().members().size() > 1;
}

// The core knows a tensor by its address, so each is replaced by the same object every time. A plan
// has the tensors that will be agreed on, too.
core::DescriptorPtr NcclPath::carried(const core::DescriptorPtr& submitted) {
  const bool is_plan = submitted->kind == CollectiveKind::kDeclarePlan;
  if (!is_wanted() || (!is_plan && !carries(*submitted))) return submitted;
  std::pair<core::DescriptorPtr, core::DescriptorPtr>& known = carried_[submitted.get()];
  if (!known.first) {
    auto made = std::make_shared<core::TensorDescriptor>(*submitted);
    for (core::PlannedTensor& planned : made->plan) planned.tensor = carried(planned.tensor);
    if (!is_plan) made->memory = MemorySpace::kDeviceNccl;
    known = {submitted, std::move(made)};
  }
  return known.second;
}

void NcclPath::launch(const core::Launch& launch) {
  const OperationKey key{launch.process_set, launch.seq};
  ledger_.begin(key, launch.tensors->front().descriptor->kind, 1, nullptr);
  under_way_[key] = {steady_now_ms(), launch.tensors};
  watch();
  const uint64_t bytes = staged_bytes(launch);
  if (bytes == 0) return run(launch, StagedRow{}, NcclPlace{});
  device_.worker().stage(
      bytes, DeviceJob::Through::kScratch, [this, launch](const Result<StagedRow>& row) {
        if (!row.is_ok()) return fail_later(launch.seq, row.status());
        if (!sets_) return;  // The job is about to end.
        const std::vector<NodeIndex> members =
            host_.find_set(launch.process_set)->layout().members();
        const auto self = std::find(members.begin(), members.end(), spec_.self);
        sets_->use(launch.process_set,
                   {static_cast<int>(self - members.begin()), static_cast<int>(members.size())},
                   [this, launch, row = row.value()](const Result<NcclPlace>& across) {
                     if (!across.is_ok()) return fail_later(launch.seq, across.status());
                     run(launch, row, across.value());
                   });
      });
}

void NcclPath::run(const core::Launch& launch, const StagedRow& row, NcclPlace across) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (first.kind == CollectiveKind::kBroadcast) {
    const core::Layout& layout = host_.find_set(launch.process_set)->layout();
    const std::vector<NodeIndex> members = layout.members();
    const auto root = std::find(members.begin(), members.end(), layout.node_of(first.root));
    across.root = static_cast<int>(root - members.begin());
  }
  context_.metrics.daemon().gpu_across_bytes.Increment(static_cast<double>(staged_bytes(launch)));
  auto ended = [this, key = OperationKey{launch.process_set, launch.seq},
                row](const Status& status) {
    under_way_.erase(key);
    if (row.scratch != 0) device_.worker().unstage(row);
    if (!status.is_ok()) return host_.fail_operation(key.second, status);
    host_.end_operation(key);
  };
  device_.worker().run(
      build_across_operations(launch, device_.how(launch), device_.places(launch), row, across),
      std::move(ended));
}

void NcclPath::fail_later(Seq seq, const Status& status) {
  boost::asio::post(context_.control_loop,
                    lifetime_.guard([this, seq, status] { host_.fail_operation(seq, status); }));
}

void NcclPath::watch() {
  const TicksMs most = spec_.stall_check_ms.value_or(context_.options.stall.check_ms);
  if (most <= 0 || under_way_.empty() || std::exchange(is_watched_, true)) return;
  timer_.expires_after(std::chrono::milliseconds(most / 2 + 1));
  timer_.async_wait(lifetime_.guard([this, most](const boost::system::error_code& error) {
    if (error) return;
    is_watched_ = false;
    for (auto& [key, item] : under_way_) {
      if (steady_now_ms() - item.since < most || std::exchange(item.is_told, true)) continue;
      context_.metrics.daemon().gpu_across_waits.Increment();
      spdlog::warn(
          "job {}: {} tensors from \"{}\" on, in device memory of process set {}, have been under "
          "way through NCCL for {} ms: a rank's stream has not come to them, or a node or its "
          "network hangs (NCCL_DEBUG=INFO where the daemon starts says more)",
          spec_.job, item.tensors->size(), item.tensors->front().descriptor->name, key.first,
          steady_now_ms() - item.since);
    }
    watch();
  }));
}

void NcclPath::pass_on(const CommunicatorMessage& message, std::optional<NodeIndex> from) {
  std::vector<NodeIndex> neighbours = links_.children();
  if (const auto parent = links_.parent()) neighbours.push_back(*parent);
  for (const NodeIndex node : neighbours) {
    if (node != from) links_.tell(node, message);
  }
}

void NcclPath::on_communicator(LinkId link, const CommunicatorMessage& message) {
  const auto from = links_.node_behind(link);
  if (!from) return;
  pass_on(message, from);
  const core::Collectives* const set = host_.find_set(message.process_set);
  if (set && set->layout().is_member(spec_.self) && sets_) {
    sets_->on_id(message.process_set, message.id);
  }
}

}  // namespace rueda::engine
