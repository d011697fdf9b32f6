#include "daemon/engine/device/device_job.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

gpu::MemoryKind kind_of(rueda_abi_device_kind kind) {
  switch (kind) {
    case RUEDA_ABI_DEVICE_IPC: return gpu::MemoryKind::kIpc;
    case RUEDA_ABI_DEVICE_FD: return gpu::MemoryKind::kFd;
    case RUEDA_ABI_DEVICE_COUNTERS: return gpu::MemoryKind::kHost;
    case RUEDA_ABI_DEVICE_STAGING: return gpu::MemoryKind::kMapped;
  }
  return gpu::MemoryKind::kHost;
}

}  // namespace

DeviceJob::DeviceJob(boost::asio::io_context& loop, observe::Metrics& metrics,
                     DeviceJobOptions options, OnAdded on_added)
    : loop_(loop),
      metrics_(metrics),
      options_(std::move(options)),
      on_added_(std::move(on_added)) {}

DeviceJob::~DeviceJob() {
  lifetime_.end();
  ranks_.clear();
  count_staged_clients();
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(open_));
}

Status DeviceJob::start(const std::array<uint8_t, 16>& device) {
  GpuWorkerOptions options;
  options.who = options_.who;
  options.fork_server = options_.fork_server;
  options.uuid = device;
  options.timeout_ms = options_.timeout_ms;
  // Staging that grows is there twice for a while.
  options.memory_limit_bytes = 2 * options_.max_staging_bytes;
  GpuWorkerEvents events;
  events.on_memory_added = [this](uint32_t memory, const Status& status) {
    on_memory_added(memory, status);
  };
  events.on_exported = [this](uint32_t memory, const Result<GpuWorkerEvents::Exported>& exported) {
    on_exported(memory, exported);
  };
  events.on_ended = [this](uint64_t number, const Status& status) { on_ended(number, status); };
  events.on_id_made = [this](uint32_t communicator, const Result<gpu::CommunicatorId>& id) {
    if (auto made = ids_.extract(communicator)) made.mapped()(id);
  };
  events.on_lost = [this](const Status& why) { on_lost(why); };
  auto started = GpuWorker::start(loop_, metrics_, std::move(options), std::move(events));
  if (!started.is_ok()) return started.status();
  worker_ = std::move(started).value();
  return Status::ok();
}

void DeviceJob::add(LocalRank rank, session::DeviceMemory memory) {
  if (!worker_ && lost_.is_ok()) lost_ = start(memory.device);
  if (!lost_.is_ok()) return on_added_(rank, memory.id, lost_);
  const uint32_t number = ++last_number_;
  const bool is_counters = memory.kind == RUEDA_ABI_DEVICE_COUNTERS;
  ranks_[rank.value].memories[memory.id] = {.number = number,
                                            .is_staging = memory.kind == RUEDA_ABI_DEVICE_STAGING};
  awaited_[number] = {rank, memory.id, is_counters};
  if (!memory.pieces.empty()) return join(rank, number, memory);
  // The client's own descriptor is closed last, and not here (session/users/doors.h).
  UniqueFd sent;
  std::shared_ptr<void> held;
  if (memory.fd.is_open()) {
    sent = UniqueFd(::fcntl(memory.fd.get(), F_DUPFD_CLOEXEC, 0));
    held = std::make_shared<session::ForeignFd>(std::move(memory.fd));
  }
  worker_->add_memory({.memory = number,
                       .kind = kind_of(memory.kind),
                       .bytes = memory.bytes,
                       .uuid = memory.device,
                       .ipc = memory.ipc},
                      std::move(sent), std::move(held));
}

