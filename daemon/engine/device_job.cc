#include "daemon/engine/device_job.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

gpu::MemoryKind kind_of(rueda_abi_device_kind kind) {
  switch (kind) {
    case RUEDA_ABI_DEVICE_IPC: return gpu::MemoryKind::kIpc;
    case RUEDA_ABI_DEVICE_FD: return gpu::MemoryKind::kFd;
    case RUEDA_ABI_DEVICE_COUNTERS: return gpu::MemoryKind::kHost;
  }
  return gpu::MemoryKind::kHost;
}

}  // namespace

DeviceJob::DeviceJob(boost::asio::io_context& loop, observe::Metrics& metrics,
                     DeviceJobOptions options, DeviceJobEvents events)
    : loop_(loop), metrics_(metrics), options_(std::move(options)), events_(std::move(events)) {}

DeviceJob::~DeviceJob() {
  *alive_ = false;
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(open_));
}

Status DeviceJob::start(const std::array<uint8_t, 16>& device) {
  GpuWorkerOptions options;
  options.who = options_.who;
  options.command = options_.command;
  options.uuid = device;
  options.timeout_ms = options_.timeout_ms;
  GpuWorkerEvents events;
  events.on_memory_added = [this](uint32_t memory, const Status& status) {
    on_memory_added(memory, status);
  };
  events.on_ended = [this](uint64_t number, const Status& status) {
    const auto found = operations_.find(number);
    RUEDA_CHECK(found != operations_.end());
    const UnderWay ended = found->second;
    operations_.erase(found);
    events_.on_ended(ended.process_set, ended.seq, status);
  };
  events.on_lost = [this](const Status& why) { on_lost(why); };
  auto started = GpuWorker::start(loop_, metrics_, std::move(options), std::move(events));
  if (started.is_ok()) worker_ = std::move(started).value();
  return started.status();
}

void DeviceJob::add(LocalRank rank, session::DeviceMemory memory) {
  if (!worker_ && lost_.is_ok()) lost_ = start(memory.device);
  if (!lost_.is_ok()) return events_.on_added(rank, memory.id, lost_);
  const uint32_t number = ++last_number_;
  const bool is_counters = memory.kind == RUEDA_ABI_DEVICE_COUNTERS;
  ranks_[rank.value].memories[memory.id] = {number, false};
  awaited_[number] = {rank, memory.id, is_counters};
  worker_->add_memory(
      {.memory = number, .kind = kind_of(memory.kind), .bytes = memory.bytes, .ipc = memory.ipc},
      std::move(memory.fd));
}

void DeviceJob::on_memory_added(uint32_t number, const Status& status) {
  const auto found = awaited_.find(number);
  RUEDA_CHECK(found != awaited_.end());
  const Awaited awaited = found->second;
  awaited_.erase(found);
  if (status.is_ok()) {
    ++open_;
    metrics_.daemon().gpu_memories.Increment();
    metrics_.daemon().gpu_memories_added.Increment();
  }
  const auto owner = ranks_.find(awaited.rank.value);
  const bool is_wanted = owner != ranks_.end() && owner->second.memories.contains(awaited.id) &&
                         owner->second.memories.at(awaited.id).number == number;
  if (!is_wanted) {  // its process has gone meanwhile
    if (status.is_ok()) forget(number);
    return;
  }
  Rank& rank = owner->second;
  if (status.is_ok()) {
    rank.memories[awaited.id].is_answered = true;
    if (awaited.is_counters) rank.counters = number;
  } else {
    rank.memories.erase(awaited.id);
  }
  events_.on_added(awaited.rank, awaited.id, status);
}

void DeviceJob::forget(uint32_t number) {
  if (!lost_.is_ok()) return;
  worker_->remove_memory(number);
  --open_;
  metrics_.daemon().gpu_memories.Decrement();
}

void DeviceJob::remove(LocalRank rank, uint32_t id) {
  auto& memories = ranks_[rank.value].memories;
  const auto found = memories.find(id);
  if (found == memories.end()) return;  // void, with the worker
  forget(found->second.number);
  memories.erase(found);
}

void DeviceJob::drop(LocalRank rank) {
  const auto found = ranks_.find(rank.value);
  if (found == ranks_.end()) return;
  for (const auto& [id, memory] : found->second.memories) {
    if (memory.is_answered) forget(memory.number);
  }
  ranks_.erase(found);
}

uint32_t DeviceJob::number_of(LocalRank rank, uint32_t id) const {
  const auto owner = ranks_.find(rank.value);
  if (owner == ranks_.end()) return 0;
  const auto found = owner->second.memories.find(id);
  return found == owner->second.memories.end() ? 0 : found->second.number;
}

uint32_t DeviceJob::counters_of(LocalRank rank) const {
  const auto owner = ranks_.find(rank.value);
  return owner == ranks_.end() ? 0 : owner->second.counters;
}

void DeviceJob::run(uint32_t process_set, Seq seq, std::vector<gpu::WorkerOperation> operations) {
  Status failed = lost_;
  for (gpu::WorkerOperation& operation : operations) {
    operation.number = ++last_operation_;
    if (failed.is_ok()) failed = worker_->run(operation);
    if (!failed.is_ok()) break;
    operations_[operation.number] = {process_set, seq};
  }
  if (failed.is_ok()) return;
  boost::asio::post(loop_, [this, alive = alive_, process_set, seq, failed] {
    if (*alive) events_.on_ended(process_set, seq, failed);
  });
}

void DeviceJob::on_lost(const Status& why) {
  lost_ = {why.code(), why.message() +
                           "; what this job has in device memory cannot be reduced any more: start "
                           "the job again, or hand over host memory"};
  ranks_.clear();  // the worker stays until its process has ended: stop() waits for that
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(std::exchange(open_, 0)));
  // The job may end in one of these.
  const auto alive = alive_;
  for (const auto& [number, awaited] : std::exchange(awaited_, {})) {
    if (*alive) events_.on_added(awaited.rank, awaited.id, lost_);
  }
  if (!*alive) return;
  for (const auto& [number, operation] : std::exchange(operations_, {})) {
    if (*alive) events_.on_ended(operation.process_set, operation.seq, lost_);
  }
}

void DeviceJob::stop(std::function<void()> ended) {
  operations_.clear();
  awaited_.clear();
  if (lost_.is_ok()) lost_ = {Code::kShutDown, "the job is over"};
  if (!worker_) {
    boost::asio::post(loop_, std::move(ended));
    return;
  }
  worker_->stop([&loop = loop_, ended = std::move(ended)]() mutable {
    boost::asio::post(loop, std::move(ended));
  });
  ranks_.clear();
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(std::exchange(open_, 0)));
}

}  // namespace rueda::engine
