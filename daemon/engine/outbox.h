// What waits to be written to the next node of the ring. A frame waits in the line of the slot that
// it goes into, first come first served, until the neighbour has freed that slot. Allocates nothing
// after construction. Belongs to its data loop.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/transport/transport.h"

namespace rueda::engine {

class Outbox {
 public:
  // `cookies`: how many frames can exist at once; each is known by a number below that.
  Outbox(uint32_t slots, uint32_t cookies);

  void set_channel(transport::SendChannel* channel) { channel_ = channel; }

  // The cookie must not be in use. The buffer stays untouched until on_sent reports the cookie.
  void push(uint32_t cookie, const transport::FrameHeader& header, transport::SendBuffer buffer);
  // Forward the channel's events here.
  void on_slot_free(uint32_t slot);
  void on_sent(uint32_t cookie) { frames_[cookie].in_use = false; }

  bool in_use(uint32_t cookie) const { return frames_[cookie].in_use; }
  // Everything pushed has been taken, and freed again, by the neighbour.
  bool is_quiet() const { return busy_slots_ == 0; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Frame {
    transport::FrameHeader header;
    transport::SendBuffer buffer;
    uint32_t next = kNone;  // in the line of its slot
    bool in_use = false;
  };
  struct Line {
    uint32_t first = kNone;
    uint32_t last = kNone;
    bool busy = false;  // written, and not freed yet
  };

  void write(uint32_t cookie);

  transport::SendChannel* channel_ = nullptr;
  std::vector<Frame> frames_;  // by cookie
  std::vector<Line> lines_;    // by slot
  uint32_t busy_slots_ = 0;    // busy, or with a line
};

}  // namespace rueda::engine
