// Implements rueda.h. No exception leaves the library: bad_alloc becomes
// RUEDA_ERR_RESOURCE_EXHAUSTED.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/rueda/rueda.h"
#include "client/src/api/process.h"
#include "client/src/request/tensor.h"
#include "client/src/request/transfer.h"
#include "client/src/session/callbacks.h"
#include "client/src/wire/errors.h"

namespace {

using rueda::Code;
using rueda::CollectiveKind;
using rueda::Result;
using rueda::Status;
using namespace rueda::client;

template <class Body>
int guarded(Body body) {
  try {
    Status status = body();
    if (status.is_ok()) {
      clear_last_error();
      return RUEDA_OK;
    }
    return report(status);
  } catch (const std::bad_alloc&) {
    return report({Code::kResourceExhausted, "out of memory"});
  } catch (const std::exception& error) {
    return report({Code::kInternal, std::string("librueda: ") + error.what()});
  }
}

Status not_initialized() {
  return {Code::kShutDown, "Rueda is not initialised; call rueda_init first"};
}

// Returns an error if this function, which may wait, is called in a callback: nobody else would be
// told of an end meanwhile, and what it waits for may be just that.
Status check_may_wait(const char* function) {
  if (!Callbacks::is_in_callback()) return Status::ok();
  return {Code::kInvalidArgument,
          std::string(function) +
              " may wait, and so cannot be called in a callback of rueda_then; use the _async form "
              "and rueda_then, or another thread"};
}

// Runs body(Session&), or returns the reason why there is no session.
template <class Body>
int with_session(Body body) {
  return guarded([&]() -> Status {
    if (Session* session = usable_session()) return body(*session);
    const Status why = process_session().status();
    return why.is_ok() ? not_initialized() : why;
  });
}

// Runs body(Session&) for a function that may wait.
template <class Body>
int with_session_to_wait(const char* function, Body body) {
  if (Status status = check_may_wait(function); !status.is_ok()) return report(status);
  return with_session(body);
}

// Returns a field of the process's place in the job, which is never negative, or the error.
template <class Field>
int place(Field field) {
  int value = 0;
  int rc = with_session([&](Session& session) {
    value = field(session);
    return Status::ok();
  });
  return rc == RUEDA_OK ? value : rc;
}

Status submit(Session& session, const std::vector<TensorRequest>& requests, rueda_handle* handle) {
  Result<rueda_handle> submitted = session.submit(requests);
  if (!submitted.is_ok()) return submitted.status();
  *handle = submitted.value();
  return Status::ok();
}

// Submits again what was submitted before. Returns false if the tensors have to be checked and
// submitted in full.
bool submit_again(Session& session, std::span<const rueda_tensor> tensors,
                  const rueda_reduce_options* options, std::string_view group,
                  rueda_handle* handle) {
  if (handle == nullptr || tensors.empty()) return false;
  const std::optional<rueda_handle> submitted = session.submit_again(tensors, options, group);
  if (submitted) *handle = *submitted;
  return submitted.has_value();
}

Status submit_one(Session& session, Result<TensorRequest> request, rueda_handle* handle) {
  if (handle == nullptr) return {Code::kInvalidArgument, "the handle pointer is NULL"};
  if (!request.is_ok()) return request.status();
  return submit(session, {std::move(request).value()}, handle);
}

Result<std::vector<TensorRequest>> check_group(const char* group_name, const rueda_tensor* tensors,
                                               size_t count, const rueda_reduce_options* options) {
  if (tensors == nullptr || count == 0) {
    return Status{Code::kInvalidArgument, "the group has no tensors"};
  }
  const std::string group = group_name != nullptr ? group_name : "";
  std::vector<TensorRequest> requests;
  requests.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Result<TensorRequest> request = check_allreduce(&tensors[i], options, group, count);
    if (!request.is_ok()) return request.status();
    requests.push_back(std::move(request).value());
  }
  return requests;
}

