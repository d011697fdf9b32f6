// One client's connection, from its ATTACH to its end. It belongs to the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/handler_watch.h"
#include "daemon/base/loop_gate.h"
#include "daemon/base/turns.h"
#include "daemon/session/memory/arena.h"
#include "daemon/session/memory/device_table.h"
#include "daemon/session/memory/kept_arenas.h"
#include "daemon/session/memory/shared_rings.h"
#include "daemon/session/records/wire.h"
#include "daemon/session/server/foreign_stream.h"
#include "daemon/session/session.h"
#include "daemon/session/submissions/intern.h"

namespace rueda::session {

class SessionImpl;

// The end of every error about a client that has broken the protocol.
inline constexpr const char* kCorrupt = ": its memory is corrupt, or its library is not librueda";
// The most replies that a session queues: requests that the engine answers later, and requests that
// wait behind one of those.
inline constexpr size_t kMaxAwaitedReplies = 256;
// In a turn of the loop an owner's sessions, however many they are, handle so many records, and go
// on for so long; then other owners have theirs.
inline constexpr int64_t kRecordsPerTurn = 1024;
inline constexpr std::chrono::milliseconds kLongestTurn{1};

// The server's interface for its sessions. It outlives every session that is not closed.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  // Returns ok if one more process may attach.
  virtual Status check_room() const = 0;
  virtual void on_rejected(const Credentials& peer, const Status& why) = 0;
  // The owner forgets the session, which does nothing more.
  virtual void on_closed(SessionImpl& session) = 0;
  // The session has found its ring empty. If this returns true, look_at_ring() will be called again
  // and again, and rest() at the end; until then the client need not ring.
  virtual bool keeps_watch(SessionImpl& session) = 0;
  // The process of a session that ends will come back, and keeps these arenas and this connection
  // until then.
  virtual void keep(ForeignSocket connection, const Credentials& peer,
                    const std::vector<std::shared_ptr<Arena>>& arenas) = 0;
};

struct SessionSetup {
  boost::asio::io_context& loop;
  SessionEvents& events;
  SessionOwner& owner;
  const ServerOptions& options;
  std::shared_ptr<ArenaTotals> arena_totals;
  std::shared_ptr<KeptArenas> kept_arenas;
  // The content of the last submission that any session of the server checked.
  std::shared_ptr<uint64_t> last_content;
  std::shared_ptr<LoopGate> gate;       // The way back to the loop, for work at doors.
  std::shared_ptr<Turns::Party> turns;  // The owner's, which is charged with records.
};

class SessionImpl final : public Session, public std::enable_shared_from_this<SessionImpl> {
 public:
  // `waiting` is kept until the client has attached.
  SessionImpl(SessionSetup setup, ForeignSocket socket, const Credentials& peer, Charge waiting);

  // Waits for the ATTACH, at most options.handshake_timeout_ms.
  void start();
  // Ends everything at once, without events. The call is idempotent.
  void close();
  // Fails the session if memory that it shares has been lost (sigbus_guard.h).
  void check_memory();
  // Both are called only while the server watches this session (keeps_watch). look_at_ring()
  // handles what is new in the ring, and returns false if there is nothing; rest() ends the watch,
  // so that the client has to ring again.
  bool look_at_ring();
  void rest();

  bool is_attached() const { return state_ == State::kAttached || state_ == State::kFailing; }
  size_t submissions_in_flight() const { return in_flight_; }
  const Credentials& peer() const { return attach_.peer; }

