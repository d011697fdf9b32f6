// Arenas that processes share and no session has: between two generations of an elastic job a
// process has no session, and its memory cannot be mapped a second time (arena.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <sys/types.h>

#include "daemon/base/mutex.h"
#include "daemon/session/memory/arena.h"
#include "daemon/session/session.h"

namespace rueda::session {

// Thread-safe.
class KeptArenas {
 public:
  void put(const Credentials& owner, const std::vector<std::shared_ptr<Arena>>& arenas);
  // Returns the arena of this memfd, which is not kept any more; nullptr if the owner has left none
  // of this size. The call never sleeps.
  std::shared_ptr<Arena> take(const Credentials& owner, int fd, uint64_t bytes);
  // The arenas, if they are still kept, are not any more.
  void drop(const Credentials& owner, const std::vector<std::weak_ptr<Arena>>& arenas);

 private:
  // The principal, the user, the process, and the file. Numbers of files come again after 2^32 of
  // them, so that a process may mistake its own memory, and nobody else's; processes in containers,
  // whose numbers the daemon cannot see and takes for 0, may mistake each other's of one principal.
  using Key = std::tuple<Principal, uid_t, pid_t, FileId>;

  static Key key_of(const Credentials& owner, const FileId& file) {
    return {owner.principal, owner.uid, owner.pid, file};
  }

  Mutex mutex_;
  std::map<Key, std::shared_ptr<Arena>> arenas_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::session
