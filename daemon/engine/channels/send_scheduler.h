// The frames that wait to be written to the next node of the ring. A frame waits in the line of the
// slot that it goes into, first come first served, until the neighbour has freed that slot; then in
// the queue of its lane, until the channel has little left to send. Of the queues the most urgent
// one goes first (rule L12), and now and then the one that has waited longest, so that none waits
// for ever. The scheduler allocates nothing after construction, and belongs to its data loop.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/engine/operation/send_priority.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

struct OutboxOptions {
  uint32_t slots = 0;
  uint32_t cookies = 0;  // How many frames can exist at once; each is known by a number below that.
  uint32_t lanes = 0;    // The number of queues.
  // The bytes that may be handed to the channel and not sent yet; if there are none, one frame may
  // be larger. Frames beyond that can still be overtaken.
  uint64_t max_unsent_bytes = 512 * 1024;
};

class SendScheduler {
 public:
  explicit SendScheduler(const OutboxOptions& options);

  void set_channel(transport::SendChannel* channel) { channel_ = channel; }

  // Takes a frame. The cookie must not be in use. The buffer must stay untouched until on_sent()
  // reports the cookie.
  void push(uint32_t cookie, uint32_t lane, const SendPriority& urgency,
            const transport::FrameHeader& header, transport::SendBuffer buffer);
  // The channel's events have to be forwarded to these.
  void on_slot_free(uint32_t slot);
  void on_sent(uint32_t cookie);

  bool in_use(uint32_t cookie) const { return frames_[cookie].in_use; }
  // Returns whether the neighbour has taken everything that was pushed, and freed it again.
  bool is_quiet() const { return busy_slots_ == 0; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // At most so many frames overtake the one that has waited longest.
  static constexpr int kMaxOvertaken = 7;

  struct Frame {
    transport::FrameHeader header;
    transport::SendBuffer buffer;
    uint32_t lane = 0;
    SendPriority urgency;
    uint64_t turn = 0;      // When it came to its queue.
    uint32_t next = kNone;  // The next frame in its line or queue.
    bool in_use = false;

    uint64_t bytes() const { return sizeof(header) + buffer.bytes; }
  };
  struct Line {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };
  struct Slot {
    Line line;
    bool busy = false;  // It has a frame that the neighbour has not freed yet.
  };

  void append(Line& line, uint32_t cookie);
  uint32_t take_first(Line& line);
  void queue(uint32_t cookie);
  void write_queued();

  transport::SendChannel* channel_ = nullptr;
  const uint64_t max_unsent_bytes_;
  uint64_t unsent_bytes_ = 0;
  std::vector<Frame> frames_;  // The index is the cookie.
  std::vector<Slot> slots_;
  std::vector<Line> queues_;  // By lane. The slots of their frames are free for them.
  uint64_t turns_ = 0;
  int overtaken_ = 0;
  uint32_t busy_slots_ = 0;
};

}  // namespace rueda::engine
