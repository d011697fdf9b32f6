#include "client/src/session/device_session.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <signal.h>

#include "client/src/device/allocator_hook.h"
#include "daemon/base/dtype.h"

namespace rueda::client {
namespace {

// The interval at which a thread that waits for room looks at what streams have done: nothing
// signals it.
constexpr TicksMs kLookMs = 1;

Status not_in_flight(rueda_handle id) {
  return {Code::kInvalidArgument, "handle " + std::to_string(id) + " is not in flight"};
}

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// Returns an address of the operation's memory, or 0 if the tensor is empty.
uint64_t memory_of(const Operation& operation) {
  const auto& [input, output] = operation.on_device;
  return address_of(input.empty() ? output.data() : input.data());
}

}  // namespace

Status DeviceSession::open(uint64_t address) {
  const MutexLock once(mutex_);
  if (counters_ != nullptr) return Status::ok();
  const Result<DeviceDriver*> driver = cuda_driver();
  if (!driver.is_ok()) return driver.status();
  const Result<DeviceAllocation> found = driver.value()->find(address);
  if (!found.is_ok()) return found.status();
  auto made = DeviceCounters::create(*driver.value(), handles_.capacity());
  if (!made.is_ok()) return made.status();
  std::unique_ptr<DeviceCounters> counters = std::move(made).value();
  rueda_abi_device_memory memory{};
  memory.kind = RUEDA_ABI_DEVICE_COUNTERS;
  memory.bytes = counters->bytes();
  std::memcpy(memory.device, found.value().device.data(), sizeof(memory.device));
  const Result<uint32_t> shared =
      link_.request(RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory), counters->memfd(), kTimeoutMs);
  counters->close_memfd();
  if (!shared.is_ok()) return shared.status();
  auto memories = std::make_unique<DeviceMemories>(*driver.value(), registrar(),
                                                   [this](const Status& why) { say_staged(why); });
  memories->announce_frees(are_frees_announced_);
  std::unique_ptr<StagedCopies> staged = make_staged_copies(*driver.value(), memory);
  const MutexLock lock(link_.mutex());
  memories_ = std::move(memories);
  staged_copies_ = std::move(staged);
  counters_ = &DeviceCounters::keep(std::move(counters));
  return Status::ok();
}

DeviceMemories::Registrar DeviceSession::registrar() {
  return {
      .add =
          [this](const rueda_abi_device_memory& body, int fd) {
            return link_.request(RUEDA_ABI_DEVICE_ADD, &body, sizeof(body), fd, kTimeoutMs);
          },
      .join =
          [this](std::span<const uint32_t> ids) {
            rueda_abi_device_join body{};
            body.count = static_cast<uint32_t>(ids.size());
            std::copy(ids.begin(), ids.end(), body.memory_ids);
            return link_.request(RUEDA_ABI_DEVICE_JOIN, &body, sizeof(body), -1, kTimeoutMs);
          },
      .remove = [this](uint32_t id) { return remove_memory(id); },
      .check_unused = [this](uint64_t begin, uint64_t end) { return check_unused(begin, end); }};
}

Status DeviceSession::remove_memory(uint32_t id) {
  const rueda_abi_device_remove body{.memory_id = id, .reserved = 0};
  return link_.request(RUEDA_ABI_DEVICE_REMOVE, &body, sizeof(body), -1).status();
}

Status DeviceSession::prepare_one(const TensorRequest& request, Operation& operation,
                                  bool& is_staged) {
  const Result<uint32_t> id = interned_.id_of(request.descriptor);
  if (!id.is_ok()) return id.status();
  operation.holds_tensor = operation.handle->holds_tensors = true;
  operation.bytes = request.bytes();
  operation.is_on_device = true;
  rueda_abi_submission& record = operation.record;
  record.tensor_id = id.value();
  record.priority = request.priority;
  const auto locate = [&](size_t side, const std::byte* data, size_t bytes, uint32_t& memory,
                          uint64_t& offset) -> Status {
    if (bytes == 0) return Status::ok();
    operation.on_device[side] = {data, bytes};
    Result<DeviceMemories::Place> place = memories_->locate(address_of(data), bytes);
    if (!place.is_ok()) {
      return {place.status().code(),
              "tensor \"" + std::string(request.name()) + "\": " + place.status().message()};
    }
    if (place.value().offset % request.element_bytes != 0) {
      return {Code::kInvalidArgument, "tensor \"" + std::string(request.name()) +
                                          "\" is not aligned to its element's size"};
    }
    is_staged |= place.value().is_staged;
    memory = place.value().memory_id;
    offset = place.value().offset;
    operation.joins[side] = std::move(place).value().hold;
    return Status::ok();
  };
  Status status =
      locate(0, request.input, request.input_bytes, record.input_arena, record.input_offset);
  if (!status.is_ok()) return status;
  return locate(1, request.output, request.output_bytes, record.output_arena, record.output_offset);
}

