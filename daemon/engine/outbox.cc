#include "daemon/engine/outbox.h"

#include <span>

namespace rueda::engine {

Outbox::Outbox(uint32_t slots, uint32_t cookies) : frames_(cookies), lines_(slots) {}

void Outbox::push(uint32_t cookie, const transport::FrameHeader& header,
                  transport::SendBuffer buffer) {
  Frame& frame = frames_[cookie];
  RUEDA_CHECK(!frame.in_use);
  frame = {header, buffer, kNone, true};
  Line& line = lines_[header.slot];
  if (!line.busy) {
    line.busy = true;
    ++busy_slots_;
    write(cookie);
    return;
  }
  if (line.first == kNone) {
    line.first = cookie;
  } else {
    frames_[line.last].next = cookie;
  }
  line.last = cookie;
}

void Outbox::on_slot_free(uint32_t slot) {
  Line& line = lines_[slot];
  RUEDA_CHECK(line.busy);
  if (line.first == kNone) {
    line.busy = false;
    --busy_slots_;
    return;
  }
  const uint32_t cookie = line.first;
  line.first = frames_[cookie].next;
  write(cookie);
}

void Outbox::write(uint32_t cookie) {
  const Frame& frame = frames_[cookie];
  channel_->write(frame.header, std::span(&frame.buffer, frame.buffer.bytes > 0 ? 1 : 0), cookie);
}

}  // namespace rueda::engine