Result<std::vector<TensorRequest>> one(Result<TensorRequest> request) {
  if (!request.is_ok()) return request.status();
  return std::vector{std::move(request).value()};
}

Status submit_on_device(Session& session, Result<std::vector<TensorRequest>> requests, void* stream,
                        rueda_handle* handle) {
  if (handle == nullptr) return {Code::kInvalidArgument, "the handle pointer is NULL"};
  if (!requests.is_ok()) return requests.status();
  Result<rueda_handle> submitted = session.submit_on_device(std::move(requests).value(), stream);
  if (!submitted.is_ok()) return submitted.status();
  *handle = submitted.value();
  return Status::ok();
}

Result<SetPlace> place_in(const Session& session, uint32_t process_set) {
  Result<std::vector<int32_t>> ranks = session.process_sets().ranks_of(process_set);
  if (!ranks.is_ok()) return ranks.status();
  const std::vector<int32_t>& all = ranks.value();
  const int rank = session.place().rank;
  const auto at = std::lower_bound(all.begin(), all.end(), rank);
  if (at == all.end() || *at != rank) {
    return Status{
        Code::kInvalidArgument,
        "rank " + std::to_string(rank) + " is not in process set " + std::to_string(process_set)};
  }
  return SetPlace{rank, static_cast<int>(at - all.begin()), static_cast<int>(all.size()),
                  session.place().world_size};
}

// Submits a parted tensor. check(SetPlace) makes the request.
template <class Check>
int submit_parted(const rueda_tensor* tensor, rueda_handle* handle, Check check) {
  return with_session([&](Session& session) -> Status {
    if (tensor == nullptr) return {Code::kInvalidArgument, "the tensor is NULL"};
    Result<SetPlace> self = place_in(session, tensor->process_set);
    if (!self.is_ok()) return self.status();
    return submit_one(session, check(self.value()), handle);
  });
}

int submit_transfer(const TransferArguments& arguments, rueda_handle* handle) {
  return with_session([&](Session& session) -> Status {
    if (handle == nullptr) return {Code::kInvalidArgument, "the handle pointer is NULL"};
    const Result<std::vector<int32_t>> ranks =
        session.process_sets().ranks_of(arguments.process_set);
    if (!ranks.is_ok()) return ranks.status();
    const Result<TransferRequest> request =
        check_transfer(arguments, ranks.value(), session.place().rank);
    if (!request.is_ok()) return request.status();
    const Result<rueda_handle> submitted = session.submit(request.value());
    if (submitted.is_ok()) *handle = submitted.value();
    return submitted.status();
  });
}

// Waits in the blocking forms, whose caller has no handle to wait for once more.
int wait_or_abandon(rueda_handle handle, int64_t timeout_ms, rueda_result* result = nullptr) {
  return with_session([&](Session& session) {
    Status status = session.wait(handle, timeout_ms, result);
    if (status.code() == Code::kTimeout) session.abandon(handle);
    return status;
  });
}

template <class Async, class... Arguments>
int blocking(const char* function, int64_t timeout_ms, Async async, Arguments... arguments) {
  if (Status status = check_may_wait(function); !status.is_ok()) return report(status);
  rueda_handle handle = 0;
  const int rc = async(arguments..., &handle);
  return rc == RUEDA_OK ? wait_or_abandon(handle, timeout_ms) : rc;
}

}  // namespace

int rueda_init(const rueda_init_options* options) {
  return guarded([&] {
    const Status status = check_may_wait("rueda_init");
    return status.is_ok() ? attach_process(options) : status;
  });
}

int rueda_shutdown(void) {
  return guarded([] {
    const Status status = check_may_wait("rueda_shutdown");
    return status.is_ok() ? detach_process() : status;
  });
}

int rueda_is_initialized(void) {
  Result<Session*> session = process_session();
  return session.is_ok() && session.value() != nullptr ? 1 : 0;
}