  const Attach& attach() const override { return attach_; }
  uint32_t ring_capacity() const override { return setup_.options.ring_capacity; }
  std::vector<std::shared_ptr<Arena>> arenas() const override { return arenas_.all(); }
  void deal(Rank rank, LocalRank local_rank) override {
    attach_.rank = rank;
    attach_.local_rank = local_rank;
  }
  void started(const Started& started) override;
  void complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors, Seq seq,
                uint32_t value) override;
  void device_memory_added(uint32_t id, const Status& status) override;
  void job_failed(const Status& status) override;
  void hosts_changed() override;
  void nonfinite(const NonfiniteNews* news) override;
  void flush() override;
  void look() override;
  void drop() override;

 private:
  enum class State {
    kGreeting,  // The ATTACH has not come yet.
    kDeciding,  // The session is inside on_attach.
    kAttached,
    kFailing,  // on_lost has been posted.
    kClosed,
  };
  // The last submission under a ticket of this place (the ticket modulo the ring's capacity). It is
  // kept when it has ended: a training step submits the same again, which then need not be checked.
  struct alignas(64) Place {
    rueda_abi_submission record{};  // It has the size of a cache line.
    bool is_in_flight = false;
    // The checked form of `record`; its content is 0 if `record` has not been checked.
    Submission submission;

    bool uses_device(uint32_t memory) const {
      return submission.input.device_memory == memory || submission.output.device_memory == memory;
    }
    bool uses(const Arena* arena) const {
      return submission.input.arena.get() == arena || submission.output.arena.get() == arena;
    }
  };

  // Does the work; an exception of the work ends the session.
  void guarded(const std::function<void()>& work);
  void wait_readable();
  void on_readable();
  MessageReader::Read take_message();
  void on_read(MessageReader::Read read);
  // Receives the rest of the message at the door, which posts back to the loop.
  void receive_at_door();
  void handle_message();
  void handle_attach();
  Status prepare_attach(const rueda_abi_attach& abi);
  void handle_arena_add();
  void handle_arena_remove();
  void handle_intern();
  void handle_process_set();
  void handle_plan();
  void handle_counts();
  void handle_forget();
  void handle_timeline();
  void handle_device_add();
  void handle_device_join();
  // Asks the engine to find out whether the memory can be used.
  void ask_for(Result<DeviceMemory> memory);
  void seal_at_door(ForeignFd memory);
  void handle_device_remove();
  void handle_detach();
  void handle_reset();

  void wait_doorbell();
  // Takes what is in the submission ring, now or in the owner's next turn.
  void drain();
  void drain_later();
  std::shared_ptr<const Cause> make_cause();
  // Returns true while the session pauses, and begins a pause if the ring has been looked at too
  // often in vain; returns false if the session may look at the ring now.
  bool pauses();
  void end_pause();
  void tell_waiting();
  void take_record(const rueda_abi_submission& record);
  Place& place_of(Ticket ticket);

  void send(uint16_t type, const void* body, size_t body_bytes);
  void send_status(uint16_t type, const Status& status, uint32_t value = 0);
  // Answers requests in their order: a request that the engine answers later holds up those behind
  // it.
  void answer(const Status& status, uint32_t value = 0);
  void send_replies();
  void flush_socket();
  rueda_abi_attach_reply attach_reply(const Status& status) const;
  void refuse(const Status& why);

  // Returns a name such as "rank 3 (pid 1234)".
  std::string who() const;
  // Posts the end of the session, so that no event comes from inside a call of the engine's. `what`
  // follows who() in the error's text.
  void fail(const std::string& what);
  void finish();

  SessionSetup setup_;
  ForeignStream socket_;
  boost::asio::posix::stream_descriptor doorbell_;
  UniqueFd unheard_doorbell_;  // The doorbell, while the session pauses.
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer pause_;
  std::chrono::microseconds pause_for_;  // The length of the next pause.
  State state_ = State::kGreeting;
  Status failure_;  // Set while the state is kFailing.
  Attach attach_;
  std::shared_ptr<const Cause> cause_;  // This client, for the loop's watch.
  Charge waiting_;                      // It is charged until the client has attached.
  Charge attached_;                     // It is charged once the client has attached.
  // The message that is being read. It belongs to the door while is_at_door_ is true; the arena
  // that the door has mapped travels with the message.
  struct Incoming {
    explicit Incoming(Principal principal) : reader(std::move(principal)) {}
    // Maps the message's arena, if it brings one, or finds that the process has had it before. It
    // is called at the door once the message is complete.
    void prepare(const Account& account, const Credentials& peer, KeptArenas& kept);
    MessageReader reader;
    std::optional<Result<ArenaMemory>> arena;
    std::shared_ptr<Arena> kept;
  };
  std::shared_ptr<Incoming> incoming_;
  bool is_at_door_ = false;
  MessageWriter writer_;
  bool is_waiting_writable_ = false;
  std::optional<SharedRings> rings_;
  TensorTable tensors_;
  ArenaTable arenas_;
  DeviceTable devices_;
  std::map<uint32_t, Charge> pinned_;  // The key is the id of the memory.
  struct Reply {
    Status status;
    uint32_t value = 0;
    bool is_known = true;  // If false, the engine's answer for memory `value` is awaited.
    ForeignFd to_seal;  // The memory's descriptor, which is sealed once the worker has mapped it.
  };
  std::deque<Reply> replies_;  // The first of them is always an awaited one.
  std::vector<Place> places_;  // The vector grows with the highest place used.
  size_t in_flight_ = 0;
  uint64_t told_waiting_ = 0;  // The ticket of the last on_waiting; 0 if the client waits for none.
  bool is_watched_ = false;    // If true, the client need not ring.
  bool awaits_turn_ = false;   // drain() will be called in a turn of the owner's.
  int looks_for_nothing_ = 0;  // Looks in vain since the last record.
  bool is_paused_ = false;
  bool is_doorbell_awaited_ = false;
  bool has_undrained_ = false;  // on_submit was called since the last on_submissions_drained.
  // The next completion has to tell the client that its socket has a message.
  bool has_news_ = false;
  bool has_unflushed_ = false;  // Completions were written since the last flush.
};

}  // namespace rueda::session
