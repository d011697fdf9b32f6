// One attached client: the socket, the two rings, and what is in flight. No thread of its own, but
// for streams that wait (session_device.cc): who waits does the work. One waiting thread polls the
// socket and the doorbell, the others sleep on a condition variable until it hands over.
//
// Every public method may be called from any thread, except that the destructor must run alone.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/device/counters.h"
#include "client/src/device/memories.h"
#include "client/src/device/staged_copies.h"
#include "client/src/request/process_sets.h"
#include "client/src/request/repeats.h"
#include "client/src/request/tensor.h"
#include "client/src/start/config.h"
#include "client/src/wire/allocator.h"
#include "client/src/wire/connection.h"
#include "client/src/wire/rings.h"
#include "daemon/base/status.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::client {

class Session {
 public:
  // Attaches and waits until every rank has done so, or config.timeout_ms have passed.
  static Result<std::unique_ptr<Session>> attach(const Config& config);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const rueda_abi_started& place() const { return place_; }
  const Config& config() const { return config_; }

  // Stages what is foreign, and submits all requests as one (a group, or a single tensor). Waits
  // for room if too much is in flight.
  Result<rueda_handle> submit(const std::vector<TensorRequest>& requests);
  // The same in short, for allreduces all of which were submitted before in the same memory, and
  // for which there is room. Nothing: not so, and nothing has been done. group "": not grouped.
  std::optional<rueda_handle> submit_again(std::span<const rueda_tensor> tensors,
                                           const rueda_reduce_options* options,
                                           std::string_view group);
  // Tensors in device memory, whose inputs are there when the stream has done what it has now;
  // RUEDA_NO_STREAM: they are there. Waits for nothing but room. The daemon hears of them when all
  // has ended that streams have been told to wait for.
  Result<rueda_handle> submit_on_device(std::vector<TensorRequest> requests, void* stream);
  // The stream goes on when the operation has ended, well or not. The handle stays.
  Status wait_on_stream(rueda_handle handle, void* stream);
  Status forget_device_memory(const void* memory);
  void announce_device_frees(bool are_announced);
  rueda_device_stats device_stats() const;
  // timeout_ms < 0: for ever. kTimeout leaves the handle as it is; any other end takes it away.
  Status wait(rueda_handle handle, int64_t timeout_ms, rueda_result* result);
  // The place of one that has ended, to be waited for. kTimeout: of none.
  Result<size_t> wait_any(std::span<const rueda_handle> handles, int64_t timeout_ms);
  Result<bool> test(rueda_handle handle);
  // Nobody will wait for it: what it holds is freed when it has ended. Its output stays untouched
  // if that is foreign memory, else it changes until then.
  void abandon(rueda_handle handle);

  // What all ranks of the job do together; waits for them.
  Result<uint32_t> add_process_set(const int32_t* ranks, int32_t count);
  Status remove_process_set(uint32_t id);
  Status declare_plan(std::span<const rueda_planned_tensor> tensors);
  // "": the timeline is to end.
  Status request_timeline(const std::string& path, bool wants_chunks);
  // As far as this process has been told; looks for news.
  std::optional<rueda_abi_nonfinite> first_nonfinite();
  const ProcessSets& process_sets() const { return *process_sets_; }

  Result<void*> allocate(size_t bytes);
  // kInvalidArgument while an operation uses the memory.
  Status free(void* memory);
  rueda_stats stats() const;

  // Waits for what is in flight, at most timeout_ms, and says goodbye, waiting as long again for
  // the answer. Nothing may be submitted afterwards. kTimeout names what was still in flight.
  Status detach(int64_t timeout_ms);
  // For the end of the process: says goodbye if nothing is in flight and nobody else is at work.
  void detach_if_idle(int64_t timeout_ms);
  // In a forked child: closes the inherited descriptors. Async-signal-safe.
  void close_in_child();

  // Outlives the session while blocks of rueda_alloc live.
  std::shared_ptr<ArenaAllocator> allocator() const { return allocator_; }

 private:
  struct Handle;
  // One submission on its way.
  struct Operation {
    Handle* handle = nullptr;
    std::string_view name;  // lives as long as it is in flight
    rueda_abi_submission record{};
    std::byte* staging = nullptr;       // block of the allocator, freed at the end
    const std::byte* result = nullptr;  // in it
    std::byte* output = nullptr;        // where that is copied to at the end; NULL: nowhere
    size_t output_bytes = 0;
    size_t bytes = 0;  // of the input or the output, whichever has more
    const std::byte* arena_data[2] = {nullptr,
                                      nullptr};        // the caller's memory in use, if in an arena
    std::array<std::shared_ptr<const void>, 2> joins;  // of device memory, in use
    std::array<std::span<const std::byte>, 2> on_device;  // the caller's memory there
    std::optional<StagedCopies::Block> staged;            // which the worker has in their place
    bool is_result_on_own_stream = false;                 // of the staged copies
    bool is_done = false;
    bool is_ok = false;
    bool is_on_device = false;
    bool holds_tensor = false;  // the record's, which is to be released
    uint64_t stream_wait = 0;   // its number in stream_waits_, while a stream waits for it

