#include "client/src/session/session.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/src/request/planned.h"
#include "client/src/session/host_staging.h"
#include "client/src/wire/errors.h"
#include "daemon/base/dtype.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::client {
namespace {

// The name under which changes of process sets are submitted.
constexpr const char* kProcessSets = "rueda.process_sets";

// This error and timed_out() are built out of line: wait() is on the path of each tensor.
[[gnu::cold]] Status unknown_handle(rueda_handle id) {
  return {Code::kInvalidArgument,
          "handle " + std::to_string(id) + " is not in flight; each handle may be waited for once"};
}

[[gnu::cold]] Status has_callback(rueda_handle id) {
  return {Code::kInvalidArgument, "handle " + std::to_string(id) +
                                      " has a callback, which is told of its end; a handle has one "
                                      "callback, or is waited for"};
}

// Has the daemon give an id to a descriptor; the counts of ranks, if there are any, come before it.
Result<uint32_t> intern(DaemonLink& link, const rueda_abi_intern& descriptor,
                        std::span<const int64_t> counts) {
  for (size_t at = 0; at < counts.size(); at += RUEDA_ABI_MAX_COUNTS) {
    rueda_abi_counts part{};
    part.count = static_cast<uint32_t>(std::min<size_t>(counts.size() - at, RUEDA_ABI_MAX_COUNTS));
    std::copy_n(counts.begin() + static_cast<std::ptrdiff_t>(at), part.count, part.counts);
    const Result<uint32_t> taken = link.request(RUEDA_ABI_COUNTS, &part, sizeof(part), -1);
    if (!taken.is_ok()) return taken;
  }
  return link.request(RUEDA_ABI_INTERN, &descriptor, sizeof(descriptor), -1);
}

// Asks for a change of process sets. Returns the id by which all ranks agree on it.
Result<uint32_t> ask_for_change(DaemonLink& link, const rueda_abi_process_set& change) {
  return link.request(RUEDA_ABI_PROCESS_SET, &change, sizeof(change), -1);
}

Status check_group_size(const std::vector<TensorRequest>& requests, const HandleTable& handles) {
  if (requests.size() <= handles.capacity()) return Status::ok();
  return {Code::kResourceExhausted,
          "a group of " + std::to_string(requests.size()) + " tensors (the first is \"" +
              std::string(requests[0].name()) + "\") is larger than the " +
              std::to_string(handles.capacity()) + " submissions that may be in flight; split it"};
}

std::string outstanding_names(const Handle& handle) {
  size_t more = 0;
  std::string text;
  for (const Operation& operation : handle.operations) {
    if (operation.is_done) continue;
    if (text.empty()) {
      text = "tensor \"" + std::string(operation.name) + "\"";
    } else {
      ++more;
    }
  }
  return more == 0 ? text : text + " (and " + std::to_string(more) + " more of its group)";
}

[[gnu::cold]] Status timed_out(const Handle& handle, int64_t timeout_ms) {
  return {Code::kTimeout, outstanding_names(handle) + " did not finish within " +
                              std::to_string(timeout_ms) +
                              " ms; some rank has not submitted it yet, or the network is slow"};
}

}  // namespace

Session::Session(Config config, Attachment daemon, std::shared_ptr<ArenaAllocator> rested)
    : config_(std::move(config)),
      link_(config_, std::move(daemon), *this),
      allocator_(std::move(rested)),
      process_sets_(link_.place().world_size),
      interned_(
          [this](const rueda_abi_intern& descriptor, std::span<const int64_t> counts) {
            return intern(link_, descriptor, counts);
          },
          [this](uint32_t id) {
            const rueda_abi_forget body{.tensor_id = id, .reserved = 0};
            return link_.request(RUEDA_ABI_FORGET, &body, sizeof(body), -1).status();
          }),
      handles_(link_.capacity()),
      device_(config_, link_, handles_, interned_),
      callbacks_(link_, handles_,
                 [this](Handle& handle, rueda_result& result)
                     RUEDA_REQUIRES(session_mutex) { return end(handle, result); }) {
  if (allocator_ != nullptr) {
    has_all_arenas_ = allocator_->resume(registrar());
    return;
  }
  using Descriptors = ArenaAllocator::Descriptors;
  allocator_ = std::make_shared<ArenaAllocator>(
      registrar(), config_.is_elastic ? Descriptors::kKeep : Descriptors::kClose);
}

