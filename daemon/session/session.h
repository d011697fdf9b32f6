// The local side of the daemon, as the engine sees it: sessions, one for each attached training
// process, and what they ask for. Everything here belongs to one loop, the control loop;
// docs/abi.md has the formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <sys/types.h>

#include "client/abi/rueda_abi.h"
#include "daemon/base/fd.h"
#include "daemon/base/poll_source.h"
#include "daemon/base/principal.h"
#include "daemon/base/status.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/session/users/doors.h"
#include "daemon/session/users/ledger.h"

namespace rueda::session {

// The credentials of a connection's peer, from SO_PEERCRED, and whose the peer is: its user's,
// unless the socket that it has connected to has a name.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  Principal principal = Principal::user(uid);
};

// A client's memfd, mapped. It stays mapped while anybody holds it, even after its client has died.
class Arena;

// A checked piece of an arena or of GPU memory: it lies inside that memory, is aligned to the
// element's size, and is as long as the rank's part of the descriptor.
struct Buffer {
  std::shared_ptr<Arena> arena;
  std::byte* data = nullptr;
  size_t bytes = 0;
  // These two replace the arena for a tensor in device memory: DeviceMemory::id, and the offset in
  // that memory.
  uint32_t device_memory = 0;
  uint64_t device_offset = 0;
};

// An allocation of a client's on a GPU, or the client's counters (rueda_abi_device_memory), for a
// GPU worker to open. Whatever can be checked without a GPU has been checked.
struct DeviceMemory {
  uint32_t id = 0;  // Ids begin at 1 and are never reused in a session.
  rueda_abi_device_kind kind = RUEDA_ABI_DEVICE_IPC;
  uint64_t bytes = 0;
  std::array<uint8_t, 16> device{};
  std::array<std::byte, 64> ipc{};
  ForeignFd fd;  // Every kind but IPC has a descriptor, except a join.
  // Returns true for the client's own host memory, which the worker maps.
  bool is_host() const {
    return kind == RUEDA_ABI_DEVICE_COUNTERS || kind == RUEDA_ABI_DEVICE_STAGING;
  }
  // A join has the ids of its pieces, in their order, and no descriptor of its own.
  std::vector<uint32_t> pieces;
};

// A submission that was copied out of shared memory and checked.
struct Submission {
  Ticket ticket;
  // It stands for everything but the ticket: two submissions of this daemon with the same value are
  // equal in all other fields, and 0 means that the content is not known.
  uint64_t content = 0;
  std::shared_ptr<const core::TensorDescriptor> descriptor;
  // The send or receive that is taken back. There is no descriptor then, and nothing below.
  std::optional<Ticket> cancels;
  // An empty buffer means that the rank gives nothing (input), or gets nothing (output).
  Buffer input;
  Buffer output;
  // For kinds in which each rank has a part: the client's own place, and the number of ranks of the
  // process set, as the client believes. The buffers are as long as these two ask for.
  int32_t place = 0;
  int32_t places = 0;
  int32_t priority = 0;
  // The two flags say that the client's library copied memory from outside the arenas (for the
  // metrics).
  bool copied_in = false;
  bool copied_out = false;
};

struct Attach {
  JobId job;
  std::string token;  // The process's own; it has limits::kTokenBytes raw bytes.
  Rank rank;
  LocalRank local_rank;
  Credentials peer;
};

struct Started {
  Epoch epoch;
  Rank rank;
  int32_t world_size = 0;
  LocalRank local_rank;
  int32_t local_size = 0;
  NodeIndex node;
  int32_t node_count = 0;
  std::string node_id;
  bool checks_finite = false;
};

// A client's request that the job's timeline begin or end.
struct TimelineWish {
  bool begins = false;
  bool wants_chunks = false;
  std::string path;  // The path of the file, on node 0.
};

// A value that is not finite, as the client is told of it (rueda_abi_nonfinite).
struct NonfiniteNews {
  Rank rank;
  uint64_t step = 0;
  uint64_t element = 0;
  uint32_t value = 0;
  uint32_t process_set = 0;
  std::string tensor;
  std::string text;
};

