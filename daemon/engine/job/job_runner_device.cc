// JobRunner's side of tensors in device memory: the job's GPU worker, and what it is given.

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/job/job_runner.h"
#include "daemon/engine/ports/headroom.h"

namespace rueda::engine {

Status JobRunner::check_device() const {
  const std::string job = "job " + spec_.job;
  if (closing_ || core_.state() == core::JobState::kFailed) {
    return Status(Code::kShutDown, job + " is over");
  }
  if (spec_.layout.node_count() > 1 && reducer() == core::Reducer::kDevice) {
    return Status(
        Code::kInvalidArgument,
        "with --reducer device, tensors in device memory do not go between nodes yet, and " + job +
            " has " + std::to_string(spec_.layout.node_count()) +
            " nodes: start it with --reducer node, or hand over host memory");
  }
  if (locals_.size() > gpu::kMaxSources) {
    return Status(Code::kInvalidArgument,
                  "tensors in device memory are reduced among " + std::to_string(gpu::kMaxSources) +
                      " ranks of a node at most, and " + job + " has " +
                      std::to_string(locals_.size()) + ": hand over host memory");
  }
  if (context_.options.gpu_worker_command.empty()) {
    return Status(Code::kUnavailable, "this daemon has no GPU workers: hand over host memory");
  }
  return Status::ok();
}

void JobRunner::on_device_memory(session::Session& session, session::DeviceMemory memory) {
  const LocalRank rank = session.attach().local_rank;
  Status refused = check_device();
  if (!refused.is_ok()) {
    if (!std::exchange(warned_of_device_, true)) spdlog::warn("{}", refused.message());
  } else if (local(rank).attach_deferred || core_.state() != core::JobState::kRunning) {
    refused = Status(Code::kUnavailable,
                     "job " + spec_.job + " has not started: wait for rueda_init to return");
  }
  if (!refused.is_ok()) return session.device_memory_added(memory.id, refused);
  if (!device_) open_device();
  device_->add(rank, std::move(memory));
}

void JobRunner::open_device() {
  DeviceJobOptions options;
  options.who = "the GPU worker of job " + spec_.job + " on node " + describe_node();
  options.command = context_.options.gpu_worker_command;
  options.timeout_ms = context_.options.timeout_ms;
  options.most_staging_bytes = context_.options.gpu_staging_bytes;
  auto on_added = [this](LocalRank rank, uint32_t id, const Status& status) {
    Local& item = local(rank);
    if (item.session && !item.attach_deferred) item.session->device_memory_added(id, status);
  };
  device_ = std::make_unique<DeviceJob>(context_.control_loop, context_.metrics, std::move(options),
                                        std::move(on_added));
  if (leaves_to_nccl()) open_nccl();
}

void JobRunner::on_device_memory_removed(session::Session& session, uint32_t id) {
  if (device_) device_->remove(session.attach().local_rank, id);
}

JobRunner::OnDevice& JobRunner::on_device(LocalRank rank, Ticket ticket) {
  Local& owner = local(rank);
  const size_t place = ticket.value & (owner.capacity - 1);
  if (place >= owner.on_device.size()) owner.on_device.resize(place + 1);
  return owner.on_device[place];
}

DeviceLaunch JobRunner::device_launch_of(const core::Launch& launch) const {
  const core::Collectives& set = *find_set(launch.process_set);
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  DeviceLaunch how;
  if (first.op == ReduceOp::kAverage && reduces(first.kind)) {
    how.divisor = set.layout().member_ranks();
  }
  how.headroom = headroom_of(first.kind, first.op, dtype_on_wire(first.dtype, first.wire_dtype),
                             how.divisor, set.layout().members().size() > 1);
  const std::vector<LocalRank>& locals = set.locals();
  for (size_t i = 0; i < locals.size(); ++i) {
    if (core_.global_rank(locals[i]) == first.root) how.root = i;
  }
  return how;
}

FindDevicePlaces JobRunner::places_of(const core::Launch& launch) {
  return [this, &locals = find_set(launch.process_set)->locals()](size_t place,
                                                                  Ticket ticket) -> DevicePlaces {
    const LocalRank rank = locals[place];
    const OnDevice& places = on_device(rank, ticket);
    const auto at = [&](const OnDevice::Side& where) {
      return gpu::Place{.memory = device_->number_of(rank, where.memory), .offset = where.offset};
    };
    const uint64_t capacity = local(rank).capacity;
    const uint64_t word = ticket.value & (capacity - 1);
    const uint32_t counters = device_->counters_of(rank);
    return {at(places.input),
            at(places.output),
            {.memory = counters, .offset = word * sizeof(uint64_t)},
            {.memory = counters, .offset = (capacity + word) * sizeof(uint64_t)},
            ticket.value};
  };
}

void JobRunner::launch_on_device(const core::Launch& launch) {
  const std::vector<LocalRank>& locals = find_set(launch.process_set)->locals();
  if (JobTrace* const trace = timeline_.trace_of_launches()) {
    trace->on_launch(launch, locals, [&](LocalRank rank, Ticket ticket) {
      return static_cast<int64_t>(held(rank, ticket).submitted_s * 1e9);
    });
  }
  double last_submitted_s = 0;
  uint64_t submissions = 0;
  uint64_t staged = 0;
  for (size_t i = 0; i < launch.tickets.size(); ++i) {
    if (!launch.tickets[i]) continue;
    const LocalRank rank = locals[i % locals.size()];
    const Held& item = held(rank, *launch.tickets[i]);
    last_submitted_s = std::max(last_submitted_s, item.submitted_s);
    ++submissions;
    const OnDevice& places = on_device(rank, *launch.tickets[i]);
    if (device_->is_staging(rank, places.input.memory) ||
        device_->is_staging(rank, places.output.memory)) {
      ++staged;
    }
  }
  if (submissions > 0) metrics_->negotiation_seconds.Observe(steady_now_s() - last_submitted_s);
  context_.metrics.daemon().gpu_submissions.Increment(static_cast<double>(submissions));
  context_.metrics.daemon().gpu_staged_submissions.Increment(static_cast<double>(staged));
  if (launch.tensors->front().descriptor->memory == MemorySpace::kDeviceNccl) {
    return launch_across(launch);
  }
  if (parts_.at(launch.process_set).ring().size() > 1) return launch_staged(launch);

  std::vector<gpu::WorkerOperation> operations =
      build_device_operations(launch, device_launch_of(launch), places_of(launch));
  const CollectiveKind kind = launch.tensors->front().descriptor->kind;
  operations_.emplace(OperationKey{launch.process_set, launch.seq}, UnderWay{kind, 1, nullptr});
  auto ended = [this, set_id = launch.process_set, seq = launch.seq](const Status& status) {
    if (!status.is_ok()) return step(core::OperationFailed{seq, status});
    end_operation(set_id, seq);
  };
  if (!operations.empty()) return device_->run(std::move(operations), std::move(ended));
  // All ranks have joined.
  boost::asio::post(context_.control_loop, [alive = alive_, ended] {
    if (*alive) ended(Status::ok());
  });
}

const JobRunner::Held* JobRunner::left_on_device(LocalRank rank) const {
  const Local& owner = locals_[static_cast<size_t>(rank.value)];
  if (owner.attach_deferred) return nullptr;  // nothing of its own is under way
  for (const Held& item : owner.held) {
    if (item.is_in_flight && item.descriptor->memory != MemorySpace::kHost) return &item;
  }
  return nullptr;
}

void JobRunner::stop_device(std::function<void()> then) {
  nccl_.reset();
  across_.clear();
  if (!device_) {
    then();
    return;
  }
  device_->stop([alive = alive_, then = std::move(then)] {
    if (*alive) then();
  });
}

}  // namespace rueda::engine
