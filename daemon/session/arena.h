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
#include "daemon/session/session.h"
#include "daemon/session/sigbus_guard.h"

namespace rueda::session {

// Ok for a memfd of exactly so many bytes, sealed against shrinking and growing.
Status check_memfd(int fd, uint64_t bytes);

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

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(Mapping mapping, std::shared_ptr<ArenaTotals> totals);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return mapping_.data(); }
  size_t bytes() const { return mapping_.bytes(); }
  // The kernel could not provide the memory: what it holds is worthless (sigbus_guard.h). Any
  // thread.
  bool is_lost() const { return mapping_.is_lost(); }

 private:
  Mapping mapping_;
  std::shared_ptr<ArenaTotals> totals_;
};

// The arenas of one session.
class ArenaTable {
 public:
  explicit ArenaTable(std::shared_ptr<ArenaTotals> totals) : totals_(std::move(totals)) {}

  // Checks that fd is a memfd of exactly `bytes`, sealed against shrinking and growing, and maps
  // it. Returns the arena's id, from 1 up, never reused. The descriptor is the caller's to close.
  Result<uint32_t> add(int fd, uint64_t bytes);
  // The caller has checked that no submission uses it.
  Status remove(uint32_t id);

  // nullptr when there is none.
  const std::shared_ptr<Arena>& find(uint32_t id) const;
  std::vector<std::shared_ptr<Arena>> all() const;
  bool any_is_lost() const;

 private:
  std::shared_ptr<ArenaTotals> totals_;
  std::map<uint32_t, std::shared_ptr<Arena>> arenas_;
  uint32_t next_id_ = 1;
};

}  // namespace rueda::session