void DeviceJob::join(LocalRank rank, uint32_t number, const session::DeviceMemory& memory) {
  std::vector<uint32_t> pieces;
  for (const uint32_t id : memory.pieces) pieces.push_back(number_of(rank, id));
  worker_->join_memory(number, pieces);
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
  if (number == staging_host_ || number == staging_scratch_) {
    return on_staging_added(number, status);
  }
  if (mapped_.contains(number)) {
    if (!status.is_ok()) {
      mapped_.erase(number);
      spdlog::error("{} cannot add up what arrives from other nodes: {}", options_.who,
                    status.message());
    }
    return;
  }
  const auto owner = ranks_.find(awaited.rank.value);
  const bool is_wanted = owner != ranks_.end() && owner->second.memories.contains(awaited.id) &&
                         owner->second.memories.at(awaited.id).number == number;
  if (!is_wanted) {  // The rank's process has gone meanwhile.
    if (status.is_ok()) forget(number);
    return;
  }
  Rank& rank = owner->second;
  if (status.is_ok()) {
    rank.memories[awaited.id].is_answered = true;
    if (awaited.is_counters) rank.counters = number;
  } else {
    rank.memories.erase(awaited.id);
    log_refused(awaited.rank, status);
  }
  count_staged_clients();
  on_added_(awaited.rank, awaited.id, status);
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
  if (found == memories.end()) return;  // It is void, because the worker is lost.
  forget(found->second.number);
  memories.erase(found);
  count_staged_clients();
}

void DeviceJob::log_refused(LocalRank rank, const Status& status) {
  if (status.code() != Code::kPermission || std::exchange(ranks_[rank.value].is_refused, true)) {
    return;
  }
  spdlog::warn("{}: device memory of local rank {} goes through host memory, which is slower: {}",
               options_.who, rank.value, status.message());
}

void DeviceJob::count_staged_clients() {
  const auto is_staged = [](const auto& entry) {
    const auto& memories = entry.second.memories;
    return std::any_of(memories.begin(), memories.end(), [](const auto& memory) {
      return memory.second.is_staging && memory.second.is_answered;
    });
  };
  const auto now = std::count_if(ranks_.begin(), ranks_.end(), is_staged);
  metrics_.daemon().gpu_staged_clients.Increment(static_cast<double>(now - staged_clients_));
  staged_clients_ = now;
}

void DeviceJob::drop(LocalRank rank) {
  const auto found = ranks_.find(rank.value);
  if (found == ranks_.end()) return;
  for (const auto& [id, memory] : found->second.memories) {
    if (memory.is_answered) forget(memory.number);
  }
  ranks_.erase(found);
  count_staged_clients();
}

uint32_t DeviceJob::number_of(LocalRank rank, uint32_t id) const {
  const auto owner = ranks_.find(rank.value);
  if (owner == ranks_.end()) return 0;
  const auto found = owner->second.memories.find(id);
  return found == owner->second.memories.end() ? 0 : found->second.number;
}

bool DeviceJob::is_staging(LocalRank rank, uint32_t id) const {
  const auto owner = ranks_.find(rank.value);
  if (owner == ranks_.end()) return false;
  const auto found = owner->second.memories.find(id);
  return found != owner->second.memories.end() && found->second.is_staging;
}

uint32_t DeviceJob::counters_of(LocalRank rank) const {
  const auto owner = ranks_.find(rank.value);
  return owner == ranks_.end() ? 0 : owner->second.counters;
}

void DeviceJob::run(std::vector<gpu::WorkerOperation> operations, Ended ended) {
  auto under_way = std::make_shared<UnderWay>(UnderWay{operations.size(), std::move(ended)});
  Status failed = lost_;
  for (gpu::WorkerOperation& operation : operations) {
    operation.number = ++last_operation_;
    if (failed.is_ok()) failed = worker_->run(operation);
    if (!failed.is_ok()) break;
    operations_[operation.number] = under_way;
  }
  if (failed.is_ok()) return;
  boost::asio::post(loop_, lifetime_.guard([under_way, failed] {
    if (under_way->ended) std::exchange(under_way->ended, nullptr)(failed);
  }));
}

void DeviceJob::on_ended(uint64_t number, const Status& status) {
  const auto found = operations_.find(number);
  RUEDA_CHECK(found != operations_.end());
  const std::shared_ptr<UnderWay> under_way = found->second;
  operations_.erase(found);
  --under_way->left;
  if (!under_way->ended || (status.is_ok() && under_way->left > 0)) return;
  std::exchange(under_way->ended, nullptr)(status);
}

// --- What goes between nodes.