int rueda_rank(void) {
  return place([](Session& s) { return s.place().rank; });
}

int rueda_size(void) {
  return place([](Session& s) { return s.place().world_size; });
}

int rueda_local_rank(void) {
  return place([](Session& s) { return s.place().local_rank; });
}

int rueda_local_size(void) {
  return place([](Session& s) { return s.place().local_size; });
}

int rueda_cross_rank(void) {
  return place([](Session& s) { return s.place().node_index; });
}

int rueda_cross_size(void) {
  return place([](Session& s) { return s.place().node_count; });
}

const char* rueda_node_id(void) {
  const char* id = "";
  (void)with_session([&](Session& session) {
    id = session.place().node_id;
    return Status::ok();
  });
  return id;
}

const char* rueda_version(void) { return RUEDA_VERSION; }

void* rueda_alloc(size_t bytes) {
  void* memory = nullptr;
  (void)with_session([&](Session& session) -> Status {
    Result<void*> allocated = session.allocate(bytes);
    if (!allocated.is_ok()) return allocated.status();
    memory = allocated.value();
    return Status::ok();
  });
  return memory;
}

int rueda_free(void* memory) {
  return guarded([&]() -> Status {
    Status status = free_memory(memory);
    if (status.code() != Code::kNotFound) return status;
    return {Code::kInvalidArgument, status.message()};
  });
}

void* rueda_dlpack(void* memory, size_t bytes) {
  void* tensor = nullptr;
  (void)guarded([&]() -> Status {
    Result<void*> shared = share_memory(memory, bytes);
    if (!shared.is_ok()) return shared.status();
    tensor = shared.value();
    return Status::ok();
  });
  return tensor;
}

int rueda_dlpack_count(const void* memory) { return shares_of_memory(memory); }

int rueda_allreduce_async(const rueda_tensor* tensor, const rueda_reduce_options* options,
                          rueda_handle* handle) {
  return with_session([&](Session& session) {
    if (submit_again(session, {tensor, tensor ? 1u : 0u}, options, "", handle)) return Status::ok();
    return submit_one(session, check_allreduce(tensor, options, "", 0), handle);
  });
}

int rueda_grouped_allreduce_async(const char* group_name, const rueda_tensor* tensors, size_t count,
                                  const rueda_reduce_options* options, rueda_handle* handle) {
  return with_session([&](Session& session) -> Status {
    if (handle == nullptr) return {Code::kInvalidArgument, "the handle pointer is NULL"};
    if (tensors == nullptr || count == 0) {
      return {Code::kInvalidArgument, "the group has no tensors"};
    }
    std::string group = group_name != nullptr ? group_name : "";
    if (!group.empty() && submit_again(session, {tensors, count}, options, group, handle)) {
      return Status::ok();
    }
    Result<std::vector<TensorRequest>> requests = check_group(group_name, tensors, count, options);
    return requests.is_ok() ? submit(session, requests.value(), handle) : requests.status();
  });
}

int rueda_broadcast_async(const rueda_tensor* tensor, int root_rank, rueda_handle* handle) {
  return with_session([&](Session& session) {
    return submit_one(
        session,
        check_broadcast(tensor, root_rank, session.place().rank, session.place().world_size),
        handle);
  });
}

int rueda_device_allreduce_async(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                 void* stream, rueda_handle* handle) {
  return with_session([&](Session& session) {
    return submit_on_device(session, one(check_allreduce(tensor, options, "", 0)), stream, handle);
  });
}

int rueda_device_grouped_allreduce_async(const char* group_name, const rueda_tensor* tensors,
                                         size_t count, const rueda_reduce_options* options,
                                         void* stream, rueda_handle* handle) {
  return with_session([&](Session& session) {
    return submit_on_device(session, check_group(group_name, tensors, count, options), stream,
                            handle);
  });
}