Status DeviceSession::open_for(std::vector<TensorRequest>& requests, void* stream) {
  for (TensorRequest& request : requests) {
    request.descriptor.memory = static_cast<uint32_t>(MemorySpace::kDevice);
    const void* const some = request.input_bytes > 0 ? request.input : request.output;
    if (Status status = open(address_of(some)); !status.is_ok()) return status;
    if (stream == RUEDA_NO_STREAM || &request != &requests.front()) continue;
    const Status status = counters_->check_stream({stream, address_of(some)});
    if (!status.is_ok()) {
      return {status.code(), "tensor \"" + std::string(request.name()) + "\": " + status.message()};
    }
  }
  return Status::ok();
}

Status DeviceSession::prepare(const std::vector<TensorRequest>& requests, Handle& handle) {
  std::vector<size_t> staged;
  for (size_t i = 0; i < requests.size(); ++i) {
    bool is_staged = false;
    Status status = prepare_one(requests[i], handle.operations[i], is_staged);
    if (!status.is_ok()) return status;
    if (is_staged) staged.push_back(i);
  }
  if (staged.empty()) return Status::ok();
  const MutexLock turn(staging_mutex_);
  blocks_of_turn_ = 0;
  for (const size_t i : staged) {
    if (Status status = stage(requests[i], handle.operations[i]); !status.is_ok()) return status;
  }
  return Status::ok();
}

void DeviceSession::submit(Handle& handle, void* stream) {
  submissions_ += handle.operations.size();
  for (const Operation& operation : handle.operations) {
    if (operation.staged) ++staged_submissions_;
  }
  if (link_.over()) return;
  // A submission whose input is ready waits for no stream.
  if (stream_waits_.empty() || (stream == RUEDA_NO_STREAM && !repeats_waited(handle))) {
    link_.submit(handle);
  } else {
    held_back_.push_back({&handle, all_stream_waits_});
  }
}

bool DeviceSession::hold_back_behind(Handle& handle) {
  if (held_back_.empty()) return false;
  held_back_.push_back({&handle, held_back_.back().behind});
  return true;
}

bool DeviceSession::repeats_waited(const Handle& handle) const {
  // Names are interned, so equal pointers mean equal names.
  const auto is_waited = [](const Operation* other, const Operation& own) {
    return other != nullptr && other != &own && other->stream_wait != 0 &&
           other->name.data() == own.name.data();
  };
  for (const Operation& own : handle.operations) {
    for (const Operation* other : handles_.in_flight()) {
      if (is_waited(other, own)) return true;
    }
  }
  return false;
}

void DeviceSession::show_held_back() {
  const auto may_be_shown = [this]() RUEDA_REQUIRES(session_mutex) {
    return stream_waits_.empty() || *stream_waits_.begin() > held_back_.front().behind;
  };
  while (!held_back_.empty() && may_be_shown()) {
    Handle& handle = *held_back_.front().handle;
    held_back_.pop_front();
    link_.submit(handle);
  }
}

Status DeviceSession::announce(Handle& handle, void* stream) {
  Status failed;
  for (Operation& operation : handle.operations) {
    const uint64_t ticket = operation.record.ticket;
    void* on = stream;
    const std::span<const std::byte> input = operation.on_device[0];
    if (operation.staged && !input.empty() && failed.is_ok()) {
      failed = staged_copies_->copy_in(*operation.staged, address_of(input.data()), input.size(),
                                       stream);
      if (failed.is_ok()) on = staged_copies_->stream_of(stream).value();
    }
    // After an error no stream will announce the ticket, and its place is needed again.
    if (on == RUEDA_NO_STREAM || !failed.is_ok()) {
      counters_->announce_now(ticket);
    } else {
      failed = counters_->announce({on, memory_of(operation)}, ticket);
      if (!failed.is_ok()) counters_->announce_now(ticket);
    }
  }
  return failed;
}

