// Tensors in device memory. Ranks and the GPU worker wait for each other by counters
// (device/counters.h); these operations end by completions like all others.
//
// An operation that a stream has been told to wait for holds back later submissions until it has
// ended: their inputs may come after it on the stream, and if both shared a batch, each would wait
// for the other. The submitting call returns at once, and the daemon sees the submission later.
#include <algorithm>
#include <cstring>
#include <utility>

#include <signal.h>

#include "client/src/session/session.h"
#include "daemon/base/dtype.h"

namespace rueda::client {
namespace {

Status not_in_flight(rueda_handle id) {
  return {Code::kInvalidArgument, "handle " + std::to_string(id) + " is not in flight"};
}

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

Status Session::open_device(uint64_t address) {
  const std::lock_guard once(device_mutex_);
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
  const Result<uint32_t> shared = link_.request(RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory),
                                                counters->memfd(), kDeviceTimeoutMs);
  counters->close_memfd();
  if (!shared.is_ok()) return shared.status();
  auto memories = std::make_unique<DeviceMemories>(*driver.value(), device_registrar(),
                                                   [this](const Status& why) { say_staged(why); });
  memories->announce_frees(device_frees_are_announced_);
  std::unique_ptr<StagedCopies> staged = make_staged_copies(*driver.value(), memory);
  const Lock lock = link_.lock();
  device_memories_ = std::move(memories);
  staged_copies_ = std::move(staged);
  counters_ = &DeviceCounters::keep(std::move(counters));
  return Status::ok();
}

DeviceMemories::Registrar Session::device_registrar() {
  return {
      .add =
          [this](const rueda_abi_device_memory& body, int fd) {
            return link_.request(RUEDA_ABI_DEVICE_ADD, &body, sizeof(body), fd, kDeviceTimeoutMs);
          },
      .join =
          [this](std::span<const uint32_t> ids) {
            rueda_abi_device_join body{};
            body.count = static_cast<uint32_t>(ids.size());
            std::copy(ids.begin(), ids.end(), body.memory_ids);
            return link_.request(RUEDA_ABI_DEVICE_JOIN, &body, sizeof(body), -1, kDeviceTimeoutMs);
          },
      .remove = [this](uint32_t id) { return remove_device_memory(id); },
      .check_unused = [this](uint64_t begin,
                             uint64_t end) { return check_device_unused(begin, end); }};
}

Status Session::remove_device_memory(uint32_t id) {
  const rueda_abi_device_remove body{.memory_id = id, .reserved = 0};
  return link_.request(RUEDA_ABI_DEVICE_REMOVE, &body, sizeof(body), -1).status();
}

Status Session::prepare_on_device(const TensorRequest& request, Operation& operation,
                                  std::unique_lock<std::mutex>& turn) {
  const Result<uint32_t> id = interned_.id_of(request.descriptor);
  if (!id.is_ok()) return id.status();
  operation.holds_tensor = operation.handle->holds_tensors = true;
  operation.bytes = request.bytes();
  operation.is_on_device = true;
  rueda_abi_submission& record = operation.record;
  record.tensor_id = id.value();
  record.priority = request.priority;
  bool is_staged = false;
  const auto locate = [&](size_t side, const std::byte* data, size_t bytes, uint32_t& memory,
                          uint64_t& offset) -> Status {
    if (bytes == 0) return Status::ok();
    operation.on_device[side] = {data, bytes};
    Result<DeviceMemories::Place> place = device_memories_->locate(address_of(data), bytes);
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
  status =
      locate(1, request.output, request.output_bytes, record.output_arena, record.output_offset);
  if (!status.is_ok() || !is_staged) return status;
  if (!turn.owns_lock()) turn.lock();
  return stage_on_device(request, operation);
}

Result<rueda_handle> Session::submit_on_device(std::vector<TensorRequest> requests, void* stream) {
  if (Status status = check_group_size(requests); !status.is_ok()) return status;
  for (TensorRequest& request : requests) {
    request.descriptor.memory = static_cast<uint32_t>(MemorySpace::kDevice);
    const void* const some = request.input_bytes > 0 ? request.input : request.output;
    if (Status status = open_device(address_of(some)); !status.is_ok()) return status;
    if (stream == RUEDA_NO_STREAM || &request != &requests.front()) continue;
    const Status status = counters_->check_stream({stream, address_of(some)});
    if (!status.is_ok()) {
      return Status{status.code(),
                    "tensor \"" + std::string(request.name()) + "\": " + status.message()};
    }
  }
  Lock lock = link_.lock();
  Handle& handle = handles_.take(requests.size());
  lock.unlock();
  {
    std::unique_lock turn(staging_mutex_, std::defer_lock);
    for (size_t i = 0; i < requests.size(); ++i) {
      Status status = prepare_on_device(requests[i], handle.operations[i], turn);
      if (!status.is_ok()) return refuse(handle, std::move(status));
    }
  }
  lock.lock();
  if (Status reason = wait_for_room(lock, requests.size()); !reason.is_ok()) {
    lock.unlock();
    return refuse(handle, std::move(reason));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    handle.operations[i].name = handles_.kept_name(requests[i].name());
  }
  take_tickets_locked(handle);
  lock.unlock();
  // A stream with much work may block the calling thread: other threads must not wait for that.
  const Status announced = announce(handle, stream);
  lock.lock();
  if (!announced.is_ok()) {
    take_back_locked(handle);
    lock.unlock();
    return refuse(handle, announced);
  }
  device_submissions_ += requests.size();
  for (const Operation& operation : handle.operations) {
    if (operation.staged) ++staged_submissions_;
  }
  // A submission whose input is ready waits for no stream.
  const bool is_held_back =
      !stream_waits_.empty() && (stream != RUEDA_NO_STREAM || repeats_waited_locked(handle));
  if (link_.over()) return handle.id;
  if (is_held_back) {
    held_back_.push_back({&handle, all_stream_waits_});
  } else {
    link_.submit(handle);
  }
  return handle.id;
}

bool Session::repeats_waited_locked(const Handle& handle) {
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

void Session::show_held_back_locked() {
  const auto may_be_shown = [this] {
    return stream_waits_.empty() || *stream_waits_.begin() > held_back_.front().behind;
  };
  while (!held_back_.empty() && may_be_shown()) {
    Handle& handle = *held_back_.front().handle;
    held_back_.pop_front();
    link_.submit(handle);
  }
}

uint64_t Session::memory_of(const Operation& operation) {
  const auto& [input, output] = operation.on_device;
  return address_of(input.empty() ? output.data() : input.data());
}

Status Session::announce(Handle& handle, void* stream) {
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

void Session::take_back_locked(Handle& handle) {
  for (Operation& operation : handle.operations) {
    if (handles_.end(operation.record.ticket) != nullptr) end_on_device_locked(operation);
  }
}

void Session::end_on_device_locked(Operation& operation) {
  operation.joins = {};
  const uint64_t ticket = operation.record.ticket;
  counters_->release(ticket);
  if (!counters_->is_announced(ticket)) unread_.push_back(ticket);
  if (operation.stream_wait == 0) return;
  stream_waits_.erase(std::exchange(operation.stream_wait, 0));
  if (stream_waits_.empty()) watch_changed_.notify_all();
  show_held_back_locked();
}

bool Session::is_unread_locked(uint64_t ticket) {
  if (unread_.empty()) return false;
  std::erase_if(unread_, [this](uint64_t old) { return counters_->is_announced(old); });
  return std::any_of(unread_.begin(), unread_.end(), [&](uint64_t old) {
    return ((old ^ ticket) & (handles_.capacity() - 1)) == 0;
  });
}

// Called without the lock, which must not be held while the driver is asked.
Status Session::check_stream_of(rueda_handle id, void* stream) {
  uint64_t memory = 0;
  {
    const Lock lock = link_.lock();
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

Status Session::wait_on_stream(rueda_handle id, void* stream) {
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
    const Lock lock = link_.lock();
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
    if (is_in_flight && !watchdog_.joinable()) {
      // Signals of the application are for its own threads.
      sigset_t all;
      sigset_t before;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
      watchdog_ = std::thread([this] { watch_streams(); });
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
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

void Session::watch_streams() {
  Lock lock = link_.lock();
  while (!watchdog_stops_) {
    if (stream_waits_.empty()) {
      watch_changed_.wait(lock);
    } else {
      link_.wait_until(
          lock, [this] { return watchdog_stops_ || stream_waits_.empty(); }, std::nullopt);
    }
  }
}

const Operation* Session::user_of_locked(uint64_t begin, uint64_t end) const {
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

Status Session::check_device_unused(uint64_t begin, uint64_t end) {
  Lock lock = link_.lock();
  link_.drain_completions();
  // A stream may have seen the end of an operation before its completion arrives: the completion is
  // on its way.
  const auto is_ending = [&] {
    const Operation* const user = user_of_locked(begin, end);
    return user != nullptr && !user->is_done && counters_->is_done(user->record.ticket);
  };
  if (is_ending()) {
    link_.wait_until(
        lock, [&] { return link_.over() || !is_ending(); },
        steady_now_ms() + DaemonLink::kRequestTimeoutMs);
  }
  const Operation* const user = user_of_locked(begin, end);
  if (user == nullptr) return Status::ok();
  return {Code::kInvalidArgument, "device memory was freed while tensor \"" +
                                      std::string(user->name) +
                                      "\" in it is in flight, or its result is yet to come "
                                      "there: wait for its handle before"};
}

Status Session::forget_device_memory(const void* memory) {
  {
    const std::lock_guard once(device_mutex_);
    if (counters_ == nullptr) return Status::ok();
  }
  return device_memories_->forget(address_of(memory));
}

void Session::announce_device_frees(bool are_announced) {
  const std::lock_guard once(device_mutex_);
  device_frees_are_announced_ = are_announced;
  if (counters_ != nullptr) device_memories_->announce_frees(are_announced);
}

rueda_device_stats Session::device_stats() const {
  rueda_device_stats stats{};
  const DeviceMemories* memories = nullptr;
  {
    const Lock lock = link_.lock();
    stats.submissions = device_submissions_;
    stats.stream_waits = all_stream_waits_;
    stats.staged_submissions = staged_submissions_;
    memories = device_memories_.get();
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

}  // namespace rueda::client
