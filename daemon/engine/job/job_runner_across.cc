// JobRunner's side of tensors in device memory that NCCL carries between nodes
// (docs/decisions/0060-nccl-between-nodes.md).

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {

bool JobRunner::leaves_to_nccl() const {
  return spec_.inter_node.value_or(context_.options.inter_node) == core::InterNode::kNccl &&
         spec_.layout.node_count() > 1;
}

void JobRunner::open_nccl() {
  NcclSetsOptions options;
  options.who = "job " + spec_.job + " on node " + describe_node();
  options.connect_timeout_ms =
      spec_.start_timeout_ms > 0 ? spec_.start_timeout_ms : context_.options.start_timeout_ms;
  nccl_ = std::make_unique<NcclSets>(*device_, context_.metrics, std::move(options),
                                     [this](uint32_t process_set, const gpu::CommunicatorId& id) {
                                       pass_on({spec_.job, process_set, id}, std::nullopt);
                                     });
}

// Tensors of sets of one node are as they are in any job. One that was seen before is the same
// object as then, which the core knows by its address.
core::DescriptorPtr JobRunner::carried(const core::DescriptorPtr& submitted) {
  if (submitted->memory != MemorySpace::kDevice || !leaves_to_nccl()) return submitted;
  const core::Collectives* const set = find_set(submitted->process_set);
  if (!set || set->layout().members().size() == 1) return submitted;
  std::pair<core::DescriptorPtr, core::DescriptorPtr>& known = carried_[submitted.get()];
  if (!known.first) {
    auto carried = std::make_shared<core::TensorDescriptor>(*submitted);
    carried->memory = MemorySpace::kDeviceNccl;
    known = {submitted, std::move(carried)};
  }
  return known.second;
}

void JobRunner::launch_across(const core::Launch& launch) {
  operations_.emplace(OperationKey{launch.process_set, launch.seq},
                      UnderWay{launch.tensors->front().descriptor->kind, 1, nullptr});
  across_[{launch.process_set, launch.seq}] = {steady_now_ms(), launch.tensors};
  watch_across();
  const uint64_t bytes = staged_bytes(launch);
  if (bytes == 0) return run_across(launch, StagedRow{}, AcrossNodes{});
  device_->stage(bytes, DeviceJob::Through::kScratch, [this, launch](const Result<StagedRow>& row) {
    if (!row.is_ok()) return fail_later(launch.seq, row.status());
    if (!nccl_) return;  // the job is about to end
    const std::vector<NodeIndex> members = find_set(launch.process_set)->layout().members();
    const auto self = std::find(members.begin(), members.end(), spec_.self);
    nccl_->use(launch.process_set,
               {static_cast<int>(self - members.begin()), static_cast<int>(members.size())},
               [this, launch, row = row.value()](const Result<AcrossNodes>& across) {
                 if (!across.is_ok()) return fail_later(launch.seq, across.status());
                 run_across(launch, row, across.value());
               });
  });
}

void JobRunner::run_across(const core::Launch& launch, const StagedRow& row, AcrossNodes across) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (first.kind == CollectiveKind::kBroadcast) {
    const core::Layout& layout = find_set(launch.process_set)->layout();
    const std::vector<NodeIndex> members = layout.members();
    const auto root = std::find(members.begin(), members.end(), layout.node_of(first.root));
    across.root = static_cast<int>(root - members.begin());
  }
  context_.metrics.daemon().gpu_across_bytes.Increment(static_cast<double>(staged_bytes(launch)));
  auto ended = [this, set_id = launch.process_set, seq = launch.seq, row](const Status& status) {
    across_.erase({set_id, seq});
    if (row.scratch != 0) device_->unstage(row);
    if (!status.is_ok()) return step(core::OperationFailed{seq, status});
    end_operation(set_id, seq);
  };
  device_->run(
      build_across_operations(launch, device_launch_of(launch), places_of(launch), row, across),
      std::move(ended));
}

void JobRunner::fail_later(Seq seq, const Status& status) {
  boost::asio::post(context_.control_loop, [this, alive = alive_, seq, status] {
    if (*alive) step(core::OperationFailed{seq, status});
  });
}

void JobRunner::watch_across() {
  const TicksMs most = spec_.stall_check_ms.value_or(context_.options.stall.check_ms);
  if (most <= 0 || across_.empty() || std::exchange(is_across_watched_, true)) return;
  across_timer_.expires_after(std::chrono::milliseconds(most / 2 + 1));
  across_timer_.async_wait([this, alive = alive_, most](const boost::system::error_code& error) {
    if (error || !*alive) return;
    is_across_watched_ = false;
    for (auto& [key, item] : across_) {
      if (steady_now_ms() - item.since < most || std::exchange(item.is_told, true)) continue;
      context_.metrics.daemon().gpu_across_waits.Increment();
      spdlog::warn(
          "job {}: {} tensors from \"{}\" on, in device memory of process set {}, have been under "
          "way through NCCL for {} ms: a rank's stream has not come to them, or a node or its "
          "network hangs (NCCL_DEBUG=INFO where the daemon starts says more)",
          spec_.job, item.tensors->size(), item.tensors->front().descriptor->name, key.first,
          steady_now_ms() - item.since);
    }
    watch_across();
  });
}

void JobRunner::pass_on(const CommunicatorMessage& message, std::optional<NodeIndex> from) {
  std::vector<NodeIndex> neighbours = timeline_children();
  if (const auto parent = timeline_parent()) neighbours.push_back(*parent);
  for (const NodeIndex node : neighbours) {
    if (node == from) continue;
    if (const std::optional<LinkId> link = link_to(node)) {
      context_.control_plane.send(*link, message);
    }
  }
}

void JobRunner::on_communicator(LinkId link, const CommunicatorMessage& message) {
  const auto from = node_behind(link);
  if (!from) return;
  pass_on(message, from);
  const core::Collectives* const set = find_set(message.process_set);
  if (set && set->layout().is_member(spec_.self) && nccl_) {
    nccl_->on_id(message.process_set, message.id);
  }
}

}  // namespace rueda::engine
