#include "daemon/session/memory/kept_arenas.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace rueda::session {

void KeptArenas::put(const Credentials& owner, const std::vector<std::shared_ptr<Arena>>& arenas) {
  const MutexLock lock(mutex_);
  for (const std::shared_ptr<Arena>& arena : arenas) {
    arenas_.insert_or_assign(key_of(owner, arena->file()), arena);
  }
}

std::shared_ptr<Arena> KeptArenas::take(const Credentials& owner, int fd, uint64_t bytes) {
  // What a daemon has mapped has this seal. Other files are not looked at: a look may sleep.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SEAL) == 0) return nullptr;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return nullptr;
  const MutexLock lock(mutex_);
  const auto found = arenas_.find(key_of(owner, FileId{info.st_dev, info.st_ino}));
  if (found == arenas_.end() || found->second->bytes() != bytes) return nullptr;
  std::shared_ptr<Arena> arena = std::move(found->second);
  arenas_.erase(found);
  return arena;
}

void KeptArenas::drop(const Credentials& owner, const std::vector<std::weak_ptr<Arena>>& arenas) {
  std::vector<std::shared_ptr<Arena>> gone;  // They end without the lock.
  const MutexLock lock(mutex_);
  for (const std::weak_ptr<Arena>& left : arenas) {
    const std::shared_ptr<Arena> arena = left.lock();
    if (arena == nullptr) continue;
    const auto found = arenas_.find(key_of(owner, arena->file()));
    if (found == arenas_.end() || found->second != arena) continue;
    arenas_.erase(found);
    gone.push_back(arena);
  }
}

}  // namespace rueda::session