ArenaAllocator::Registrar Session::registrar() {
  return {.add =
              [this](int memfd, uint64_t bytes) {
                rueda_abi_arena body{.bytes = bytes, .arena_id = 0, .reserved = 0};
                return link_.request(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), memfd);
              },
          .remove =
              [this](uint32_t arena_id) {
                rueda_abi_arena body{.bytes = 0, .arena_id = arena_id, .reserved = 0};
                return link_.request(RUEDA_ABI_ARENA_REMOVE, &body, sizeof(body), -1).status();
              }};
}

Session::~Session() {
  callbacks_.stop();
  device_.stop();
  for (auto& handle : handles_.all()) release(*handle);
  if (rests_) {
    allocator_->rest();
  } else {
    allocator_->retire();
  }
}

Result<std::unique_ptr<Session>> Session::attach(const Config& config,
                                                 std::shared_ptr<ArenaAllocator> rested) {
  Result<Attachment> daemon = attach_to_daemon(config);
  if (!daemon.is_ok()) return daemon.status();
  return std::unique_ptr<Session>(
      new Session(config, std::move(daemon).value(), std::move(rested)));
}

std::unique_ptr<Connection> Session::rest() {
  if (!config_.is_elastic) return nullptr;
  rests_ = true;
  device_.stop();
  return link_.take_connection();
}

Status Session::prepare(const TensorRequest& request, Operation& operation) {
  operation.bytes = request.bytes();
  Result<uint32_t> id = interned_.id_of(request.descriptor, request.counts);
  if (!id.is_ok()) return id.status();
  operation.record.tensor_id = id.value();
  operation.holds_tensor = operation.handle->holds_tensors = true;
  return place_in_host_memory(*allocator_, request, operation);
}

Result<rueda_handle> Session::submit(const std::vector<TensorRequest>& requests) {
  if (Status status = check_group_size(requests, handles_); !status.is_ok()) return status;
  MutexLock lock(link_.mutex());
  Handle& handle = handles_.take(requests.size());
  const uint64_t frees = frees_;
  lock.unlock();
  for (size_t i = 0; i < requests.size(); ++i) {
    Status status = prepare(requests[i], handle.operations[i]);
    if (!status.is_ok()) return refuse(handle, std::move(status));
  }

  lock.lock();
  if (Status reason = wait_for_room(lock, requests.size()); !reason.is_ok()) {
    lock.unlock();
    return refuse(handle, std::move(reason));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool is_allreduce =
        requests[i].descriptor.kind == static_cast<uint8_t>(CollectiveKind::kAllreduce);
    Operation& operation = handle.operations[i];
    operation.name = handles_.kept_name(requests[i].name());
    handle.is_staged |= operation.staging != nullptr;
    if (!is_allreduce || operation.staging != nullptr) continue;
    if ((operation.record.flags & RUEDA_ABI_FLAG_COPIED_IN) != 0) continue;
    const uint32_t id = operation.record.tensor_id;
    const std::optional<uint32_t> before = repeats_.remember(requests[i], operation.record, frees);
    if (before == id) continue;
    interned_.hold(id);
    if (before) handle.outdated.push_back(*before);
  }
  const bool is_join = requests[0].descriptor.kind == static_cast<uint8_t>(CollectiveKind::kJoin);
  return push(handle, is_join);
}

Status Session::wait_for_room(MutexLock& lock, size_t operations) {
  const auto may_go_on = [&]() RUEDA_REQUIRES(session_mutex) {
    return link_.over() || handles_.has_room(operations + device_.unread_count());
  };
  if (!may_go_on()) link_.wait_until(lock, may_go_on, std::nullopt);
  return link_.over() ? *link_.over() : Status::ok();
}

Result<uint32_t> Session::agree(const Result<uint32_t>& tensor_id, const char* name) {
  if (!tensor_id.is_ok()) return tensor_id;
  MutexLock lock(link_.mutex());
  if (Status reason = wait_for_room(lock, 1); !reason.is_ok()) return reason;
  Handle& handle = handles_.take(1);
  handle.operations[0].name = name;
  handle.operations[0].record.tensor_id = tensor_id.value();
  const rueda_handle submitted = push(handle, true);
  lock.unlock();
  rueda_result result{};
  if (Status ended = wait(submitted, -1, &result); !ended.is_ok()) return ended;
  return result.value;
}