void DeviceJob::stage(uint64_t bytes, Through through, Staged there) {
  wanted_.push_back({bytes, through, std::move(there)});
  if (wanted_.size() == 1) serve_staging();
}

void DeviceJob::unstage(const StagedRow& row) {
  if (!staging_) return;  // It went with the worker.
  staging_->give_back(row.offset);
  serve_staging();
}

void DeviceJob::serve_staging() {
  const Lifetime::Watch life = lifetime_.watch();
  while (life.lasts() && !wanted_.empty() && staging_unanswered_ == 0) {
    const Wanted& next = wanted_.front();
    const bool is_good = staging_ && (staging_has_host_ || next.through == Through::kScratch);
    Result<StagedRow> row = StagedRow{staging_scratch_, staging_host_};
    if (!lost_.is_ok()) {
      row = lost_;
    } else if (is_good && next.bytes <= staging_->bytes()) {
      const std::optional<uint64_t> offset = staging_->take(next.bytes);
      if (!offset) return;
      row.value().offset = *offset;
      row.value().memory = staging_->at(*offset);
      row.value().exported = exported_;
    } else {
      if (staging_ && !staging_->is_unused()) return;
      const Status grown = grow_staging(next);
      if (grown.is_ok()) return;  // on_staging_added() goes on.
      row = grown;
    }
    const Staged there = std::move(wanted_.front().there);
    wanted_.pop_front();
    there(std::move(row));
  }
}

Status DeviceJob::grow_staging(const Wanted& next) {
  constexpr uint64_t kLeastBytes = 64 << 20;
  if (next.bytes > options_.max_staging_bytes) {
    return {Code::kResourceExhausted,
            "tensors of " + std::to_string(next.bytes) +
                " bytes in device memory are to go to other nodes at once, and " + options_.who +
                " may use " + std::to_string(options_.max_staging_bytes) +
                " bytes of host memory, and as many of the device, for that: raise "
                "--gpu-staging-bytes, or hand over smaller tensors"};
  }
  // There is room for two batches of a kind, so that one is filled while the other is sent.
  uint64_t wanted = kLeastBytes;
  while (wanted < 2 * next.bytes) wanted *= 2;
  wanted = std::min(wanted, options_.max_staging_bytes);
  if (staging_) wanted = std::max(wanted, staging_->bytes());
  Result<std::unique_ptr<DeviceStaging>> made = DeviceStaging::make(wanted);
  if (!made.is_ok()) return made.status();
  const bool has_host = staging_has_host_ || next.through == Through::kScratchAndHost;
  drop_staging();
  staging_ = std::move(made).value();
  staging_has_host_ = has_host;
  if (has_host) {
    staging_host_ = add_staging({.kind = gpu::MemoryKind::kHost, .bytes = wanted, .ipc = {}},
                                staging_->duplicate());
  }
  staging_scratch_ =
      add_staging({.kind = gpu::MemoryKind::kScratch, .bytes = wanted, .ipc = {}}, UniqueFd());
  return Status::ok();
}

uint32_t DeviceJob::add_staging(gpu::AddMemoryBody memory, UniqueFd fd) {
  memory.memory = ++last_number_;
  awaited_[memory.memory] = {};
  ++staging_unanswered_;
  worker_->add_memory(memory, std::move(fd));
  return memory.memory;
}

void DeviceJob::drop_staging() {
  if (!staging_) return;
  if (staging_host_ != 0) forget(staging_host_);
  if (staging_scratch_ != 0 && !exported_) forget(staging_scratch_);
  exported_.reset();
  staging_host_ = staging_scratch_ = 0;
  staging_has_host_ = false;
  staging_.reset();
}

void DeviceJob::on_staging_added(uint32_t number, const Status& status) {
  if (!status.is_ok()) {
    staging_failed_ = status;
    (number == staging_host_ ? staging_host_ : staging_scratch_) = 0;
  }
  if (--staging_unanswered_ > 0) return;
  if (!staging_failed_.is_ok()) {
    const Status failed = std::exchange(staging_failed_, Status::ok());
    drop_staging();
    const Staged there = std::move(wanted_.front().there);
    wanted_.pop_front();
    const Lifetime::Watch life = lifetime_.watch();
    there(failed);
    if (!life.lasts()) return;
  }
  serve_staging();
}