int rueda_device_broadcast_async(const rueda_tensor* tensor, int root_rank, void* stream,
                                 rueda_handle* handle) {
  return with_session([&](Session& session) {
    return submit_on_device(
        session,
        one(check_broadcast(tensor, root_rank, session.place().rank, session.place().world_size)),
        stream, handle);
  });
}

int rueda_device_wait(rueda_handle handle, void* stream) {
  return with_session(
      [&](Session& session) { return session.device().wait_on_stream(handle, stream); });
}

int rueda_device_forget(const void* memory) {
  return with_session([&](Session& session) { return session.device().forget(memory); });
}

int rueda_device_announce_frees(int are_announced) {
  return with_session([&](Session& session) {
    session.device().announce_frees(are_announced != 0);
    return Status::ok();
  });
}

int rueda_device_watch_frees(const char* library) {
  return guarded([&]() -> Status {
    if (library == nullptr) return {Code::kInvalidArgument, "the library is NULL"};
    return DeviceSession::watch_frees(library);
  });
}

int rueda_get_device_stats(rueda_device_stats* stats) {
  return with_session([&](Session& session) -> Status {
    if (stats == nullptr) return {Code::kInvalidArgument, "the stats pointer is NULL"};
    *stats = session.device().stats();
    return Status::ok();
  });
}

int rueda_reduce_async(const rueda_tensor* tensor, int root_rank,
                       const rueda_reduce_options* options, rueda_handle* handle) {
  return submit_parted(tensor, handle, [&](const SetPlace& self) {
    return check_reduce(tensor, options, root_rank, self);
  });
}

int rueda_allgather_async(const rueda_tensor* tensor, const int64_t* first_dims,
                          rueda_handle* handle) {
  return submit_parted(tensor, handle, [&](const SetPlace& self) {
    return check_gathering(CollectiveKind::kAllgather, tensor, first_dims, -1, self);
  });
}

int rueda_gather_async(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                       rueda_handle* handle) {
  return submit_parted(tensor, handle, [&](const SetPlace& self) {
    return check_gathering(CollectiveKind::kGather, tensor, first_dims, root_rank, self);
  });
}

int rueda_reduce_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims,
                               const rueda_reduce_options* options, rueda_handle* handle) {
  return submit_parted(tensor, handle, [&](const SetPlace& self) {
    return check_scattering(CollectiveKind::kReduceScatter, tensor, first_dims, options, -1, self);
  });
}

int rueda_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                        rueda_handle* handle) {
  return submit_parted(tensor, handle, [&](const SetPlace& self) {
    return check_scattering(CollectiveKind::kScatter, tensor, first_dims, nullptr, root_rank, self);
  });
}

int rueda_alltoall_async(const rueda_tensor* tensor, const int64_t* splits, rueda_handle* handle) {
  return submit_parted(tensor, handle,
                       [&](const SetPlace& self) { return check_alltoall(tensor, splits, self); });
}

int rueda_send_async(const void* data, int64_t count, rueda_dtype dtype, int destination,
                     int64_t tag, uint32_t process_set, rueda_handle* handle) {
  return submit_transfer({true, data, count, dtype, destination, tag, process_set}, handle);
}

int rueda_recv_async(void* data, int64_t count, rueda_dtype dtype, int source, int64_t tag,
                     uint32_t process_set, rueda_handle* handle) {
  return submit_transfer({false, data, count, dtype, source, tag, process_set}, handle);
}

int rueda_cancel(rueda_handle transfer) {
  return with_session([&](Session& session) { return session.cancel(transfer); });
}

int rueda_barrier_async(const char* name, rueda_handle* handle) {
  return rueda_process_set_barrier_async(0, name, handle);
}

int rueda_process_set_barrier_async(uint32_t process_set, const char* name, rueda_handle* handle) {
  return with_session([&](Session& session) {
    return submit_one(session, check_barrier(name, process_set), handle);
  });
}

