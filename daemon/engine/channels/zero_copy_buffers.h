// A rank's memory that the network reads and writes without a copy in between. If one rank alone of
// this node gives the values of an all-reduce, and they go to the next node as they are, frames are
// sent from where they lie. If one rank alone gets final values, they are received into its output.
// So is what a GPU has for the next node, where the network reads its memory
// (docs/decisions/0070-a-gpus-memory-read-by-the-network.md).
//
// Memory in the hands of a channel is lent: it stays mapped, whatever becomes of its operation. The
// object belongs to its data loop.
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
  // `places` is the number of places for which memory can be lent at once; each is known by a
  // number below that. The transport must outlive the object.
  ZeroCopyBuffers(transport::Transport& transport, uint32_t places);
  ~ZeroCopyBuffers();
  ZeroCopyBuffers(const ZeroCopyBuffers&) = delete;
  ZeroCopyBuffers& operator=(const ZeroCopyBuffers&) = delete;

  // Lends the range's values where they are, to be sent. Returns none if they have to be copied.
  // Nothing may be lent for the place yet. The pages are there, or the arena is lost from now on
  // (session/memory/arena.h).
  std::optional<transport::SendBuffer> to_send(const Operation& operation, core::ElementRange range,
                                               uint32_t place);
  // The same for values that lie in a GPU's memory, which the channel reads there. Returns none if
  // they do not, or the channel cannot.
  std::optional<transport::SendBuffer> to_send_from_device(const Operation& operation,
                                                           core::ElementRange range, uint32_t place,
                                                           const transport::SendChannel& channel);
  // Lends the memory where the range's final values belong, to be received into. Returns null if
  // they have to be copied. If a peer sends twice for one place, memory is lent once.
  std::byte* to_receive(const Operation& operation, core::ElementRange range, uint32_t place);
  // These two lend a piece of an arena that is sent as it is, or received into: for transfers
  // between ranks, which are no operations.
  std::optional<transport::SendBuffer> to_send(const std::shared_ptr<session::Arena>& arena,
                                               const std::byte* values, size_t bytes,
                                               uint32_t place);
  std::byte* to_receive(const std::shared_ptr<session::Arena>& arena, std::byte* values,
                        size_t bytes, uint32_t place);
  // The channel is done with the place's memory. Returns false if nothing was lent for the place.
  bool give_back(uint32_t place);
  // Makes the kernel provide the pages of all that is lent, or marks their arenas as lost: a socket
  // cannot do so, and breaks.
  void touch() const;

 private:
  struct Lent {
    std::shared_ptr<session::Arena> arena;  // Null if none is lent.
    const std::byte* values = nullptr;      // In the arena.
    size_t bytes = 0;
    std::shared_ptr<const gpu::DmaBuf> device;  // Null if none is lent.
    bool is_there() const { return arena || device; }
  };
  struct Registered {
    std::weak_ptr<session::Arena> arena;
    transport::RegionKey region;
  };

  // Lends the memory. Returns false if it is in no arena of the operation, or is too little.
  bool lend(const Operation& operation, const std::byte* values, size_t bytes, uint32_t place);
  bool lend(const std::shared_ptr<session::Arena>& arena, const std::byte* values, size_t bytes,
            uint32_t place);
  // Returns the lent memory as it is sent; takes it back if it cannot be registered.
  std::optional<transport::SendBuffer> send_buffer(uint32_t place);
  std::optional<transport::RegionKey> region_of(const std::shared_ptr<session::Arena>& arena);
  // Returns where the memory is registered, or null if it cannot be.
  const transport::DeviceRegion* region_of(const std::shared_ptr<const gpu::DmaBuf>& memory);
  // Logs, once, why device memory is not sent from where it is.
  void tell_why(const Status& why);
  // Lets go of the device memory that is registered.
  void forget_device();

  transport::Transport& transport_;
  std::vector<Lent> lent_;  // The index is the place.
  std::map<const session::Arena*, Registered> registered_;
  // The device memory that was seen last. There is one at a time: a GPU worker's staging.
  std::shared_ptr<const gpu::DmaBuf> device_;
  std::optional<transport::DeviceRegion> device_region_;
  bool is_told_ = false;
};

}  // namespace rueda::engine
