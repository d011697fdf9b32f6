// Memory of a rank's that frames are sent from as it is, without a copy: where one rank alone of
// this node gives the values, and they go to the next node as they are. Each origin buffer
// (slots.h) may be stood in for by such a range until its frame is sent. Belongs to its data loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/core/ring_schedule.h"
#include "daemon/engine/operation.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

class LentMemory {
 public:
  // The transport outlives it.
  LentMemory(transport::Transport& transport, uint32_t origin_buffers);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // The range's values where they are, in place of that origin buffer; none: they are to be copied.
  // Its pages are there, or its arena is lost from now on (session/arena.h). The arena stays mapped
  // until it is given back, whatever becomes of the operation.
  std::optional<transport::SendBuffer> lend(const Operation& operation, core::ElementRange range,
                                            uint32_t origin_buffer);
  // What was lent for it, if anything, has been sent.
  void give_back(uint32_t origin_buffer);
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

  std::optional<transport::RegionKey> region_of(const std::shared_ptr<session::Arena>& arena);

  transport::Transport& transport_;
  std::vector<Lent> lent_;  // by origin buffer
  std::map<const session::Arena*, Registered> registered_;
};

}  // namespace rueda::engine
