// One attached client, and what it has submitted. A session has no thread of its own, except for
// one once streams wait (device_session.h) and one once there are callbacks (callbacks.h): the
// threads that wait do the work (daemon_link.h).
//
// Every public method may be called from any thread, except that the destructor must run alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/request/process_sets.h"
#include "client/src/request/repeats.h"
#include "client/src/request/tensor.h"
#include "client/src/request/transfer.h"
#include "client/src/session/attachment.h"
#include "client/src/session/callbacks.h"
#include "client/src/session/daemon_link.h"
#include "client/src/session/device_session.h"
#include "client/src/session/handle_table.h"
#include "client/src/session/operation.h"
#include "client/src/session/session_mutex.h"
#include "client/src/start/config.h"
#include "client/src/wire/allocator.h"
#include "client/src/wire/rings.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

class Session final : private DaemonLink::Host {
 public:
  // Attaches, and waits until every rank has done so, or config.timeout_ms have passed.
  // `rested` is the allocator of a session before, whose arenas are handed over again; or null.
  static Result<std::unique_ptr<Session>> attach(const Config& config,
                                                 std::shared_ptr<ArenaAllocator> rested = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const rueda_abi_started& place() const { return link_.place(); }

  // Stages memory that is foreign (in no arena), and submits all requests as one handle (a group,
  // or a single tensor). Waits for room if too much is in flight.
  Result<rueda_handle> submit(const std::vector<TensorRequest>& requests);
  // Submits a send or a receive. Memory that is in no arena is staged. Waits for room as submit().
  Result<rueda_handle> submit(const TransferRequest& request);
  // Asks the daemon to take back a send or a receive, whose handle then ends in one way or another.
  Status cancel(rueda_handle transfer);
  // A fast path of submit() for all-reduces all of which were submitted before in the same memory,
  // and for which there is room. Returns nullopt if that is not so; nothing has then been done.
  // group "" means that the tensor is not grouped.
  std::optional<rueda_handle> submit_again(std::span<const rueda_tensor> tensors,
                                           const rueda_reduce_options* options,
                                           std::string_view group);
  // Submits tensors in device memory, whose inputs are ready when the stream has done the work that
  // it has now; with RUEDA_NO_STREAM they are ready already. Waits for nothing but room. The daemon
  // sees the submission when all operations have ended that streams have been told to wait for.
  Result<rueda_handle> submit_on_device(std::vector<TensorRequest> requests, void* stream);
  // Returns what else there is for device memory: waits on streams, memory that is freed, counts.
  DeviceSession& device() { return device_; }
  // Waits for the end of an operation; timeout_ms < 0 means no limit. kTimeout leaves the handle
  // valid; any other return ends it.
  Status wait(rueda_handle handle, int64_t timeout_ms, rueda_result* result)
      RUEDA_EXCLUDES(session_mutex);
  // Waits until one of the handles has ended or is unknown, and returns its place in `handles`. No
  // handle is ended by this. kTimeout means that none ended in time.
  Result<size_t> wait_any(std::span<const rueda_handle> handles, int64_t timeout_ms);
  Result<bool> test(rueda_handle handle);
  // Has the callback called when the handle has ended, which is then ended as by wait(). Returns
  // kInvalidArgument if the handle is unknown, has a callback, or is being waited for.
  Status then(rueda_handle handle, Callback callback) RUEDA_EXCLUDES(session_mutex);
  // Takes back all callbacks that have this function, and returns when it is not being called.
  void take_back(rueda_callback function) { callbacks_.take_back(function); }
  // Says that nobody will wait for the handle: its resources are freed when it has ended. Its
  // output is not touched any more if that is foreign memory; otherwise it may change until the
  // operation ends.
  void abandon(rueda_handle handle);

  // These calls are made by all ranks of the job together, and wait for the others.
  Result<uint32_t> add_process_set(const int32_t* ranks, int32_t count);
  Status remove_process_set(uint32_t id);
  Status declare_plan(std::span<const rueda_planned_tensor> tensors);
  // Begins a timeline at `path`, or ends it if `path` is "".
  Status request_timeline(const std::string& path, bool wants_chunks);
  // Returns the first value that was not finite, if this process has been told of one; it reads the
  // socket for news.
  std::optional<rueda_abi_nonfinite> first_nonfinite() { return link_.first_nonfinite(); }
  Result<bool> hosts_changed() { return link_.hosts_changed(); }
  const ProcessSets& process_sets() const { return process_sets_; }

  Result<void*> allocate(size_t bytes);
  // Returns kInvalidArgument while an operation uses the memory.
  Status free(void* memory);
  rueda_stats stats() const;

  // Waits for operations in flight, at most timeout_ms, and leaves the job, waiting as long again
  // for the answer; all callbacks have then been called. Nothing may be submitted afterwards.
  // kTimeout names what was still in flight.
  Status detach(int64_t timeout_ms) RUEDA_EXCLUDES(session_mutex);
  // Leaves the job at the end of the process, if nothing is in flight and no other thread is at
  // work. Callbacks that have not been called yet are not waited for.
  void detach_if_idle(int64_t timeout_ms);
  // Closes the inherited descriptors in a forked child. Async-signal-safe.
  void close_in_child() { link_.close_in_child(); }

  // After detach() in an elastic job, and right before the session is destroyed: returns the
  // connection because of which the daemon keeps the arenas until this process attaches again.
  // Returns null in other jobs.
  std::unique_ptr<Connection> rest();
  // Returns whether the daemon has all arenas of the sessions before, or has refused them.
  bool has_all_arenas() const { return has_all_arenas_; }
  int socket() const { return link_.socket(); }

  // The allocator outlives the session while blocks of rueda_alloc live.
  std::shared_ptr<ArenaAllocator> allocator() const { return allocator_; }

 private:
  Session(Config config, Attachment daemon, std::shared_ptr<ArenaAllocator> rested);
  ArenaAllocator::Registrar registrar();

  DaemonLink::Arrivals take_completions(CompletionRing& ring)
      RUEDA_REQUIRES(session_mutex) override;
  void on_over(const Status& reason) RUEDA_REQUIRES(session_mutex) override;
  // Ends the operation of a completion. Returns true if it is one of ours, and says that an unread
  // message lies on the socket.
  bool complete(const rueda_abi_completion& record, std::string_view text)
      RUEDA_REQUIRES(session_mutex);

  // Finds the request's tensor id and its memory, which may be copied.
  Status prepare(const TensorRequest& request, Operation& operation) RUEDA_EXCLUDES(session_mutex);
  // Submits an operation that moves no data, and waits for its end. Returns the value of its
  // completion, or the error that stands in place of its tensor id.
  Result<uint32_t> agree(const Result<uint32_t>& tensor_id, const char* name)
      RUEDA_EXCLUDES(session_mutex);
  // Waits for room in the rings; an error says why there will be none.
  Status wait_for_room(MutexLock& lock, size_t operations) RUEDA_REQUIRES(session_mutex);
  // Waits for operations in flight, and leaves the job, as detach() does.
  Status leave(int64_t timeout_ms) RUEDA_EXCLUDES(session_mutex);
  // Says that all operations of the handle have ended.
  void on_ended(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Ends a handle whose operations have ended: copies its results to the caller's memory, gives it
  // back, fills in the result, and returns its error. No other thread can end it from here on.
  Status end(Handle& handle, rueda_result& result) RUEDA_REQUIRES(session_mutex);
  // Frees the handle, whose tensor ids are held no more.
  void give_handle(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Copies the results of a handle to the caller's memory, without the mutex. No other thread may
  // be ending the handle.
  void copy_out(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Gives the handle back, and returns `reason`. None of its operations may be in flight.
  Status refuse(Handle& handle, Status reason) RUEDA_EXCLUDES(session_mutex);
  // Puts the handle in flight, and returns its id. A join, a declared plan or a change of process
  // sets goes behind everything that this rank has submitted, including submissions that are held
  // back.
  rueda_handle push(Handle& handle, bool goes_behind_all) RUEDA_REQUIRES(session_mutex);
  void take_tickets(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Gives back the blocks and the device memory that the handle's operations use.
  void release(Handle& handle);
  // Releases and frees a handle for which nobody waits.
  void forget(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Returns false if the handle does not end in time.
  bool wait_for(MutexLock& lock, Handle& handle, int64_t timeout_ms) RUEDA_REQUIRES(session_mutex);

  const Config config_;
  DaemonLink link_;
  std::shared_ptr<ArenaAllocator> allocator_;
  bool rests_ = false;
  bool has_all_arenas_ = true;
  ProcessSets process_sets_;
  InternCache interned_;

  HandleTable handles_;
  Repeats repeats_ RUEDA_GUARDED_BY(session_mutex);
  // Counts the blocks of rueda_alloc that have been freed.
  uint64_t frees_ RUEDA_GUARDED_BY(session_mutex) = 0;
  rueda_stats stats_ RUEDA_GUARDED_BY(session_mutex){};

  DeviceSession device_;
  Callbacks callbacks_;
};

}  // namespace rueda::client