Status Session::request_timeline(const std::string& path, bool wants_chunks) {
  rueda_abi_timeline wish{};
  if (path.size() >= sizeof(wish.path)) {
    return {Code::kInvalidArgument, "the path of a timeline has at most " +
                                        std::to_string(sizeof(wish.path) - 1) + " bytes"};
  }
  wish.begins = path.empty() ? 0 : 1;
  wish.chunks = wants_chunks ? 1 : 0;
  std::copy(path.begin(), path.end(), wish.path);
  return link_.request(RUEDA_ABI_TIMELINE, &wish, sizeof(wish), -1).status();
}

Status Session::declare_plan(std::span<const rueda_planned_tensor> tensors) {
  Result<std::vector<TensorRequest>> described = describe_plan(tensors);
  if (!described.is_ok()) return described.status();
  std::vector<uint32_t> ids;
  for (const TensorRequest& request : described.value()) {
    Result<uint32_t> id = interned_.id_of(request.descriptor);
    if (!id.is_ok()) return id.status();
    ids.push_back(id.value());
  }
  uint32_t plan = 0;
  for (const rueda_abi_plan& part : parts_of_plan(tensors, ids)) {
    Result<uint32_t> id = link_.request(RUEDA_ABI_PLAN, &part, sizeof(part), -1);
    if (!id.is_ok()) return id.status();
    plan = id.value();
  }
  return agree(plan, "rueda.plan").status();
}

Result<uint32_t> Session::add_process_set(const int32_t* ranks, int32_t count) {
  Result<rueda_abi_process_set> change = describe_new_set(ranks, count);
  if (!change.is_ok()) return change.status();
  Result<uint32_t> id = agree(ask_for_change(link_, change.value()), kProcessSets);
  if (id.is_ok()) process_sets_.on_added(id.value(), change.value());
  return id;
}

Status Session::remove_process_set(uint32_t id) {
  const Result<uint32_t> removed = agree(ask_for_change(link_, describe_removal(id)), kProcessSets);
  if (removed.is_ok()) process_sets_.on_removed(id);
  return removed.status();
}

Result<rueda_handle> Session::submit(const TransferRequest& request) {
  MutexLock lock(link_.mutex());
  Handle& handle = handles_.take(1);
  lock.unlock();
  Operation& operation = handle.operations[0];
  operation.bytes = request.memory.bytes();
  Status placed = place_in_host_memory(*allocator_, request.memory, operation);
  if (!placed.is_ok()) return refuse(handle, std::move(placed));
  rueda_abi_transfer record = request.record;
  const rueda_abi_submission& place = operation.record;
  const bool sends = (record.flags & RUEDA_ABI_FLAG_SEND) != 0;
  record.flags |= place.flags;
  record.arena = sends ? place.input_arena : place.output_arena;
  record.offset = sends ? place.input_offset : place.output_offset;
  operation.record = std::bit_cast<rueda_abi_submission>(record);
  lock.lock();
  if (Status reason = wait_for_room(lock, 1); !reason.is_ok()) {
    lock.unlock();
    return refuse(handle, std::move(reason));
  }
  operation.name = handles_.kept_name(request.memory.name());
  handle.is_staged = operation.staging != nullptr;
  return push(handle, false);
}

Status Session::cancel(rueda_handle transfer) {
  MutexLock lock(link_.mutex());
  if (Status reason = wait_for_room(lock, 1); !reason.is_ok()) return reason;
  const Handle* const target = handles_.find(transfer);
  if (target == nullptr) return unknown_handle(transfer);
  const rueda_abi_submission& in_flight = target->operations[0].record;
  if ((in_flight.flags & (RUEDA_ABI_FLAG_SEND | RUEDA_ABI_FLAG_RECEIVE)) == 0) {
    return {Code::kInvalidArgument, "handle " + std::to_string(transfer) +
                                        " is no send or receive: nothing else can be taken back"};
  }
  if (target->pending == 0) return Status::ok();
  rueda_abi_transfer record{};
  record.flags = RUEDA_ABI_FLAG_CANCEL;
  record.cancels = in_flight.ticket;
  Handle& handle = handles_.take(1);
  handle.operations[0].name = "cancel";
  handle.operations[0].record = std::bit_cast<rueda_abi_submission>(record);
  const rueda_handle submitted = push(handle, false);
  lock.unlock();
  abandon(submitted);  // The end of the transfer tells what came of it.
  return Status::ok();
}

