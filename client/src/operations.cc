// Submitting, waiting and testing. Copies of foreign memory happen in the calling thread, without
// the session's lock.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "client/src/session.h"

namespace rueda::client {

Status Session::prepare(const TensorRequest& request, Operation& operation) {
  operation.name = request.name();
  operation.bytes = request.bytes;
  Result<uint32_t> id = interned_->id_of(request.descriptor);
  if (!id.is_ok()) return id.status();
  operation.record.tensor_id = id.value();
  if (request.bytes == 0) return Status::ok();

  // An address that no element may have can only be copied from.
  auto locate = [&](const std::byte* data) -> Result<std::optional<Place>> {
    Result<std::optional<Place>> place = allocator_->locate(data, request.bytes);
    if (place.is_ok() && place.value() && place.value()->offset % request.element_bytes != 0) {
      return std::optional<Place>();
    }
    return place;
  };
  const std::byte* input = request.reads_input ? request.input : request.output;
  auto in = locate(input);
  if (!in.is_ok()) return {in.status().code(), in.status().message() + " (" + operation.name + ")"};
  auto out = locate(request.output);
  if (!out.is_ok()) {
    return {out.status().code(), out.status().message() + " (" + operation.name + ")"};
  }

  rueda_abi_submission& record = operation.record;
  if (out.value()) {
    record.output_arena = out.value()->arena_id;
    record.output_offset = out.value()->offset;
    operation.arena_data[1] = request.output;
  }
  if (in.value()) {
    record.input_arena = in.value()->arena_id;
    record.input_offset = in.value()->offset;
    operation.arena_data[0] = input;
  }
  if (in.value() && out.value()) return Status::ok();
  return stage(request, in.value().has_value(), operation);
}

// At most one block: a foreign input is copied to where the output will be, and reduced in place.
Status Session::stage(const TensorRequest& request, bool is_input_placed, Operation& operation) {
  rueda_abi_submission& record = operation.record;
  std::byte* target = request.output;
  if (operation.arena_data[1] == nullptr) {
    Result<Block> block = allocator_->allocate(request.bytes);
    if (!block.is_ok()) return block.status();
    operation.staging = block.value().data;
    target = operation.staging;
    record.output_arena = block.value().place.arena_id;
    record.output_offset = block.value().place.offset;
    if (request.writes_output) {
      operation.output = request.output;
      record.flags |= RUEDA_ABI_FLAG_COPIED_OUT;
    }
  }
  if (is_input_placed) return Status::ok();
  record.input_arena = record.output_arena;
  record.input_offset = record.output_offset;
  if (request.reads_input) {
    std::memcpy(target, request.input, request.bytes);
    record.flags |= RUEDA_ABI_FLAG_COPIED_IN;
  }
  return Status::ok();
}

Result<rueda_handle> Session::submit(const std::vector<TensorRequest>& requests) {
  auto handle = std::make_shared<Handle>();
  handle->operations.resize(requests.size());
  handle->pending = requests.size();
  if (requests.size() > max_in_flight_) {
    return Status{Code::kResourceExhausted,
                  "a group of " + std::to_string(requests.size()) + " tensors (the first is \"" +
                      std::string(requests[0].name()) + "\") is larger than the " +
                      std::to_string(max_in_flight_) +
                      " submissions that may be in flight; split it"};
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    Operation& operation = handle->operations[i];
    operation.handle = handle.get();
    if (Status status = prepare(requests[i], operation); !status.is_ok()) {
      release(*handle);
      return status;
    }
  }

  Lock lock(mutex_);
  auto has_room = [&] { return over_ || in_flight_.size() + requests.size() <= max_in_flight_; };
  if (!has_room()) wait_until(lock, has_room, std::nullopt);
  if (over_) {
    Status reason = *over_;
    lock.unlock();
    release(*handle);
    return reason;
  }
  for (Operation& operation : handle->operations) {
    operation.record.ticket = ++last_ticket_;
    in_flight_.emplace(operation.record.ticket, &operation);
  }
  for (const Operation& operation : handle->operations) {
    if (!submissions_.push(operation.record)) {
      end_all({Code::kInternal,
               "the daemon's submission ring is damaged; restart the job, and report the daemon's "
               "log as a bug"});
      break;
    }
    ++stats_.submissions;
    if (operation.record.flags & RUEDA_ABI_FLAG_COPIED_IN) {
      stats_.bytes_copied_in += operation.bytes;
    }
  }
  rueda_handle id = ++last_handle_;
  handle->id = id;
  handles_.emplace(id, std::move(handle));
  ring_daemon();
  return id;
}

void Session::ring_daemon() {
  if (!submissions_.take_wakeup()) return;
  const uint64_t one = 1;
  while (::write(daemon_doorbell_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

Status Session::wait(rueda_handle id, int64_t timeout_ms, rueda_result* result) {
  const Status unknown{Code::kInvalidArgument, "handle " + std::to_string(id) +
                                                   " is not in flight; each handle may be waited "
                                                   "for once"};
  Lock lock(mutex_);
  auto found = handles_.find(id);
  if (found == handles_.end()) return unknown;
  std::shared_ptr<Handle> handle = found->second;
  std::optional<TicksMs> deadline_ms;
  if (timeout_ms >= 0) deadline_ms = steady_now_ms() + std::min<int64_t>(timeout_ms, INT32_MAX);
  const auto first = std::find_if(handle->operations.begin(), handle->operations.end(),
                                  [](const Operation& operation) { return !operation.is_done; });
  waited_ticket_ = first == handle->operations.end() ? 0 : first->record.ticket;
  bool is_done = wait_until(
      lock, [&] { return handle->pending == 0; }, deadline_ms);
  waited_ticket_ = 0;
  if (!is_done) {
    return {Code::kTimeout, outstanding_names_locked(*handle) + " did not finish within " +
                                std::to_string(timeout_ms) +
                                " ms; some rank has not submitted it yet, or the network is slow"};
  }
  if (handles_.erase(id) == 0) return unknown;  // another thread ended it
  for (const Operation& operation : handle->operations) {
    if (operation.is_ok && operation.output != nullptr) stats_.bytes_copied_out += operation.bytes;
  }
  lock.unlock();

  for (const Operation& operation : handle->operations) {
    if (operation.is_ok && operation.output != nullptr) {
      std::memcpy(operation.output, operation.staging, operation.bytes);
    }
  }
  release(*handle);
  if (result != nullptr) *result = handle->result;
  return handle->error;
}

void Session::abandon(rueda_handle id) {
  Lock lock(mutex_);
  auto found = handles_.find(id);
  if (found == handles_.end()) return;
  std::shared_ptr<Handle> handle = found->second;
  handle->is_abandoned = true;
  if (handle->pending == 0) forget_locked(*handle);
}

void Session::forget_locked(Handle& handle) {
  release(handle);
  handles_.erase(handle.id);
}

Result<bool> Session::test(rueda_handle id) {
  Lock lock(mutex_);
  drain_completions();
  auto found = handles_.find(id);
  if (found == handles_.end()) {
    return Status{Code::kInvalidArgument, "handle " + std::to_string(id) + " is not in flight"};
  }
  // A caller that only tests must still learn of the daemon's death.
  if (found->second->pending > 0 && !is_polled_) read_socket();
  return found->second->pending == 0;
}

void Session::release(Handle& handle) {
  for (Operation& operation : handle.operations) {
    if (operation.staging == nullptr) continue;
    (void)allocator_->free(operation.staging, ArenaAllocator::IfIdle::kKeep);
    operation.staging = nullptr;
  }
}

std::string Session::outstanding_names_locked(const Handle& handle) const {
  size_t more = 0;
  std::string text;
  for (const Operation& operation : handle.operations) {
    if (operation.is_done) continue;
    if (text.empty()) {
      text = "tensor \"" + operation.name + "\"";
    } else {
      ++more;
    }
  }
  return more == 0 ? text : text + " (and " + std::to_string(more) + " more of its group)";
}

}  // namespace rueda::client
