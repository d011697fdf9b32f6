// Memory of a rank's that the network reads and writes without a copy between. Where one rank alone
// of this node gives the values of an all-reduce, and they go to the next node as they are, frames
// are sent from where they lie. Where one rank alone gets final values, they are received into its
// output.
//
// What is in the hands of a channel is lent: it stays mapped, whatever becomes of its operation.
// Belongs to its data loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/core/schedules/ring_schedule.h"
#include "daemon/engine/operation/operation.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

class ZeroCopyBuffers {
 public:
  // `places`: what can be lent for at once, each known by a number below that. The transport
  // outlives it.
  ZeroCopyBuffers(transport::Transport& transport, uint32_t places);
  ~ZeroCopyBuffers();
  ZeroCopyBuffers(const ZeroCopyBuffers&) = delete;
  ZeroCopyBuffers& operator=(const ZeroCopyBuffers&) = delete;

  // The range's values where they are, to be sent; none: they are to be copied. Nothing may be lent
  // for the place yet. The pages are there, or the arena is lost from now on
  // (session/memory/arena.h).
  std::optional<transport::SendBuffer> to_send(const Operation& operation, core::ElementRange range,
                                               uint32_t place);
  // Likewise where its final values belong, to be received into; null: they are to be copied. What
  // a peer sends twice for one place is lent for once.
  std::byte* to_receive(const Operation& operation, core::ElementRange range, uint32_t place);
  // The channel is done with it. False if nothing was lent for the place.
  bool give_back(uint32_t place);
  // Has the kernel provide the pages of all that is lent, or mark their arenas as lost: a socket
  // cannot, and breaks.
  void touch() const;

 private:
  struct Lent {
    std::shared_ptr<session::Arena> arena;  // null: nothing is
    const std::byte* values = nullptr;
    size_t bytes = 0;
  };
  struct Registered {
    std::weak_ptr<session::Arena> arena;
    transport::RegionKey region;
  };

  // False: it is in no arena of the operation's, or too little.
  bool lend(const Operation& operation, const std::byte* values, size_t bytes, uint32_t place);
  std::optional<transport::RegionKey> region_of(const std::shared_ptr<session::Arena>& arena);

  transport::Transport& transport_;
  std::vector<Lent> lent_;  // by place
  std::map<const session::Arena*, Registered> registered_;
};

}  // namespace rueda::engine