int rueda_join_async(rueda_handle* handle) {
  return with_session(
      [&](Session& session) { return submit_one(session, describe_join(), handle); });
}

int rueda_process_set_add(const int32_t* ranks, int32_t count, uint32_t* id) {
  return with_session_to_wait("rueda_process_set_add", [&](Session& session) -> Status {
    if (id == nullptr) return {Code::kInvalidArgument, "the id pointer is NULL"};
    Result<uint32_t> added = session.add_process_set(ranks, count);
    if (added.is_ok()) *id = added.value();
    return added.status();
  });
}

int rueda_process_set_remove(uint32_t id) {
  return with_session_to_wait("rueda_process_set_remove",
                              [&](Session& session) { return session.remove_process_set(id); });
}

int rueda_process_set_size(uint32_t id) {
  int size = 0;
  const int rc = with_session([&](Session& session) {
    Result<std::vector<int32_t>> ranks = session.process_sets().ranks_of(id);
    if (ranks.is_ok()) size = static_cast<int>(ranks.value().size());
    return ranks.status();
  });
  return rc == RUEDA_OK ? size : rc;
}

int rueda_process_set_rank(uint32_t id, int32_t* rank) {
  return with_session([&](Session& session) -> Status {
    if (rank == nullptr) return {Code::kInvalidArgument, "the rank pointer is NULL"};
    Result<std::vector<int32_t>> ranks = session.process_sets().ranks_of(id);
    if (!ranks.is_ok()) return ranks.status();
    const auto& all = ranks.value();
    const auto at = std::lower_bound(all.begin(), all.end(), session.place().rank);
    const bool is_there = at != all.end() && *at == session.place().rank;
    *rank = is_there ? static_cast<int32_t>(at - all.begin()) : -1;
    return Status::ok();
  });
}

int rueda_process_set_ranks(uint32_t id, int32_t* ranks) {
  return with_session([&](Session& session) -> Status {
    if (ranks == nullptr) return {Code::kInvalidArgument, "the ranks pointer is NULL"};
    Result<std::vector<int32_t>> all = session.process_sets().ranks_of(id);
    if (all.is_ok()) std::copy(all.value().begin(), all.value().end(), ranks);
    return all.status();
  });
}

int rueda_plan_declare(const rueda_planned_tensor* tensors, size_t count) {
  return with_session_to_wait("rueda_plan_declare", [&](Session& session) -> Status {
    if (tensors == nullptr && count > 0) return {Code::kInvalidArgument, "the plan is NULL"};
    return session.declare_plan({tensors, count});
  });
}

int rueda_timeline_start(const char* path, uint32_t flags) {
  return with_session([&](Session& session) -> Status {
    if (path == nullptr || *path != '/' || (flags & ~uint32_t{RUEDA_TIMELINE_CHUNKS}) != 0) {
      return {Code::kInvalidArgument, "a timeline needs an absolute path, and known flags"};
    }
    return session.request_timeline(path, (flags & RUEDA_TIMELINE_CHUNKS) != 0);
  });
}

int rueda_timeline_stop(void) {
  return with_session([&](Session& session) { return session.request_timeline("", false); });
}

int rueda_wait(rueda_handle handle, int64_t timeout_ms, rueda_result* result) {
  return with_session_to_wait(
      "rueda_wait", [&](Session& session) { return session.wait(handle, timeout_ms, result); });
}

int rueda_wait_any(const rueda_handle* handles, size_t count, int64_t timeout_ms, size_t* index) {
  return with_session_to_wait("rueda_wait_any", [&](Session& session) -> Status {
    if (handles == nullptr || count == 0 || index == nullptr) {
      return {Code::kInvalidArgument, "there are no handles, or the index pointer is NULL"};
    }
    Result<size_t> done = session.wait_any({handles, count}, timeout_ms);
    if (done.is_ok()) *index = done.value();
    return done.status();
  });
}

