// The part of a session that knows of device memory. Ranks and the GPU worker wait for each other
// by counters (device/counters.h); operations on device memory end by completions like all others.
//
// An operation that a stream has been told to wait for holds back later submissions until it has
// ended: their inputs may come after it on the stream, and if both shared a batch, each would wait
// for the other. The submitting call returns at once, and the daemon sees the submission later.
//
// Device memory that the GPU worker cannot open is staged: a stream copies it to pinned host memory
// (device/staged_copies.h), which the worker reads and writes in its place. The result is copied
// back by the stream of rueda_device_wait, or by rueda_wait.
//
// It belongs to the session, and has one thread, the watchdog, while streams wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/device/counters.h"
#include "client/src/device/memories.h"
#include "client/src/device/staged_copies.h"
#include "client/src/request/tensor.h"
#include "client/src/session/daemon_link.h"
#include "client/src/session/handle_table.h"
#include "client/src/session/operation.h"
#include "client/src/session/session_mutex.h"
#include "client/src/start/config.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

class DeviceSession {
 public:
  // All of these must outlive this object.
  DeviceSession(const Config& config, DaemonLink& link, HandleTable& handles, InternCache& interned)
      : config_(config), link_(link), handles_(handles), interned_(interned) {}
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  // These are the steps of a submission, in their order.
  // Sets up device memory if this is the first, and checks that the stream can be told of the
  // requests, whose descriptors it completes.
  Status open_for(std::vector<TensorRequest>& requests, void* stream) RUEDA_EXCLUDES(session_mutex);
  // Fills in the handle's operations, one for each request. It waits for room for staged memory. An
  // error names the tensor.
  Status prepare(const std::vector<TensorRequest>& requests, Handle& handle)
      RUEDA_EXCLUDES(session_mutex);
  // Announces the inputs of the handle's tickets when the stream has done its work. A stream with
  // much work may block the caller: other threads must not wait for that.
  Status announce(Handle& handle, void* stream) RUEDA_EXCLUDES(session_mutex);
  // Takes back the tickets of a handle that the daemon never saw.
  void take_back(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Makes the handle's operations visible to the daemon, at once or when the operations have ended
  // that streams wait for.
  void submit(Handle& handle, void* stream) RUEDA_REQUIRES(session_mutex);

  // Holds back a handle that goes behind everything that this rank has submitted. Returns false,
  // and does nothing, if nothing is held back.
  bool hold_back_behind(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Forgets what is held back: the job is over.
  void drop_held_back() RUEDA_REQUIRES(session_mutex) { held_back_.clear(); }
  // Returns the number of tickets that ended, and whose places no later ticket can have yet.
  size_t unread_count() const RUEDA_REQUIRES(session_mutex) { return unread_.size(); }
  // Returns true if such a ticket has the place of this one.
  bool is_unread(uint64_t ticket) RUEDA_REQUIRES(session_mutex);
  // Lets streams that wait for the operation go on: it has ended.
  void end(Operation& operation) RUEDA_REQUIRES(session_mutex);

  // Makes the stream wait until the operation has ended, whether or not it fails. The handle stays
  // valid.
  Status wait_on_stream(rueda_handle handle, void* stream) RUEDA_EXCLUDES(session_mutex);
  // Copies the handle's staged results to the device, and returns what rueda_wait() returns. No
  // other thread may have the handle.
  Status copy_out(Handle& handle) RUEDA_EXCLUDES(session_mutex);
  // Gives back the operation's staged block.
  void give_back(Operation& operation);
  // Says that the memory is about to be freed, or has been; that all frees are said so, or not.
  Status forget(const void* memory) RUEDA_EXCLUDES(session_mutex);
  void announce_frees(bool are_announced);
  // See watch_allocator(); it is for all sessions of the process.
  static Status watch_frees(std::string_view library);
  rueda_device_stats stats() const RUEDA_EXCLUDES(session_mutex);

  // Ends the job, and the watchdog. It is called once, before this object is destroyed.
  void stop() RUEDA_EXCLUDES(session_mutex);

 private:
  // A submission that the daemon does not see yet: a stream may get to its input only when it has
  // the results of other operations, so the daemon must not put both into one batch.
  struct HeldBack {
    Handle* handle = nullptr;
    uint64_t behind = 0;  // it is shown when stream_waits_ has no number up to this one
  };
  // Only the start of the GPU worker, for which the first memory waits, takes longer than other
  // requests.
  static constexpr TicksMs kTimeoutMs = 90'000;

  // Sets up device memory for the process. The first address decides which GPU the worker uses.
  Status open(uint64_t address) RUEDA_EXCLUDES(session_mutex);
  DeviceMemories::Registrar registrar();
  Status remove_memory(uint32_t id) RUEDA_EXCLUDES(session_mutex);
  void say_staged(const Status& why) const;
  std::unique_ptr<StagedCopies> make_staged_copies(DeviceDriver& driver,
                                                   const rueda_abi_device_memory& counters);
  // Fills in an operation, and says in is_staged whether it still needs a block.
  Status prepare_one(const TensorRequest& request, Operation& operation, bool& is_staged)
      RUEDA_EXCLUDES(session_mutex);
  // Takes a block for the operation, and waits for room.
  Status stage(const TensorRequest& request, Operation& operation) RUEDA_REQUIRES(staging_mutex_)
      RUEDA_EXCLUDES(session_mutex);
  // Copies results of operations to the device that have ended and that nobody has waited for yet,
  // so that their blocks become free.
  void copy_out_ended() RUEDA_REQUIRES(session_mutex);
  // Returns an error, which names an operation, if operations use memory between the two addresses,
  // or if their staged results are yet to be copied there.
  Status check_unused(uint64_t begin, uint64_t end) RUEDA_EXCLUDES(session_mutex);
  const Operation* user_of(uint64_t begin, uint64_t end) const RUEDA_REQUIRES(session_mutex);
  // Checks that a handle is one with device memory, and that the stream can be told to wait for it.
  Status check_stream_of(rueda_handle id, void* stream) RUEDA_EXCLUDES(session_mutex);
  void show_held_back() RUEDA_REQUIRES(session_mutex);
  // Returns true if one of the handle's names is that of an operation in flight that a stream waits
  // for: the stream may know of its end already, and the daemon not yet.
  bool repeats_waited(const Handle& handle) const RUEDA_REQUIRES(session_mutex);
  void start_watchdog() RUEDA_REQUIRES(session_mutex);
  void watch_streams() RUEDA_EXCLUDES(session_mutex);

  const Config& config_;
  DaemonLink& link_;
  HandleTable& handles_;
  InternCache& interned_;

  Mutex mutex_;  // is held while the first device memory is shared
  bool are_frees_announced_ RUEDA_GUARDED_BY(mutex_) = false;
  // Only one handle at a time takes blocks: two handles that each wait for the other's blocks would
  // wait for ever.
  Mutex staging_mutex_;
  // Counts the blocks that the handle has that takes them.
  size_t blocks_of_turn_ RUEDA_GUARDED_BY(staging_mutex_) = 0;

  uint64_t staged_submissions_ RUEDA_GUARDED_BY(session_mutex) = 0;
  uint64_t submissions_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // Holds the numbers, which only grow, of operations in flight that streams wait for.
  std::set<uint64_t> stream_waits_ RUEDA_GUARDED_BY(session_mutex);
  // Is the last number given in stream_waits_.
  uint64_t all_stream_waits_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // Stands in the order of submission.
  std::deque<HeldBack> held_back_ RUEDA_GUARDED_BY(session_mutex);
  // Tickets that ended with an error before their streams had announced them: until the streams do,
  // no later ticket can have their place.
  std::vector<uint64_t> unread_ RUEDA_GUARDED_BY(session_mutex);
  // The watchdog sleeps as other waiting threads do, while streams wait for operations: whatever
  // becomes of these threads, somebody is there to let the streams go on.
  std::thread watchdog_ RUEDA_GUARDED_BY(session_mutex);
  Condition watch_changed_;
  bool watchdog_stops_ RUEDA_GUARDED_BY(session_mutex) = false;
  // These are set together, once, under both mutexes, by open(). Who has called open(), or has an
  // operation on device memory, reads them without; all others hold one of the two. The counters
  // live as long as the process. The other two come last: they may still ask the daemon when they
  // are destroyed.
  DeviceCounters* counters_ = nullptr;
  std::unique_ptr<DeviceMemories> memories_;
  std::unique_ptr<StagedCopies> staged_copies_;
};

}  // namespace rueda::client