class Session {
 public:
  virtual ~Session() = default;
  virtual const Attach& attach() const = 0;
  // Returns a power of two. Tickets in flight differ modulo this number.
  virtual uint32_t ring_capacity() const = 0;
  // Returns all arenas that the session has now. An arena that submissions in flight use stays
  // mapped while the session lives; to keep it for longer, hold the returned pointer.
  virtual std::vector<std::shared_ptr<Arena>> arenas() const = 0;
  // The client has these ranks from now on, in place of those that it has asked for.
  virtual void deal(Rank rank, LocalRank local_rank) = 0;
  // Tells the client that every rank has attached.
  virtual void started(const Started& started) = 0;
  // Ends one submission; `value` is a number that the operation has found out for the client, such
  // as the last rank of a join (rueda_abi_completion). The client sees the completion after
  // flush(). The call never blocks: a client that does not drain its ring is failed (on_lost).
  virtual void complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors,
                        Seq seq, uint32_t value = 0) = 0;
  // Answers on_device_memory: a status that is not ok means that the memory cannot be used.
  virtual void device_memory_added(uint32_t id, const Status& status) = 0;
  // Tells the client that its job is over. The session stays attached; the client leaves when it
  // likes.
  virtual void job_failed(const Status& status) = 0;
  // Tells the client that processes wait to take part in its job. The next completion tells the
  // client that its socket has a message to read.
  virtual void hosts_changed() = 0;
  // Tells the client of a value that is not finite, or, in answer to on_nonfinite_asked, that there
  // is none (`news` is null). The next completion tells the client that its socket has a message to
  // read.
  virtual void nonfinite(const NonfiniteNews* news) = 0;
  // Shows the client the completions since the last call, and rings its doorbell once for all of
  // them if it sleeps. If memory that the client shares has been lost, the completions may be
  // wrong: the session is failed instead.
  virtual void flush() = 0;
  // Looks, without waiting, whether the client has hung up. If so, the messages that the client had
  // sent are handled, and on_lost or on_detached of this session comes before the call returns.
  virtual void look() = 0;
  // Drops the connection at once. No further event of this session arrives, not even on_lost.
  virtual void drop() = 0;
};

// The engine implements this interface. The reference to a session stays valid from on_attach, if
// that returned ok, until on_detached or on_lost returns.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // Returns ok to accept the client; any other status is sent to the client as the reason.
  virtual Status on_attach(Session& session) = 0;
  // `submission` is valid during the call only.
  virtual void on_submit(Session& session, const Submission& submission) = 0;
  // The client sleeps until the submission of this ticket ends; without a ticket, the client sleeps
  // no longer. This is a hint: it may be late or never come, and the ticket may be any number.
  virtual void on_waiting(Session& session, std::optional<Ticket> ticket) = 0;
  // It is called after a batch of on_submit, when the submission ring is empty for now.
  virtual void on_submissions_drained(Session& session) = 0;
  // The status that this returns is the client's answer.
  virtual Status on_timeline(Session& session, const TimelineWish& wish) = 0;
  // The client asks whether a value has been found that is not finite. Session::nonfinite()
  // answers.
  virtual void on_nonfinite_asked(Session& session) = 0;
  // The client shares memory of a GPU. The engine answers by device_memory_added(), during this
  // call or later.
  virtual void on_device_memory(Session& session, DeviceMemory memory) = 0;
  // The memory must not be used any longer. No submission in flight uses it.
  virtual void on_device_memory_removed(Session& session, uint32_t id) = 0;
  // on_detached: the client said goodbye. on_lost: the client died or broke the rules; the status
  // says which, and how.
  virtual void on_detached(Session& session) = 0;
  virtual void on_lost(Session& session, const Status& status) = 0;
};

// It is called for a connection that opens as calls do (daemon/local/wire.h): launchers and
// operators use the same sockets. The callee gets one end of a socket pair, over which everything
// that the client says is passed on, but no descriptors, so that nothing that is done with it
// sleeps.
using CallHandoff =
    std::function<void(UniqueFd socket, const Credentials& peer, const std::vector<gid_t>& groups)>;

struct ServerOptions {
  std::vector<SocketPlace> sockets;  // Unused leftover files are replaced.
  uint32_t ring_capacity = 16384;    // The records of each ring; a power of two.
  int64_t handshake_timeout_ms = 5000;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  // If true, clients that have not attached cannot send descriptors; the kernel refuses them if it
  // can.
  bool refuses_early_descriptors = true;
};

struct ServerStats {
  uint64_t sessions = 0;  // Sessions that are attached now.
  uint64_t rejected = 0;  // Strangers, garbage, wrong versions, refused attaches.
  uint64_t arenas = 0;    // Arenas that are mapped now.
  uint64_t arena_bytes = 0;
  uint64_t submission_queue_depth = 0;  // Submissions in flight, of all sessions.
  uint64_t abandoned_doors = 0;  // The doors of the whole process that were abandoned (doors.h).
};

// While the server is watched (PollSource::watch), clients that submit need not ring.
class SessionServer : public PollSource {
 public:
  virtual Status listen() = 0;
  virtual ServerStats stats() const = 0;
  // Closes the listeners and every session, without events, and removes the sockets' files.
  virtual void stop() = 0;

  static std::unique_ptr<SessionServer> create(boost::asio::io_context& loop, ServerOptions options,
                                               SessionEvents& events, CallHandoff call_handoff);
};

}  // namespace rueda::session
