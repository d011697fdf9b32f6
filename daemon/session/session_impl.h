// One client's connection, from its ATTACH to its end. Belongs to the loop.
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

#include "daemon/session/arena.h"
#include "daemon/session/device_table.h"
#include "daemon/session/foreign_stream.h"
#include "daemon/session/intern.h"
#include "daemon/session/loop_gate.h"
#include "daemon/session/session.h"
#include "daemon/session/shared_rings.h"
#include "daemon/session/wire.h"

namespace rueda::session {

class SessionImpl;

// Ends what is said of a client that has broken the protocol.
inline constexpr const char* kCorrupt = ": its memory is corrupt, or its library is not librueda";
// Requests that may wait for one that the engine answers later, or be such.
inline constexpr size_t kMaxAwaitedReplies = 256;

// The server, as its sessions see it. Outlives every session that is not closed.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  // Ok when one more process may attach.
  virtual Status check_room() const = 0;
  virtual void on_rejected(const Credentials& peer, const Status& why) = 0;
  // The owner forgets the session; it does no more.
  virtual void on_closed(SessionImpl& session) = 0;
  // The session has found its ring empty. True: look_at_ring() will be called, again and again, and
  // then rest(); nobody needs to ring.
  virtual bool keeps_watch(SessionImpl& session) = 0;
};

struct SessionSetup {
  boost::asio::io_context& loop;
  SessionEvents& events;
  SessionOwner& owner;
  const ServerOptions& options;
  std::shared_ptr<ArenaTotals> arena_totals;
  std::shared_ptr<uint64_t> last_content;  // of the server's submissions
  std::shared_ptr<LoopGate> gate;          // to the loop, for work at doors
};

class SessionImpl final : public Session, public std::enable_shared_from_this<SessionImpl> {
 public:
  // `waiting` is charged for as long as nobody has attached.
  SessionImpl(SessionSetup setup, ForeignSocket socket, const Credentials& peer, Charge waiting);

  // Waits for the ATTACH, at most options.handshake_timeout_ms.
  void start();
  // Ends everything at once, without events. Idempotent.
  void close();
  // Fails the session when memory that it shares has been lost (sigbus_guard.h).
  void check_memory();
  // Of a session that is watched. False: its ring is as it was.
  bool look_at_ring();
  void rest();

  bool is_attached() const { return state_ == State::kAttached || state_ == State::kFailing; }
  size_t submissions_in_flight() const { return in_flight_; }
  const Credentials& peer() const { return attach_.peer; }

  const Attach& attach() const override { return attach_; }
  uint32_t ring_capacity() const override { return setup_.options.ring_capacity; }
  std::vector<std::shared_ptr<Arena>> arenas() const override { return arenas_.all(); }
  void started(const Started& started) override;
  void complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors, Seq seq,
                uint32_t value) override;
  void device_memory_added(uint32_t id, const Status& status) override;
  void job_failed(const Status& status) override;
  void nonfinite(const NonfiniteNews* news) override;
  void flush() override;
  void look() override;
  void drop() override;

 private:
  enum class State {
    kGreeting,  // no ATTACH yet
    kDeciding,  // inside on_attach
    kAttached,
    kFailing,  // on_lost is on its way
    kClosed,
  };
  // What was submitted last under tickets of one place (modulo the ring's capacity). It is kept
  // when it has ended: a training step submits the same again, and then it need not be checked.
  struct alignas(64) Place {
    rueda_abi_submission record{};  // a cache line
    bool is_in_flight = false;
    Submission submission;  // what `record` says, if it has been checked: then it has a content

    bool uses_device(uint32_t memory) const {
      return submission.input.device_memory == memory || submission.output.device_memory == memory;
    }
    bool uses(const Arena* arena) const {
      return submission.input.arena.get() == arena || submission.output.arena.get() == arena;
    }
  };

  // What throws ends the session.
  void guarded(const std::function<void()>& work);
  void wait_readable();
  void on_readable();
  MessageReader::Read take_message();
  void on_read(MessageReader::Read read);
  // The rest of the message is received at the door, which comes back to the loop.
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
  // The engine is to see whether it can be used.
  void ask_for(Result<DeviceMemory> memory);
  void seal_at_door(ForeignFd memory);
  void handle_device_remove();
  void handle_detach();

  void wait_doorbell();
  void drain();
  // The client has had many looks for nothing: it gets the next one later. False: it may have one.
  bool pauses();
  void end_pause();
  void tell_waiting();
  void take_record(const rueda_abi_submission& record);
  Place& place_of(Ticket ticket);

  void send(uint16_t type, const void* body, size_t body_bytes);
  void send_status(uint16_t type, const Status& status, uint32_t value = 0);
  // To requests, in their order: what is asked of the engine may be answered later.
  void answer(const Status& status, uint32_t value = 0);
  void send_replies();
  void flush_socket();
  rueda_abi_attach_reply attach_reply(const Status& status) const;
  void refuse(const Status& why);

  // "rank 3 (pid 1234)".
  std::string who() const;
  // Posts the end, so that no event comes from inside a call of the engine's. `what` follows who().
  void fail(const std::string& what);
  void finish();

  SessionSetup setup_;
  ForeignStream socket_;
  boost::asio::posix::stream_descriptor doorbell_;
  UniqueFd unheard_doorbell_;  // the same, while this pauses
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer pause_;
  std::chrono::microseconds pause_for_;  // the next one
  State state_ = State::kGreeting;
  Status failure_;  // while kFailing
  Attach attach_;
  Charge waiting_;   // until it has attached
  Charge attached_;  // from then on
  // A door's, while that has it; what the door did with an arena comes with the message.
  struct Incoming {
    explicit Incoming(uid_t user) : reader(user) {}
    // At the door, once the message is there.
    void prepare(const Account& account);
    MessageReader reader;
    std::optional<Result<ArenaMemory>> arena;
  };
  std::shared_ptr<Incoming> incoming_;
  bool is_at_door_ = false;
  MessageWriter writer_;
  bool is_waiting_writable_ = false;
  std::optional<SharedRings> rings_;
  TensorTable tensors_;
  ArenaTable arenas_;
  DeviceTable devices_;
  std::map<uint32_t, Charge> pinned_;  // by memory
  struct Reply {
    Status status;
    uint32_t value = 0;
    bool is_known = true;  // false: it is for memory `value`, and awaited
    ForeignFd to_seal;     // of that memory, once it is mapped
  };
  std::deque<Reply> replies_;  // the first is awaited
  std::vector<Place> places_;  // grows with the highest place used
  size_t in_flight_ = 0;
  uint64_t told_waiting_ = 0;  // by the last on_waiting
  bool is_watched_ = false;    // no doorbell is to be rung
  int looks_for_nothing_ = 0;  // since the last record
  bool is_paused_ = false;
  bool is_doorbell_awaited_ = false;
  bool has_undrained_ = false;  // on_submit was called since the last on_submissions_drained
  bool has_news_ = false;       // the next completion is to say so
  bool has_unflushed_ = false;  // completions were written since the last flush
};

}  // namespace rueda::session
