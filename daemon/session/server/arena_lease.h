// Keeps the arenas of a process that has left a generation of its job and will come back: as long
// as the connection lasts over which it has said so (RUEDA_ABI_RESET).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/session/memory/kept_arenas.h"
#include "daemon/session/server/foreign_stream.h"

namespace rueda::session {

class ArenaLease : public std::enable_shared_from_this<ArenaLease> {
 public:
  // `on_end` is called from the loop, at most once, and not by close().
  ArenaLease(boost::asio::io_context& loop, ForeignSocket socket, const Credentials& owner,
             std::shared_ptr<KeptArenas> kept, std::function<void(ArenaLease&)> on_end)
      : socket_(loop, std::move(socket)),
        owner_(owner),
        kept_(std::move(kept)),
        on_end_(std::move(on_end)) {}

  void start(const std::vector<std::shared_ptr<Arena>>& arenas);
  // Ends the lease: what has not been taken is unmapped. The call is idempotent.
  void close();

 private:
  ForeignStream socket_;
  const Credentials owner_;
  const std::shared_ptr<KeptArenas> kept_;
  std::vector<std::weak_ptr<Arena>> arenas_;
  std::function<void(ArenaLease&)> on_end_;
};

}  // namespace rueda::session
