#include "daemon/session/server/arena_lease.h"

#include <utility>

namespace rueda::session {

void ArenaLease::start(const std::vector<std::shared_ptr<Arena>>& arenas) {
  arenas_.assign(arenas.begin(), arenas.end());
  kept_->put(owner_, arenas);
  // Nothing more is said over the connection: whatever comes, if only its end, ends the lease.
  socket_.async_wait(ForeignStream::Wait::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (error) return;
                       self->close();
                       std::exchange(self->on_end_, nullptr)(*self);
                     });
}

void ArenaLease::close() {
  socket_.close();
  kept_->drop(owner_, std::exchange(arenas_, {}));
}

}  // namespace rueda::session
