// Memory shared with a client: arenas (the client's memfds) and the mappings of the rings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/session/ledger.h"
#include "daemon/session/session.h"
#include "daemon/session/sigbus_guard.h"

namespace rueda::session {

// Ok for a memfd of exactly so many bytes, sealed against shrinking and growing, that has all its
// pages: they are charged to whoever has touched them first, and that is not to be the daemon.
// `what` names the memory in errors. Never sleeps.
Status check_memfd(int fd, uint64_t bytes, const std::string& what);
// From now on nobody maps it for writing, nor punches holes, after which the daemon would pay for
// new pages. For what is mapped already nothing changes. Sleeps while the client allocates.
Status seal_memfd(int fd, const std::string& what);

// A shared, writable, guarded mapping of a whole file. Unmaps when it goes.
class Mapping {
 public:
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  // `what` names the memory in errors.
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

// What all arenas of a server hold together. Arenas end on any thread.
struct ArenaTotals {
  std::atomic<uint64_t> arenas{0};
  std::atomic<uint64_t> bytes{0};
};

// A mapped arena, and who pays for it.
struct ArenaMemory {
  Mapping mapping;
  Charge bytes;
  Charge count;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(ArenaMemory memory, uid_t user, std::shared_ptr<ArenaTotals> totals);
  // The memory is unmapped at its user's door (doors.h), where it may take long.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return memory_.mapping.data(); }
  size_t bytes() const { return memory_.mapping.bytes(); }
  // The kernel could not provide the memory: what it holds is worthless (sigbus_guard.h). Any
  // thread.
  bool is_lost() const { return memory_.mapping.is_lost(); }

 private:
  ArenaMemory memory_;
  const uid_t user_;
  std::shared_ptr<ArenaTotals> totals_;
};

// The arenas of one session.
class ArenaTable {
 public:
  explicit ArenaTable(std::shared_ptr<ArenaTotals> totals, Account account = {})
      : totals_(std::move(totals)), account_(std::move(account)) {}

  // Maps what check_memfd() lets through, charges it and seals it. May sleep; any thread. The
  // descriptor is the caller's to close.
  static Result<ArenaMemory> map(int fd, uint64_t bytes, const Account& account);
  // Returns the arena's id, from 1 up, never reused.
  Result<uint32_t> add(ArenaMemory memory);
  // The caller has checked that no submission uses it.
  Status remove(uint32_t id);

  // nullptr when there is none.
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