Result<rueda_handle> Session::submit_on_device(std::vector<TensorRequest> requests, void* stream) {
  if (Status status = check_group_size(requests, handles_); !status.is_ok()) return status;
  if (Status status = device_.open_for(requests, stream); !status.is_ok()) return status;
  MutexLock lock(link_.mutex());
  Handle& handle = handles_.take(requests.size());
  lock.unlock();
  Status prepared = device_.prepare(requests, handle);
  if (!prepared.is_ok()) return refuse(handle, std::move(prepared));
  lock.lock();
  if (Status reason = wait_for_room(lock, requests.size()); !reason.is_ok()) {
    lock.unlock();
    return refuse(handle, std::move(reason));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    handle.operations[i].name = handles_.kept_name(requests[i].name());
  }
  take_tickets(handle);
  lock.unlock();
  const Status announced = device_.announce(handle, stream);
  lock.lock();
  if (!announced.is_ok()) {
    device_.take_back(handle);
    lock.unlock();
    return refuse(handle, announced);
  }
  device_.submit(handle, stream);
  return handle.id;
}

std::optional<rueda_handle> Session::submit_again(std::span<const rueda_tensor> tensors,
                                                  const rueda_reduce_options* options,
                                                  std::string_view group) {
  MutexLock lock(link_.mutex());
  if (link_.over() || !handles_.has_room(tensors.size() + device_.unread_count()))
    return std::nullopt;
  Handle& handle = handles_.take(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Repeats::Entry* known =
        repeats_.find(tensors[i], options, group, group.empty() ? 0 : tensors.size());
    if (known == nullptr || known->frees() != frees_) {
      give_handle(handle);
      return std::nullopt;
    }
    Operation& operation = handle.operations[i];
    operation.name = known->name();
    operation.record = known->record();
    operation.bytes = known->bytes();
    if (known->bytes() == 0) continue;
    operation.arena_data[0] = static_cast<const std::byte*>(tensors[i].input);
    operation.arena_data[1] = static_cast<const std::byte*>(tensors[i].output);
  }
  return push(handle, false);
}

void Session::give_handle(Handle& handle) {
  if (handle.holds_tensors) {
    for (const Operation& operation : handle.operations) {
      if (operation.holds_tensor) interned_.release(operation.record.tensor_id);
    }
  }
  for (const uint32_t id : handle.outdated) interned_.release(id);
  handle.outdated.clear();
  handles_.give(handle);
}

Status Session::refuse(Handle& handle, Status reason) {
  release(handle);
  MutexLock lock(link_.mutex());
  give_handle(handle);
  return reason;
}

rueda_handle Session::push(Handle& handle, bool goes_behind_all) {
  take_tickets(handle);
  const bool is_held_back = goes_behind_all && device_.hold_back_behind(handle);
  if (!is_held_back) link_.submit(handle);
  return handle.id;
}

void Session::take_tickets(Handle& handle) {
  handles_.take_tickets(handle, [this](uint64_t ticket) RUEDA_REQUIRES(session_mutex) {
    return device_.is_unread(ticket);
  });
}

Status Session::wait(rueda_handle id, int64_t timeout_ms, rueda_result* result) {
  MutexLock lock(link_.mutex());
  Handle* handle = handles_.find(id);
  if (handle == nullptr) return unknown_handle(id);
  if (handle->callback.function != nullptr) return has_callback(id);
  if (handle->pending > 0 && !wait_for(lock, *handle, timeout_ms)) {
    return timed_out(*handle, timeout_ms);
  }
  if (handle->id != id) return unknown_handle(id);  // another thread has ended the handle
  rueda_result ended{};
  Status error = end(*handle, ended);
  if (result != nullptr) *result = ended;
  return error;
}

Status Session::end(Handle& handle, rueda_result& result) {
  handle.id = 0;  // no other thread can end the handle from here on
  if (handle.is_staged) copy_out(handle);
  result = handle.result;
  Status error = std::move(handle.error);
  give_handle(handle);
  return error;
}

