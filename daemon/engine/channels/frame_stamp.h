// A stamp says what all frames and channels of a data job have in common: the job, the epoch and
// the process set that they belong to.
#pragma once

#include <cstdint>

#include "daemon/engine/operation/operation.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

struct FrameStamp {
  transport::JobKey job;
  uint32_t epoch = 0;
  uint32_t process_set = 0;

  // Returns the header of a frame that belongs to no operation.
  transport::FrameHeader header(transport::FrameKind kind) const {
    transport::FrameHeader header;
    header.kind = kind;
    header.job = job.first;
    header.epoch = epoch;
    header.process_set = process_set;
    return header;
  }
  // Returns the header of a frame of the operation. The slot, the chunk and the size are missing.
  transport::FrameHeader header(transport::FrameKind kind, const Operation& operation) const {
    transport::FrameHeader stamped = header(kind);
    stamped.lock_generation = operation.generation;
    stamped.seq = operation.seq.value;
    stamped.plan_hash = operation.plan_hash;
    return stamped;
  }
  transport::ChannelId channel(NodeIndex from, NodeIndex to) const {
    return {job, epoch, from.value, to.value, 0, process_set};
  }
};

}  // namespace rueda::engine
