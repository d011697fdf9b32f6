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
// It belongs to the session, and has one thread, the watchdog, while streams wait. Whoever calls a
// function that ends in `_locked` holds the link's mutex; the other functions take it themselves.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
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
#include "client/src/start/config.h"
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
  Status open_for(std::vector<TensorRequest>& requests, void* stream);
  // Fills in the handle's operations, one for each request. It waits for room for staged memory. An
  // error names the tensor.
  Status prepare(const std::vector<TensorRequest>& requests, Handle& handle);
  // Announces the inputs of the handle's tickets when the stream has done its work.
  Status announce(Handle& handle, void* stream);
  // Takes back the tickets of a handle that the daemon never saw.
  void take_back_locked(Handle& handle);
  // Makes the handle's operations visible to the daemon, at once or when the operations have ended
  // that streams wait for.
  void submit_locked(Handle& handle, void* stream);

  // Holds back a handle that goes behind everything that this rank has submitted. Returns false,
  // and does nothing, if nothing is held back.
  bool hold_back_behind_locked(Handle& handle);
  // Forgets what is held back: the job is over.
  void drop_held_back_locked() { held_back_.clear(); }
  // Returns the number of tickets that ended, and whose places no later ticket can have yet.
  size_t unread_count_locked() const { return unread_.size(); }
  // Returns true if such a ticket has the place of this one.
  bool is_unread_locked(uint64_t ticket);
  // Lets streams that wait for the operation go on: it has ended.
  void end_locked(Operation& operation);

  // Makes the stream wait until the operation has ended, whether or not it fails. The handle stays
  // valid.
  Status wait_on_stream(rueda_handle handle, void* stream);
  // Copies the handle's staged results to the device, and returns what rueda_wait() returns. No
  // other thread may have the handle.
  Status copy_out(Handle& handle);
  // Gives back the operation's staged block.
  void give_back(Operation& operation);
  // Says that the memory is about to be freed, or has been; that all frees are said so, or not.
  Status forget(const void* memory);
  void announce_frees(bool are_announced);
  rueda_device_stats stats() const;

  // Ends the job, and the watchdog. It is called once, before this object is destroyed.
  void stop();

 private:
  using Lock = DaemonLink::Lock;
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
  Status open(uint64_t address);
  DeviceMemories::Registrar registrar();
  Status remove_memory(uint32_t id);
  void say_staged(const Status& why) const;
  std::unique_ptr<StagedCopies> make_staged_copies(DeviceDriver& driver,
                                                   const rueda_abi_device_memory& counters);
  // `turn` is a lock of staging_mutex_, taken with the first block and kept for the rest of the
  // handle.
  Status prepare_one(const TensorRequest& request, Operation& operation,
                     std::unique_lock<std::mutex>& turn);
  // Takes a block, and waits for room. It is called without the link's mutex, by the thread that
  // holds staging_mutex_.
  Status stage(const TensorRequest& request, Operation& operation);
  // Copies results of operations to the device that have ended and that nobody has waited for yet,
  // so that their blocks become free.
  void copy_out_ended_locked();
  // Returns an error, which names an operation, if operations use memory between the two addresses,
  // or if their staged results are yet to be copied there.
  Status check_unused(uint64_t begin, uint64_t end);
  const Operation* user_of_locked(uint64_t begin, uint64_t end) const;
  // Checks that a handle is one with device memory, and that the stream can be told to wait for it.
  Status check_stream_of(rueda_handle id, void* stream);
  void show_held_back_locked();
  // Returns true if one of the handle's names is that of an operation in flight that a stream waits
  // for: the stream may know of its end already, and the daemon not yet.
  bool repeats_waited_locked(const Handle& handle) const;
  void start_watchdog_locked();
  void watch_streams();

  const Config& config_;
  DaemonLink& link_;
  HandleTable& handles_;
  InternCache& interned_;

  std::mutex mutex_;                    // is held while the first device memory is shared
  bool are_frees_announced_ = false;    // guarded by mutex_
  DeviceCounters* counters_ = nullptr;  // is set once, and lives as long as the process
  // Only one handle at a time takes blocks: two handles that each wait for the other's blocks would
  // wait for ever.
  std::mutex staging_mutex_;

  // The link's mutex guards what follows.
  uint64_t staged_submissions_ = 0;
  uint64_t submissions_ = 0;
  // Holds the numbers, which only grow, of operations in flight that streams wait for.
  std::set<uint64_t> stream_waits_;
  uint64_t all_stream_waits_ = 0;   // is the last number given in stream_waits_
  std::deque<HeldBack> held_back_;  // stands in the order of submission
  // Tickets that ended with an error before their streams had announced them: until the streams do,
  // no later ticket can have their place.
  std::vector<uint64_t> unread_;
  // The watchdog sleeps as other waiting threads do, while streams wait for operations: whatever
  // becomes of these threads, somebody is there to let the streams go on.
  std::thread watchdog_;
  std::condition_variable watch_changed_;
  bool watchdog_stops_ = false;
  // Both are set together. They come last: they may still ask the daemon when they are destroyed.
  std::unique_ptr<DeviceMemories> memories_;
  std::unique_ptr<StagedCopies> staged_copies_;
};

}  // namespace rueda::client