Status Session::then(rueda_handle id, Callback callback) {
  const MutexLock lock(link_.mutex());
  Handle* handle = handles_.find(id);
  if (handle == nullptr) return unknown_handle(id);
  if (handle->callback.function != nullptr) return has_callback(id);
  if (handle->waiters > 0) {
    return {Code::kInvalidArgument, "handle " + std::to_string(id) +
                                        " is being waited for by another thread; a handle has one "
                                        "callback, or is waited for"};
  }
  return callbacks_.add(*handle, callback);
}

void Session::copy_out(Handle& handle) {
  uint64_t bytes = 0;
  {
    const MutexUnlock unlock(link_.mutex());
    const Status staged = device_.copy_out(handle);
    if (handle.error.is_ok()) handle.error = staged;
    bytes = copy_out_of_staging(handle);
    release(handle);
  }
  stats_.bytes_copied_out += bytes;
}

DaemonLink::Arrivals Session::take_completions(CompletionRing& ring) {
  DaemonLink::Arrivals arrived;
  arrived.popped =
      ring.pop_all([this, &arrived](const rueda_abi_completion& record, std::string_view text) {
        link_.mutex().assume_held();  // the ring calls this while it pops
        arrived.has_news |= complete(record, text);
      });
  return arrived;
}

bool Session::complete(const rueda_abi_completion& record, std::string_view text) {
  Operation* const ended = handles_.end(record.ticket);
  // The completion is of no operation of ours, or of one that ended earlier for another reason.
  if (ended == nullptr) return false;
  Operation& operation = *ended;
  Handle& handle = *operation.handle;
  ++stats_.completions;
  operation.is_done = true;
  operation.is_ok = record.code == 0;
  if (operation.is_on_device) device_.end(operation);
  if (!operation.is_ok && handle.error.is_ok()) {
    handle.error = {code_from_wire(record.code), text.empty()
                                                     ? "tensor \"" + std::string(operation.name) +
                                                           "\" failed; the daemon gave no reason"
                                                     : std::string(text)};
  }
  if (&operation == &handle.operations.back()) {
    handle.result = {.epoch = record.epoch,
                     .contributors = record.contributors,
                     .seq = record.seq,
                     .value = record.value};
  }
  if (--handle.pending == 0) on_ended(handle);
  return (record.flags & RUEDA_ABI_FLAG_NEWS) != 0;
}

void Session::on_over(const Status& reason) {
  device_.drop_held_back();
  handles_.end_all([this, &reason](Operation& operation) RUEDA_REQUIRES(session_mutex) {
    Handle& handle = *operation.handle;
    operation.is_done = true;
    if (operation.is_on_device) device_.end(operation);
    if (handle.error.is_ok()) handle.error = reason;
    if (--handle.pending == 0) on_ended(handle);
  });
}

void Session::on_ended(Handle& handle) {
  if (handle.callback.function != nullptr) {
    callbacks_.on_ended(handle);
  } else if (handle.is_abandoned) {
    forget(handle);
  }
}

Result<size_t> Session::wait_any(std::span<const rueda_handle> ids, int64_t timeout_ms) {
  MutexLock lock(link_.mutex());
  // Finds the first handle that has ended, or is unknown.
  const auto first_done = [&]() RUEDA_REQUIRES(session_mutex) -> std::optional<size_t> {
    for (size_t i = 0; i < ids.size(); ++i) {
      const Handle* handle = handles_.find(ids[i]);
      if (handle == nullptr || handle->pending == 0) return i;
    }
    return std::nullopt;
  };
  std::optional<TicksMs> deadline_ms;
  if (timeout_ms >= 0) deadline_ms = steady_now_ms() + std::min<int64_t>(timeout_ms, INT32_MAX);
  if (!first_done()) {
    link_.wait_until(
        lock, [&]() RUEDA_REQUIRES(session_mutex) { return first_done().has_value(); },
        deadline_ms);
  }
  const std::optional<size_t> done = first_done();
  if (!done) {
    return Status{Code::kTimeout, "none of " + std::to_string(ids.size()) +
                                      " operations finished within " + std::to_string(timeout_ms) +
                                      " ms; some rank has not submitted them yet, or the network "
                                      "is slow"};
  }
  if (handles_.find(ids[*done]) == nullptr) {
    return unknown_handle(ids[*done]);
  }
  return *done;
}

