// The local side, as the engine sees it: sessions (one per attached training process) and what they
// ask for. Everything belongs to one loop (the control loop); docs/abi.md has the formats.
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
#include "daemon/base/status.h"
#include "daemon/base/watched.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/session/doors.h"
#include "daemon/session/ledger.h"

namespace rueda::session {

// SO_PEERCRED of a connection.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// A client's memfd, mapped. Stays mapped while anybody holds it, also after its client has died.
class Arena;

// A piece of an arena, or of memory of a GPU, checked: inside it, aligned to the element, as long
// as the rank's part of the descriptor.
struct Buffer {
  std::shared_ptr<Arena> arena;
  std::byte* data = nullptr;
  size_t bytes = 0;
  // Of a tensor in device memory, in place of the arena: DeviceMemory::id, and where in it.
  uint32_t device_memory = 0;
  uint64_t device_offset = 0;
};

// An allocation of a client's on a GPU, or its counters (rueda_abi_device_memory), for a GPU worker
// to open. What can be checked without a GPU has been.
struct DeviceMemory {
  uint32_t id = 0;  // from 1 up, never used again in a session
  rueda_abi_device_kind kind = RUEDA_ABI_DEVICE_IPC;
  uint64_t bytes = 0;
  std::array<uint8_t, 16> device{};
  std::array<std::byte, 64> ipc{};
  ForeignFd fd;  // of all but IPC
  // The client's own, which the worker maps.
  bool is_host() const {
    return kind == RUEDA_ABI_DEVICE_COUNTERS || kind == RUEDA_ABI_DEVICE_STAGING;
  }
  // Of a join: ids, one behind another; it has no descriptor of its own.
  std::vector<uint32_t> pieces;
};

// One submission, copied out of shared memory and checked.
struct Submission {
  Ticket ticket;
  // 0: not known. Else of all but the ticket: it is the same as long as nothing else is new, and no
  // other submission's that this daemon has had.
  uint64_t content = 0;
  std::shared_ptr<const core::TensorDescriptor> descriptor;
  Buffer input;  // no bytes: the rank gives nothing, or gets nothing
  Buffer output;
  // Where each rank has a part: which of how many ranks of the process set the client takes itself
  // for. The buffers are as long as that asks for.
  int32_t place = 0;
  int32_t places = 0;
  int32_t priority = 0;
  bool copied_in = false;  // the client's library copied foreign memory (for the metrics)
  bool copied_out = false;
};

struct Attach {
  JobId job;
  std::string token;  // limits::kTokenBytes raw bytes
  Rank rank;
  LocalRank local_rank;
  Credentials peer;
};

struct Started {
  Epoch epoch;
  int32_t world_size = 0;
  int32_t local_size = 0;
  NodeIndex node;
  int32_t node_count = 0;
  std::string node_id;
  bool checks_finite = false;
};

// The client wants the job's timeline to begin, or to end.
struct TimelineWish {
  bool begins = false;
  bool wants_chunks = false;
  std::string path;  // of the file, on node 0
};

// A value that is not finite, as the client is told (rueda_abi_nonfinite).
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
  // Tickets in flight differ modulo this, a power of two.
  virtual uint32_t ring_capacity() const = 0;
  // All that it has now. What submissions in flight use stays mapped while the session lives; for
  // longer, hold these.
  virtual std::vector<std::shared_ptr<Arena>> arenas() const = 0;
  // Tells the client that every rank is there.
  virtual void started(const Started& started) = 0;
  // Ends one submission; `value` is what it has found out (rueda_abi_completion). The client sees
  // it after flush(). Never blocks: a client that does not drain its ring is failed (on_lost).
  virtual void complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors,
                        Seq seq, uint32_t value = 0) = 0;
  // The answer to on_device_memory: whether it can be used.
  virtual void device_memory_added(uint32_t id, const Status& status) = 0;
  // Tells the client that its job is over. The session stays attached; the client goes when it
  // likes.
  virtual void job_failed(const Status& status) = 0;
  // Tells the client of one, or, asked, that there is none (null). The next completion says that
  // there is something to read.
  virtual void nonfinite(const NonfiniteNews* news) = 0;
  // Shows the client the completions since the last call (one doorbell for many), unless memory
  // that it shares has been lost: then what they say may be wrong, and the session is failed.
  virtual void flush() = 0;
  // Looks whether the client has hung up, without waiting. If so, what it had sent is taken in, and
  // its on_lost or on_detached comes before this returns.
  virtual void look() = 0;
  // Drops the connection at once; no further event of this session arrives, nor on_lost.
  virtual void drop() = 0;
};

// Implemented by the engine. The reference stays valid from on_attach (if that returned ok) until
// on_detached or on_lost returns.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // Ok accepts the client; anything else is what it gets told.
  virtual Status on_attach(Session& session) = 0;
  // `submission` is valid during the call.
  virtual void on_submit(Session& session, const Submission& submission) = 0;
  // The client sleeps until this submission ends; none: it sleeps no longer. A hint, which may be
  // late or never come; the ticket may be any number.
  virtual void on_waiting(Session& session, std::optional<Ticket> ticket) = 0;
  // After a batch of on_submit: the submission ring is empty for now.
  virtual void on_submissions_drained(Session& session) = 0;
  // What the client is to be told.
  virtual Status on_timeline(Session& session, const TimelineWish& wish) = 0;
  // The client wants to be told whether there is a value that is not finite.
  virtual void on_nonfinite_asked(Session& session) = 0;
  // The client shares memory of a GPU. To be answered by device_memory_added(), now or later.
  virtual void on_device_memory(Session& session, DeviceMemory memory) = 0;
  // It is no longer to be used; no submission in flight does.
  virtual void on_device_memory_removed(Session& session, uint32_t id) = 0;
  // The client said goodbye. on_lost: it died, or broke the rules (the status says which, and how).
  virtual void on_detached(Session& session) = 0;
  virtual void on_lost(Session& session, const Status& status) = 0;
};

// Called for a connection that opens with HTTP/2's preface: gRPC's (agents and operators use the
// same socket path). Takes over the descriptor, over which all that the client says is passed on.
using GrpcHandoff = std::function<void(int fd, const Credentials& peer)>;

struct ServerOptions {
  std::string
      socket_path;  // "@name" is an abstract socket; a leftover file is replaced if nobody listens
  uint32_t ring_capacity = 16384;  // records of each ring; a power of two
  int64_t handshake_timeout_ms = 5000;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  // Whether descriptors are refused of clients that have not attached, by the kernel if it can.
  bool refuses_early_descriptors = true;
};

struct ServerStats {
  uint64_t sessions = 0;  // attached now
  uint64_t rejected = 0;  // strangers, garbage, wrong versions, refused attaches
  uint64_t arenas = 0;    // mapped now
  uint64_t arena_bytes = 0;
  uint64_t submission_queue_depth = 0;  // submissions in flight, all sessions
  uint64_t abandoned_doors = 0;         // of the process (doors.h)
};

// Watched: while it is, clients that submit need not ring.
class SessionServer : public Watched {
 public:
  virtual Status listen() = 0;
  virtual ServerStats stats() const = 0;
  // Closes the listener and every session (without events), and removes the socket file.
  virtual void stop() = 0;

  static std::unique_ptr<SessionServer> create(boost::asio::io_context& loop, ServerOptions options,
                                               SessionEvents& events, GrpcHandoff grpc_handoff);
};

}  // namespace rueda::session