void DeviceJob::on_exported(uint32_t number, const Result<GpuWorkerEvents::Exported>& exported) {
  if (!options_.is_direct || number != staging_scratch_) return;
  if (!exported.is_ok()) {
    if (std::exchange(is_copying_told_, true)) return;
    return spdlog::info(
        "{}: no network card can read its memory, so that what goes to other nodes "
        "is copied to host memory first: {}",
        options_.who, exported.status().message());
  }
  // The last holder may be a data loop.
  auto forget_it = [this, number] { forget(number); };
  exported_ = GpuWorkerEvents::Exported(
      exported.value().get(), [&loop = loop_, own = exported.value(),
                               over = lifetime_.guard(forget_it)](const gpu::DmaBuf*) mutable {
        own.reset();
        boost::asio::post(loop, over);
      });
}

uint32_t DeviceJob::map(const StagingFile& file) {
  const uint32_t number = ++last_number_;
  if (!lost_.is_ok()) return number;
  mapped_.insert(number);
  awaited_[number] = {};
  worker_->add_memory(
      {.memory = number, .kind = gpu::MemoryKind::kMapped, .bytes = file.bytes, .ipc = {}},
      UniqueFd(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0)));
  return number;
}

void DeviceJob::unmap(uint32_t number) {
  if (mapped_.erase(number) == 1 && !awaited_.contains(number)) forget(number);
}

// --- Communicators.

void DeviceJob::make_communicator_id(uint32_t communicator, OnId made) {
  if (lost_.is_ok()) {
    ids_[communicator] = std::move(made);
    return worker_->make_communicator_id(communicator);
  }
  boost::asio::post(loop_, lifetime_.guard([made = std::move(made), lost = lost_] { made(lost); }));
}

void DeviceJob::connect(const gpu::ConnectBody& communicator) {
  if (lost_.is_ok()) worker_->connect(communicator);
}

void DeviceJob::disconnect(uint32_t communicator) {
  if (lost_.is_ok()) worker_->disconnect(communicator);
}

void DeviceJob::on_lost(const Status& why) {
  lost_ = {why.code(), why.message() +
                           "; what this job has in device memory cannot be reduced any more: start "
                           "the job again, or hand over host memory"};
  ranks_.clear();  // The worker stays until its process has ended, which stop() waits for.
  count_staged_clients();
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(std::exchange(open_, 0)));
  // The job may end in one of these calls.
  const Lifetime::Watch life = lifetime_.watch();
  for (const auto& [number, awaited] : std::exchange(awaited_, {})) {
    const bool is_own =
        number == staging_host_ || number == staging_scratch_ || mapped_.contains(number);
    if (life.lasts() && !is_own) on_added_(awaited.rank, awaited.id, lost_);
  }
  if (!life.lasts()) return;
  for (const auto& [number, under_way] : std::exchange(operations_, {})) {
    if (life.lasts() && under_way->ended) std::exchange(under_way->ended, nullptr)(lost_);
  }
  for (const auto& [number, made] : std::exchange(ids_, {})) {
    if (life.lasts()) made(lost_);
  }
  if (!life.lasts()) return;
  // The memory itself stays, because the data plane may be using it.
  staging_unanswered_ = 0;
  serve_staging();
}

void DeviceJob::stop(std::function<void()> ended) {
  operations_.clear();
  awaited_.clear();
  wanted_.clear();
  ids_.clear();
  if (lost_.is_ok()) lost_ = {Code::kShutDown, "the job is over"};
  if (!worker_) {
    boost::asio::post(loop_, std::move(ended));
    return;
  }
  worker_->stop([&loop = loop_, ended = std::move(ended)]() mutable {
    boost::asio::post(loop, std::move(ended));
  });
  ranks_.clear();
  count_staged_clients();
  metrics_.daemon().gpu_memories.Decrement(static_cast<double>(std::exchange(open_, 0)));
}

}  // namespace rueda::engine