// Returns false if the handle does not end in time.
bool Session::wait_for(MutexLock& lock, Handle& handle, int64_t timeout_ms) {
  std::optional<TicksMs> deadline_ms;
  if (timeout_ms >= 0) deadline_ms = steady_now_ms() + std::min<int64_t>(timeout_ms, INT32_MAX);
  const auto first = std::find_if(handle.operations.begin(), handle.operations.end(),
                                  [](const Operation& operation) { return !operation.is_done; });
  link_.set_waited_ticket(first->record.ticket);
  const rueda_handle id = handle.id;
  ++handle.waiters;
  const bool is_done = link_.wait_until(
      lock, [&handle, id] { return handle.id != id || handle.pending == 0; }, deadline_ms,
      first->bytes <= kSmallBytes);
  if (handle.id == id) --handle.waiters;
  link_.set_waited_ticket(0);
  return is_done;
}

void Session::abandon(rueda_handle id) {
  MutexLock lock(link_.mutex());
  Handle* handle = handles_.find(id);
  if (handle == nullptr) return;
  handle->is_abandoned = true;
  if (handle->pending == 0) forget(*handle);
}

void Session::forget(Handle& handle) {
  release(handle);
  give_handle(handle);
}

Result<bool> Session::test(rueda_handle id) {
  MutexLock lock(link_.mutex());
  link_.drain_completions();
  const Handle* handle = handles_.find(id);
  if (handle == nullptr) {
    return Status{Code::kInvalidArgument, "handle " + std::to_string(id) + " is not in flight"};
  }
  // A caller that only tests must still learn of the daemon's death.
  if (handle->pending > 0 && !link_.is_polled()) link_.read_socket();
  return handle->pending == 0;
}

void Session::release(Handle& handle) {
  for (Operation& operation : handle.operations) {
    operation.joins = {};
    if (operation.staged) device_.give_back(operation);
    if (operation.staging == nullptr) continue;
    (void)allocator_->free(operation.staging, ArenaAllocator::IfIdle::kKeep);
    operation.staging = nullptr;
  }
}

Result<void*> Session::allocate(size_t bytes) {
  Result<Block> block = allocator_->allocate(bytes);
  if (!block.is_ok()) return block.status();
  return static_cast<void*>(block.value().data);
}

Status Session::free(void* memory) {
  std::optional<size_t> bytes = allocator_->block_bytes(memory);
  if (bytes) {
    auto begin = static_cast<const std::byte*>(memory);
    MutexLock lock(link_.mutex());
    for (const Operation* operation : handles_.in_flight()) {
      if (operation == nullptr) continue;
      for (const std::byte* used : operation->arena_data) {
        if (used == nullptr || used < begin || used >= begin + *bytes) continue;
        return {Code::kInvalidArgument, "the memory is in use by tensor \"" +
                                            std::string(operation->name) +
                                            "\"; wait for its handle before freeing it"};
      }
    }
    ++frees_;
  }
  return allocator_->free(memory, ArenaAllocator::IfIdle::kMayReturn);
}

rueda_stats Session::stats() const {
  MutexLock lock(link_.mutex());
  rueda_stats stats = stats_;
  stats.submissions = link_.submissions();
  stats.bytes_copied_in = link_.bytes_copied_in();
  stats.arena_bytes = allocator_->mapped_bytes();
  return stats;
}

Status Session::detach(int64_t timeout_ms) {
  Status result = leave(timeout_ms);
  callbacks_.stop();
  return result;
}

Status Session::leave(int64_t timeout_ms) {
  Status result;
  {
    MutexLock lock(link_.mutex());
    bool is_quiet = link_.wait_until(
        lock, [this]() RUEDA_REQUIRES(session_mutex) { return handles_.in_flight_count() == 0; },
        steady_now_ms() + timeout_ms);
    if (!is_quiet) {
      result = {Code::kTimeout, std::to_string(handles_.in_flight_count()) +
                                    " operations were still in flight at shutdown, among them "
                                    "tensor \"" +
                                    std::string(handles_.first_in_flight().name) +
                                    "\"; wait for every handle before rueda_shutdown"};
    }
    link_.leave(lock, timeout_ms);
  }
  return result;
}

void Session::detach_if_idle(int64_t timeout_ms) {
  {
    if (!link_.mutex().try_lock()) return;
    const MutexLock lock(link_.mutex(), kAdopt);
    if (link_.is_polled()) return;
    link_.drain_completions();
    if (handles_.in_flight_count() > 0) return;
  }
  (void)leave(timeout_ms);
}

}  // namespace rueda::client