    void begin(Handle& of);
    // A staged one's, that somebody is to copy to the device, or has.
    bool has_staged_result() const;
  };
  // Used again and again, so that a submission allocates nothing.
  struct Handle {
    rueda_handle id = 0;  // 0: of nobody, or being ended
    uint32_t place = 0;   // in handles_
    bool is_abandoned = false;
    bool is_staged = false;      // some operation is
    bool holds_tensors = false;  // some operation does
    // Tensors that are repeated under these ids no more. Until this one has ended, there may be
    // submissions of them in the ring: they are before it.
    std::vector<uint32_t> outdated;
    uint64_t copied_in_bytes = 0;
    std::vector<Operation> operations;
    size_t pending = 0;
    Status error;  // of the operation that failed first
    rueda_result result{};
  };
  // A request that the daemon has not answered.
  struct PendingReply {
    bool is_answered = false;
    rueda_abi_status reply{};
  };
  using Lock = std::unique_lock<std::mutex>;
  // The daemon answers a request at once; one that does not is stuck. Only a GPU worker, for which
  // the first memory waits, takes its time to start.
  static constexpr TicksMs kRequestTimeoutMs = 30'000;
  static constexpr TicksMs kDeviceTimeoutMs = 90'000;

  explicit Session(Config config);
  Status handshake();
  Status take_rings(const Message& message);
  Result<rueda_abi_started> wait_started(TicksMs deadline_ms);

  // Waiting (session_wait.cc).
  // is_brief: what is waited for may take microseconds.
  bool wait_until(Lock& lock, const std::function<bool()>& is_reached,
                  std::optional<TicksMs> deadline_ms, bool is_brief = false);
  void ring_daemon();
  // Whether a completion came before it was time to sleep.
  bool yield_once(Lock& lock);
  void poll_once(Lock& lock, std::optional<TicksMs> deadline_ms);
  void drain_completions();
  void complete(const rueda_abi_completion& record, std::string_view text);
  void read_socket();
  void on_message(const Message& message);
  void on_nonfinite(const Message& message);
  // Before a goodbye, where values are checked: waits a moment for what may be on its way.
  void ask_nonfinite(Lock& lock);
  // Ends everything that is in flight, and all that comes later, with this reason. The first wins.
  void end_all(Status reason);
  Result<uint32_t> request(uint16_t type, const void* body, size_t body_bytes, int descriptor,
                           TicksMs timeout_ms = kRequestTimeoutMs);

  // Operations (operations.cc).
  Result<uint32_t> intern(const rueda_abi_intern& descriptor, std::span<const int64_t> counts);
  Status prepare(const TensorRequest& request, Operation& operation);
  Result<uint32_t> change_process_sets(const rueda_abi_process_set& change);
  // Submits what moves no data, and waits for its end. What its completion says.
  Result<uint32_t> agree(uint32_t tensor_id, const char* name);
  // Waits for room; the error says why there will be none.
  Status wait_for_room(Lock& lock, size_t operations);
  // What is foreign goes through a block of the allocator.
  Status stage(const TensorRequest& request, bool stages_input, bool stages_output,
               Operation& operation);
  static void note_copied_in(const TensorRequest& request, Operation& operation);
  // The same characters, which live as long as something in flight has them.
  std::string_view kept_name_locked(std::string_view name);
  bool has_room_locked(size_t operations) const {
    return in_flight_count_ + unread_.size() + operations <= max_in_flight_;
  }
  Handle& take_handle_locked(size_t operations);
  void give_handle_locked(Handle& handle);
  // Of one that nobody else ends any more: copies out what is to be, without the lock.
  void copy_out(Lock& lock, Handle& handle);
  // Null: unknown, or ended.
  Handle* find_handle_locked(rueda_handle id);
  // Nothing of it is in flight.
  Status refuse(Handle& handle, Status reason);
  rueda_handle push_locked(Handle& handle);
  // Of what says that this rank gives no more, or of what it gives: behind all that it has given.
  rueda_handle push_behind_locked(Handle& handle);
  void take_tickets_locked(Handle& handle);
  // The daemon sees them.
  rueda_handle show_locked(Handle& handle);
  uint64_t next_ticket_locked();
  Operation*& in_flight_place(uint64_t ticket) { return in_flight_[ticket & (max_in_flight_ - 1)]; }
  const Operation* first_in_flight_locked() const;
  void release(Handle& handle);
  void forget_locked(Handle& handle);
  bool wait_for_locked(Lock& lock, const Handle& handle, int64_t timeout_ms);
  std::string outstanding_names_locked(const Handle& handle) const;
  Status check_group_size(const std::vector<TensorRequest>& requests) const;

