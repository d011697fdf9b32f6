// This header holds the memory that the daemon shares with a client: arenas, which are the client's
// memfds, and the mappings of arenas and rings.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/session/memory/sigbus_guard.h"
#include "daemon/session/session.h"
#include "daemon/session/users/ledger.h"

namespace rueda::session {

// Returns ok if `fd` is a memfd of exactly `bytes` bytes that is sealed against shrinking and
// growing and has all its pages. A page is charged to the process that touches it first, and the
// daemon must not be that process. `what` names the memory in errors. The call never sleeps.
Status check_memfd(int fd, uint64_t bytes, const std::string& what);
// Seals the memfd, so that from now on nobody can map it for writing or punch holes into it: after
// a hole the daemon would pay for the new pages. Existing mappings stay as they are. The call
// sleeps while the client allocates pages of the file.
Status seal_memfd(int fd, const std::string& what);

// A mapping of a whole file that is shared, writable, and guarded against SIGBUS. The destructor
// unmaps the memory.
class Mapping {
 public:
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  // Maps `fd`, which has `bytes` bytes. `what` names the memory in errors.
  static Result<Mapping> map(int fd, size_t bytes, const std::string& what);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_lost() const { return guard_.is_lost(); }

 private:
  Mapping(std::byte* data, size_t bytes, GuardedRange guard);

  std::byte* data_;
  size_t bytes_;
  GuardedRange guard_;
};

// The number and the bytes of all arenas of a server. Arenas may end on any thread.
struct ArenaTotals {
  std::atomic<uint64_t> arenas{0};
  std::atomic<uint64_t> bytes{0};
};

// Names a file, as long as it is there.
struct FileId {
  dev_t device = 0;
  ino_t number = 0;

  auto operator<=>(const FileId&) const = default;
};

// A mapped arena with the charges for it. The principal pays until the charges are destroyed.
struct ArenaMemory {
  Mapping mapping;
  FileId file;
  Charge bytes;
  Charge count;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(ArenaMemory memory, Principal principal, std::shared_ptr<ArenaTotals> totals);
  // The destructor hands the mapping to its principal's door (doors.h), because unmapping may take
  // long.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return memory_.mapping.data(); }
  size_t bytes() const { return memory_.mapping.bytes(); }
  const FileId& file() const { return memory_.file; }
  // Returns true if the kernel could not provide the memory: the arena's content is then worthless
  // (sigbus_guard.h). Any thread may call this.
  bool is_lost() const { return memory_.mapping.is_lost(); }

 private:
  ArenaMemory memory_;
  const Principal principal_;
  std::shared_ptr<ArenaTotals> totals_;
};

// The arenas of one session.
class ArenaTable {
 public:
  explicit ArenaTable(std::shared_ptr<ArenaTotals> totals, Account account = {})
      : totals_(std::move(totals)), account_(std::move(account)) {}

  // Checks the memory by check_memfd(), charges the account for it, maps it and seals it. The call
  // may sleep, and any thread may make it. The caller still has to close the descriptor.
  static Result<ArenaMemory> map(int fd, uint64_t bytes, const Account& account);
  // Returns the arena's id. Ids begin at 1 and are never reused.
  Result<uint32_t> add(ArenaMemory memory);
  // The same for an arena of a session before this one.
  Result<uint32_t> add(std::shared_ptr<Arena> arena);
  // Removes an arena. The caller has checked that no submission uses the arena.
  Status remove(uint32_t id);

  // Returns nullptr if there is no arena of this id.
  const std::shared_ptr<Arena>& find(uint32_t id) const;
  std::vector<std::shared_ptr<Arena>> all() const;
  bool any_is_lost() const;

 private:
  std::shared_ptr<ArenaTotals> totals_;
  Account account_;
  std::map<uint32_t, std::shared_ptr<Arena>> arenas_;
  uint32_t next_id_ = 1;
};

}  // namespace rueda::session
