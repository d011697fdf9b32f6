#include "daemon/engine/channels/send_scheduler.h"

#include <span>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::engine {

SendScheduler::SendScheduler(const OutboxOptions& options)
    : max_unsent_bytes_(options.max_unsent_bytes),
      frames_(options.cookies),
      slots_(options.slots),
      queues_(options.lanes) {}

void SendScheduler::append(Line& line, uint32_t cookie) {
  if (line.first == kNone) {
    line.first = cookie;
  } else {
    frames_[line.last].next = cookie;
  }
  line.last = cookie;
}

uint32_t SendScheduler::take_first(Line& line) {
  const uint32_t cookie = line.first;
  line.first = std::exchange(frames_[cookie].next, kNone);
  return cookie;
}

void SendScheduler::push(uint32_t cookie, uint32_t lane, const SendPriority& urgency,
                         const transport::FrameHeader& header, transport::SendBuffer buffer) {
  Frame& frame = frames_[cookie];
  RUEDA_CHECK(!frame.in_use);
  frame = {header, buffer, lane, urgency, 0, kNone, true};
  Slot& slot = slots_[header.slot];
  if (slot.busy) return append(slot.line, cookie);
  slot.busy = true;
  ++busy_slots_;
  queue(cookie);
  write_queued();
}

void SendScheduler::on_slot_free(uint32_t freed) {
  Slot& slot = slots_[freed];
  RUEDA_CHECK(slot.busy);
  if (slot.line.first == kNone) {
    slot.busy = false;
    --busy_slots_;
    return;
  }
  queue(take_first(slot.line));
  write_queued();
}

void SendScheduler::on_sent(uint32_t cookie) {
  Frame& frame = frames_[cookie];
  frame.in_use = false;
  unsent_bytes_ -= frame.bytes();
  write_queued();
}

void SendScheduler::queue(uint32_t cookie) {
  frames_[cookie].turn = ++turns_;
  append(queues_[frames_[cookie].lane], cookie);
}

void SendScheduler::write_queued() {
  for (;;) {
    Line* most_urgent = nullptr;
    Line* oldest = nullptr;
    for (Line& queue : queues_) {
      if (queue.first == kNone) continue;
      const Frame& frame = frames_[queue.first];
      if (!oldest || frame.turn < frames_[oldest->first].turn) oldest = &queue;
      if (!most_urgent || frame.urgency > frames_[most_urgent->first].urgency) most_urgent = &queue;
    }
    if (!oldest) return;
    Line& next = overtaken_ < kMaxOvertaken ? *most_urgent : *oldest;
    const uint64_t bytes = frames_[next.first].bytes();
    if (unsent_bytes_ > 0 && unsent_bytes_ + bytes > max_unsent_bytes_) return;
    overtaken_ = &next == oldest ? 0 : overtaken_ + 1;
    const uint32_t cookie = take_first(next);
    const Frame& frame = frames_[cookie];
    unsent_bytes_ += bytes;
    channel_->write(frame.header, std::span(&frame.buffer, frame.buffer.bytes > 0 ? 1 : 0), cookie);
  }
}

}  // namespace rueda::engine