int rueda_test(rueda_handle handle, int* done) {
  return with_session([&](Session& session) -> Status {
    if (done == nullptr) return {Code::kInvalidArgument, "the done pointer is NULL"};
    Result<bool> is_done = session.test(handle);
    if (!is_done.is_ok()) return is_done.status();
    *done = is_done.value() ? 1 : 0;
    return Status::ok();
  });
}

int rueda_then(rueda_handle handle, rueda_callback callback, void* argument) {
  return with_session([&](Session& session) -> Status {
    if (callback == nullptr) return {Code::kInvalidArgument, "the callback is NULL"};
    return session.then(handle, {callback, argument});
  });
}

int rueda_then_take_back(rueda_callback callback) {
  return guarded([&]() -> Status {
    const Result<Session*> session = process_session();
    if (!session.is_ok()) return session.status();
    if (Status status = check_may_wait("rueda_then_take_back"); !status.is_ok()) return status;
    if (callback == nullptr) return {Code::kInvalidArgument, "the callback is NULL"};
    if (session.value() != nullptr) session.value()->take_back(callback);
    return Status::ok();
  });
}

int rueda_allreduce(const rueda_tensor* tensor, const rueda_reduce_options* options,
                    int64_t timeout_ms) {
  return blocking("rueda_allreduce", timeout_ms, rueda_allreduce_async, tensor, options);
}

int rueda_broadcast(const rueda_tensor* tensor, int root_rank, int64_t timeout_ms) {
  return blocking("rueda_broadcast", timeout_ms, rueda_broadcast_async, tensor, root_rank);
}

int rueda_reduce(const rueda_tensor* tensor, int root_rank, const rueda_reduce_options* options,
                 int64_t timeout_ms) {
  return blocking("rueda_reduce", timeout_ms, rueda_reduce_async, tensor, root_rank, options);
}

int rueda_allgather(const rueda_tensor* tensor, const int64_t* first_dims, int64_t timeout_ms) {
  return blocking("rueda_allgather", timeout_ms, rueda_allgather_async, tensor, first_dims);
}

int rueda_gather(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                 int64_t timeout_ms) {
  return blocking("rueda_gather", timeout_ms, rueda_gather_async, tensor, first_dims, root_rank);
}

int rueda_reduce_scatter(const rueda_tensor* tensor, const int64_t* first_dims,
                         const rueda_reduce_options* options, int64_t timeout_ms) {
  return blocking("rueda_reduce_scatter", timeout_ms, rueda_reduce_scatter_async, tensor,
                  first_dims, options);
}

int rueda_scatter(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                  int64_t timeout_ms) {
  return blocking("rueda_scatter", timeout_ms, rueda_scatter_async, tensor, first_dims, root_rank);
}

int rueda_alltoall(const rueda_tensor* tensor, const int64_t* splits, int64_t timeout_ms) {
  return blocking("rueda_alltoall", timeout_ms, rueda_alltoall_async, tensor, splits);
}

int rueda_send(const void* data, int64_t count, rueda_dtype dtype, int destination, int64_t tag,
               uint32_t process_set, int64_t timeout_ms) {
  return blocking("rueda_send", timeout_ms, rueda_send_async, data, count, dtype, destination, tag,
                  process_set);
}

int rueda_recv(void* data, int64_t count, rueda_dtype dtype, int source, int64_t tag,
               uint32_t process_set, int64_t timeout_ms, int32_t* source_rank) {
  if (Status status = check_may_wait("rueda_recv"); !status.is_ok()) return report(status);
  rueda_handle handle = 0;
  int rc = rueda_recv_async(data, count, dtype, source, tag, process_set, &handle);
  rueda_result result{};
  if (rc == RUEDA_OK) rc = wait_or_abandon(handle, timeout_ms, &result);
  if (rc == RUEDA_OK && source_rank != nullptr) *source_rank = static_cast<int32_t>(result.value);
  return rc;
}