void DeviceSession::take_back(Handle& handle) {
  for (Operation& operation : handle.operations) {
    if (handles_.end(operation.record.ticket) != nullptr) end(operation);
  }
}

void DeviceSession::end(Operation& operation) {
  operation.joins = {};
  const uint64_t ticket = operation.record.ticket;
  counters_->release(ticket);
  if (!counters_->is_announced(ticket)) unread_.push_back(ticket);
  if (operation.stream_wait == 0) return;
  stream_waits_.erase(std::exchange(operation.stream_wait, 0));
  if (stream_waits_.empty()) watch_changed_.notify_all();
  show_held_back();
}

bool DeviceSession::is_unread(uint64_t ticket) {
  if (unread_.empty()) return false;
  std::erase_if(unread_, [this](uint64_t old) { return counters_->is_announced(old); });
  return std::any_of(unread_.begin(), unread_.end(), [&](uint64_t old) {
    return ((old ^ ticket) & (handles_.capacity() - 1)) == 0;
  });
}

// The mutex must not be held while the driver is asked.
Status DeviceSession::check_stream_of(rueda_handle id, void* stream) {
  uint64_t memory = 0;
  {
    const MutexLock lock(link_.mutex());
    const Handle* const handle = handles_.find(id);
    if (handle == nullptr) return not_in_flight(id);
    const Operation& first = handle->operations.front();
    if (!first.is_on_device) {
      return {Code::kInvalidArgument, "tensor \"" + std::string(first.name) +
                                          "\" is in host memory: wait for it by rueda_wait"};
    }
    memory = memory_of(first);
  }
  return counters_->check_stream({stream, memory});
}