  // Device memory (session_device.cc).
  // The first one, wherever it is, says which GPU's worker there will be.
  Status open_device(uint64_t address);
  // `turn`, of staging_mutex_, is taken when a block is, and kept for the rest of the handle.
  Status prepare_on_device(const TensorRequest& request, Operation& operation,
                           std::unique_lock<std::mutex>& turn);
  DeviceMemories::Registrar device_registrar();
  Status remove_device_memory(uint32_t id);
  // Whether operations use what lies between two addresses, or their staged results are yet to come
  // there: an error that names one.
  Status check_device_unused(uint64_t begin, uint64_t end);
  const Operation* user_of_locked(uint64_t begin, uint64_t end) const;
  // Of a handle that is on the device, whether the stream can be told to wait for it.
  Status check_stream_of(rueda_handle id, void* stream);
  // Some of it; 0: the tensor is empty.
  static uint64_t memory_of(const Operation& operation);
  // Its tickets' inputs are announced; without the lock.
  Status announce(Handle& handle, void* stream);
  // Of tickets that the daemon never saw.
  void take_back_locked(Handle& handle);
  // Whoever waits for it on a stream goes on.
  void end_on_device_locked(Operation& operation);
  void show_held_back_locked();
  // Whether one of its names is that of something in flight that a stream waits for: the stream may
  // know of its end already, and the daemon not yet.
  bool repeats_waited_locked(const Handle& handle);
  bool is_unread_locked(uint64_t ticket);
  void watch_streams();

  // Device memory that the GPU worker cannot open (session_staging.cc).
  void say_staged(const Status& why) const;
  std::unique_ptr<StagedCopies> make_staged_copies(DeviceDriver& driver,
                                                   const rueda_abi_device_memory& counters);
  // Takes a block, and waits for room; without the lock, and in its turn.
  Status stage_on_device(const TensorRequest& request, Operation& operation);
  // What has ended and nobody has waited for yet goes to the device, so that its blocks come free.
  void copy_out_ended_locked();
  // What rueda_wait() gives; nobody else has the handle.
  Status copy_out_staged(Handle& handle);

  Config config_;
  std::unique_ptr<Connection> connection_;
  UniqueFd daemon_doorbell_;
  UniqueFd client_doorbell_;
  SubmissionRing submissions_;
  CompletionRing completions_;
  uint32_t max_in_flight_ = 0;
  rueda_abi_started place_{};
  std::shared_ptr<ArenaAllocator> allocator_;
  std::unique_ptr<InternCache> interned_;
  std::unique_ptr<ProcessSets> process_sets_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_leaving_ = false;     // said goodbye: the end of the stream is expected
  bool is_polled_ = false;      // a thread sleeps in poll, or is about to
  YieldingWait yielding_;       // of that thread
  uint64_t waited_ticket_ = 0;  // what wait() was last called for, while it lasts
  std::optional<Status> over_;
  std::deque<PendingReply*> pending_replies_;
  std::vector<std::unique_ptr<Handle>> handles_;
  std::vector<Handle*> free_handles_;
  uint64_t handles_taken_ = 0;
  // By ticket modulo capacity; owned by the handles.
  std::vector<Operation*> in_flight_;
  size_t places_used_ = 0;  // no place beyond was ever taken
  size_t in_flight_count_ = 0;
  uint64_t last_ticket_ = 0;
  std::unordered_set<std::string> names_;  // of what was no repetition
  size_t names_swept_at_ = InternCache::kMost;
  Repeats repeats_;
  bool has_news_ = false;            // lies on the socket
  bool is_nonfinite_known_ = false;  // the daemon has said the first, or, asked, that there is none
  std::optional<rueda_abi_nonfinite> first_nonfinite_;
  uint64_t frees_ = 0;  // blocks of rueda_alloc that have ended
  rueda_stats stats_{};

  std::mutex device_mutex_;                  // held while the first device memory is shared
  bool device_frees_are_announced_ = false;  // under device_mutex_
  DeviceCounters* counters_ = nullptr;       // set once; lives as long as the process
  std::unique_ptr<DeviceMemories> device_memories_;
  std::unique_ptr<StagedCopies> staged_copies_;  // there with device_memories_
  // One handle at a time takes blocks: two that each wait for what the other has would wait for
  // ever.
  std::mutex staging_mutex_;
  uint64_t staged_submissions_ = 0;
  uint64_t device_submissions_ = 0;
  std::set<uint64_t> stream_waits_;  // of operations in flight: their numbers, which only grow
  uint64_t all_stream_waits_ = 0;    // so far: the last number
  // What the daemon does not see yet: a stream may come to its input only when it has the results
  // of others, which the daemon must not put into one batch with it.
  struct HeldBack {
    Handle* handle = nullptr;
    uint64_t behind = 0;  // until no number up to this one is in stream_waits_
  };
  std::deque<HeldBack> held_back_;  // in the order of submission
  // Tickets that ended, with an error, before their streams had announced them: until they do, a
  // later ticket cannot have their place.
  std::vector<uint64_t> unread_;
  // Sleeps as other threads that wait do, while streams wait for operations: whatever becomes of
  // these, somebody is there to let the streams go on.
  std::thread watchdog_;
  std::condition_variable watch_changed_;
  bool watchdog_stops_ = false;
};

}  // namespace rueda::client