int rueda_barrier(const char* name, int64_t timeout_ms) {
  return blocking("rueda_barrier", timeout_ms, rueda_barrier_async, name);
}

int rueda_join(int64_t timeout_ms, int32_t* last_rank) {
  if (Status status = check_may_wait("rueda_join"); !status.is_ok()) return report(status);
  rueda_handle handle = 0;
  int rc = rueda_join_async(&handle);
  rueda_result result{};
  if (rc == RUEDA_OK) rc = wait_or_abandon(handle, timeout_ms, &result);
  if (rc == RUEDA_OK && last_rank != nullptr) *last_rank = static_cast<int32_t>(result.value);
  return rc;
}

const char* rueda_last_error(void) { return last_error(); }

const char* rueda_error_name(int error) {
  switch (error) {
    case RUEDA_OK: return "RUEDA_OK";
    case RUEDA_ERR_INVALID_ARGUMENT: return "RUEDA_ERR_INVALID_ARGUMENT";
    case RUEDA_ERR_MISMATCH: return "RUEDA_ERR_MISMATCH";
    case RUEDA_ERR_DUPLICATE_NAME: return "RUEDA_ERR_DUPLICATE_NAME";
    case RUEDA_ERR_TIMEOUT: return "RUEDA_ERR_TIMEOUT";
    case RUEDA_ERR_RANK_LOST: return "RUEDA_ERR_RANK_LOST";
    case RUEDA_ERR_NODE_LOST: return "RUEDA_ERR_NODE_LOST";
    case RUEDA_ERR_DAEMON_LOST: return "RUEDA_ERR_DAEMON_LOST";
    case RUEDA_ERR_SHUT_DOWN: return "RUEDA_ERR_SHUT_DOWN";
    case RUEDA_ERR_VERSION: return "RUEDA_ERR_VERSION";
    case RUEDA_ERR_PERMISSION: return "RUEDA_ERR_PERMISSION";
    case RUEDA_ERR_NOT_FOUND: return "RUEDA_ERR_NOT_FOUND";
    case RUEDA_ERR_RESOURCE_EXHAUSTED: return "RUEDA_ERR_RESOURCE_EXHAUSTED";
    case RUEDA_ERR_UNAVAILABLE: return "RUEDA_ERR_UNAVAILABLE";
    case RUEDA_ERR_INTERNAL: return "RUEDA_ERR_INTERNAL";
    default: return "unknown error";
  }
}

int rueda_hosts_changed(void) {
  int has_changed = 0;
  const int rc = with_session([&](Session& session) -> Status {
    const Result<bool> told = session.hosts_changed();
    if (told.is_ok() && told.value()) has_changed = 1;
    return told.status();
  });
  return rc == RUEDA_OK ? has_changed : rc;
}

int rueda_first_nonfinite(rueda_nonfinite* first) {
  int is_found = 0;
  const int rc = with_session([&](Session& session) -> Status {
    if (first == nullptr) return {Code::kInvalidArgument, "the pointer is NULL"};
    const std::optional<rueda_abi_nonfinite> told = session.first_nonfinite();
    if (!told) return Status::ok();
    is_found = 1;
    static_assert(sizeof(first->tensor) == sizeof(told->tensor));
    std::memcpy(first->tensor, told->tensor, sizeof(first->tensor));
    first->rank = told->rank;
    first->process_set = told->process_set;
    first->step = told->step;
    first->element = told->element;
    first->value = static_cast<int32_t>(told->value);
    return Status::ok();
  });
  return rc == RUEDA_OK ? is_found : rc;
}

int rueda_get_stats(rueda_stats* stats) {
  return with_session([&](Session& session) -> Status {
    if (stats == nullptr) return {Code::kInvalidArgument, "the stats pointer is NULL"};
    *stats = session.stats();
    return Status::ok();
  });
}