Status DeviceSession::wait_on_stream(rueda_handle id, void* stream) {
  struct Wait {
    std::optional<uint64_t> ticket;  // nullopt: the operation has ended
    std::optional<StagedCopies::Block> staged;
    StagedCopies::Turn turn = 0;
    std::span<const std::byte> output;
    uint64_t memory = 0;
  };
  if (stream == RUEDA_NO_STREAM) return {Code::kInvalidArgument, "there is no stream to wait"};
  if (Status status = check_stream_of(id, stream); !status.is_ok()) return status;
  std::vector<Wait> waits;
  bool is_in_flight = false;
  bool is_to_be_finished = false;
  {
    const MutexLock lock(link_.mutex());
    Handle* const handle = handles_.find(id);
    if (handle == nullptr) return not_in_flight(id);
    for (Operation& operation : handle->operations) {
      Wait wait;
      wait.memory = memory_of(operation);
      if (operation.has_staged_result()) {
        wait.turn = operation.staged->claim_result();
        wait.staged = operation.staged;
        wait.output = operation.on_device[1];
      }
      is_to_be_finished |= operation.is_result_on_own_stream;
      if (!operation.is_done) wait.ticket = operation.record.ticket;
      if (!wait.ticket && !wait.staged) continue;
      waits.push_back(wait);
      if (operation.is_done) continue;
      is_in_flight = true;
      if (operation.stream_wait != 0) continue;
      operation.stream_wait = ++all_stream_waits_;
      stream_waits_.insert(operation.stream_wait);
    }
    if (is_in_flight && !watchdog_.joinable()) start_watchdog();
  }
  watch_changed_.notify_all();
  if (is_to_be_finished) {
    if (Status status = staged_copies_->finish(); !status.is_ok()) return status;
  }
  for (const Wait& wait : waits) {
    Status status;
    if (wait.ticket) status = counters_->wait({stream, wait.memory}, *wait.ticket);
    if (status.is_ok() && wait.staged) {
      status = staged_copies_->copy_out(*wait.staged, wait.turn, address_of(wait.output.data()),
                                        wait.output.size(), stream);
    }
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

void DeviceSession::start_watchdog() {
  // Signals of the application are for its own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  watchdog_ = std::thread([this] { watch_streams(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void DeviceSession::watch_streams() {
  MutexLock lock(link_.mutex());
  while (!watchdog_stops_) {
    if (stream_waits_.empty()) {
      watch_changed_.wait(lock);
    } else {
      link_.wait_until(
          lock,
          [this]()
              RUEDA_REQUIRES(session_mutex) { return watchdog_stops_ || stream_waits_.empty(); },
          std::nullopt);
    }
  }
}

void DeviceSession::stop() {
  std::thread watchdog;
  {
    const MutexLock lock(link_.mutex());
    if (!watchdog_.joinable()) return;
    watchdog = std::move(watchdog_);
    watchdog_stops_ = true;
    link_.end({Code::kShutDown, "Rueda has been shut down"});
  }
  watch_changed_.notify_all();
  link_.shut_down();  // wakes the watchdog, which may sleep on the socket
  watchdog.join();
}

const Operation* DeviceSession::user_of(uint64_t begin, uint64_t end) const {
  const auto lies_there = [&](std::span<const std::byte> memory) {
    const uint64_t first = address_of(memory.data());
    return !memory.empty() && first < end && begin < first + memory.size();
  };
  for (const Operation* operation : handles_.in_flight()) {
    if (operation == nullptr) continue;
    if (std::any_of(operation->on_device.begin(), operation->on_device.end(), lies_there)) {
      return operation;
    }
  }
  for (const auto& handle : handles_.all()) {
    if (handle->id == 0 || !handle->is_staged) continue;
    for (const Operation& operation : handle->operations) {
      if (operation.is_done && operation.has_staged_result() &&
          !operation.staged->is_result_claimed() && lies_there(operation.on_device[1])) {
        return &operation;
      }
    }
  }
  return nullptr;
}

Status DeviceSession::check_unused(uint64_t begin, uint64_t end) {
  MutexLock lock(link_.mutex());
  link_.drain_completions();
  // A stream may have seen the end of an operation before its completion arrives: the completion is
  // on its way.
  const auto is_ending = [&]() RUEDA_REQUIRES(session_mutex) {
    const Operation* const user = user_of(begin, end);
    return user != nullptr && !user->is_done && counters_->is_done(user->record.ticket);
  };
  if (is_ending()) {
    link_.wait_until(
        lock, [&]() RUEDA_REQUIRES(session_mutex) { return link_.over() || !is_ending(); },
        steady_now_ms() + DaemonLink::kRequestTimeoutMs);
  }
  const Operation* const user = user_of(begin, end);
  if (user == nullptr) return Status::ok();
  return {Code::kInvalidArgument, "device memory was freed while tensor \"" +
                                      std::string(user->name) +
                                      "\" in it is in flight, or its result is yet to come "
                                      "there: wait for its handle before"};
}

Status DeviceSession::forget(const void* memory) {
  {
    const MutexLock once(mutex_);
    if (counters_ == nullptr) return Status::ok();
  }
  return memories_->forget(address_of(memory));
}

void DeviceSession::announce_frees(bool are_announced) {
  const MutexLock once(mutex_);
  are_frees_announced_ = are_announced;
  if (counters_ != nullptr) memories_->announce_frees(are_announced);
}

Status DeviceSession::watch_frees(std::string_view library) { return watch_allocator(library); }

rueda_device_stats DeviceSession::stats() const {
  rueda_device_stats stats{};
  const DeviceMemories* memories = nullptr;
  {
    const MutexLock lock(link_.mutex());
    stats.submissions = submissions_;
    stats.stream_waits = all_stream_waits_;
    stats.staged_submissions = staged_submissions_;
    memories = memories_.get();
  }
  if (memories == nullptr) return stats;
  const DeviceMemories::Stats known = memories->stats();
  stats.cache_hits = known.hits;
  stats.cache_misses = known.misses;
  stats.recycled_addresses = known.recycled;
  stats.allocations = known.known;
  stats.buffer_checks = known.checks;
  return stats;
}

void DeviceSession::say_staged(const Status& why) const {
  std::fprintf(stderr,
               "rueda: rank %d: %s; tensors in such memory are copied to pinned host memory and "
               "back, which is slower. If this process and the daemon are in containers, let both "
               "have the host's PID and IPC namespaces (hostPID and hostIPC; --pid=host and "
               "--ipc=host)\n",
               link_.place().rank, why.message().c_str());
}

std::unique_ptr<StagedCopies> DeviceSession::make_staged_copies(
    DeviceDriver& driver, const rueda_abi_device_memory& counters) {
  StagedCopies::Registrar registrar{.add =
                                        [this, body = counters](int memfd, uint64_t bytes) mutable {
                                          body.kind = RUEDA_ABI_DEVICE_STAGING;
                                          body.bytes = bytes;
                                          return link_.request(RUEDA_ABI_DEVICE_ADD, &body,
                                                               sizeof(body), memfd, kTimeoutMs);
                                        },
                                    .remove = [this](uint32_t id) { return remove_memory(id); }};
  return std::make_unique<StagedCopies>(driver, std::move(registrar),
                                        static_cast<uint64_t>(config_.device_staging_bytes));
}

Status DeviceSession::stage(const TensorRequest& request, Operation& operation) {
  while (!operation.staged) {
    const bool is_alone = staged_copies_->taken() <= blocks_of_turn_;
    Result<std::optional<StagedCopies::Block>> block = staged_copies_->take(request.bytes());
    if (block.is_ok() && !block.value() && is_alone) {
      block =
          Status{Code::kResourceExhausted,
                 "its group is larger than the " + std::to_string(config_.device_staging_bytes) +
                     " bytes of host memory for device memory that the GPU worker cannot open: "
                     "raise RUEDA_DEVICE_STAGING_BYTES, or split the group"};
    }
    if (!block.is_ok()) {
      return {block.status().code(),
              "tensor \"" + std::string(request.name()) + "\": " + block.status().message()};
    }
    operation.staged = block.value();
    if (operation.staged) break;
    MutexLock lock(link_.mutex());
    if (link_.over()) return *link_.over();
    copy_out_ended();
    // Operations in flight may only end if the job leaves a locked schedule.
    if (handles_.in_flight_count() > 0)
      link_.set_waited_ticket(handles_.first_in_flight().record.ticket);
    link_.wait_until(
        lock, [this]() RUEDA_REQUIRES(session_mutex) { return link_.over().has_value(); },
        steady_now_ms() + kLookMs);
    link_.set_waited_ticket(0);
  }
  ++blocks_of_turn_;
  operation.handle->is_staged = true;
  rueda_abi_submission& record = operation.record;
  if (request.input_bytes > 0) {
    record.input_arena = operation.staged->memory_id();
    record.input_offset = operation.staged->offset();
  }
  if (request.output_bytes > 0) {
    record.output_arena = operation.staged->memory_id();
    record.output_offset = operation.staged->offset();
  }
  if (!request.writes_output) operation.on_device[1] = {};
  return Status::ok();
}

void DeviceSession::copy_out_ended() {
  for (const auto& handle : handles_.all()) {
    if (handle->id == 0 || handle->is_abandoned) continue;
    for (Operation& operation : handle->operations) {
      if (!operation.is_done || !operation.has_staged_result() ||
          operation.staged->is_result_claimed()) {
        continue;
      }
      const StagedCopies::Turn turn = operation.staged->claim_result();
      const std::span<const std::byte> output = operation.on_device[1];
      const Status status = staged_copies_->copy_out(*operation.staged, turn,
                                                     reinterpret_cast<uint64_t>(output.data()),
                                                     output.size(), RUEDA_NO_STREAM);
      operation.is_result_on_own_stream = true;
      if (!status.is_ok() && handle->error.is_ok()) handle->error = status;
      staged_copies_->give_back(*std::exchange(operation.staged, std::nullopt));
    }
  }
}

Status DeviceSession::copy_out(Handle& handle) {
  bool is_to_be_finished = false;
  Status failed;
  for (Operation& operation : handle.operations) {
    is_to_be_finished |= operation.is_result_on_own_stream;
    if (!operation.has_staged_result() || operation.staged->is_result_claimed()) continue;
    const std::span<const std::byte> output = operation.on_device[1];
    Status status = staged_copies_->copy_out(*operation.staged, operation.staged->claim_result(),
                                             reinterpret_cast<uint64_t>(output.data()),
                                             output.size(), RUEDA_NO_STREAM);
    if (failed.is_ok()) failed = std::move(status);
    is_to_be_finished = true;
  }
  if (!is_to_be_finished) return failed;
  Status finished = staged_copies_->finish();
  return failed.is_ok() ? finished : failed;
}

void DeviceSession::give_back(Operation& operation) {
  staged_copies_->give_back(*std::exchange(operation.staged, std::nullopt));
}

}  // namespace rueda::client
