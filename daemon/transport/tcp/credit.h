// Credits travel back on a connection and say which slots are free again. A credit is the first
// eight bytes of a frame header of kind kCredit, so that a stream out of step is noticed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/transport/frame.h"

namespace rueda::transport::tcp {

struct Credit {
  uint16_t magic = kFrameMagic;
  uint8_t version = kWireVersion;
  FrameKind kind = FrameKind::kCredit;
  uint32_t slot = 0;

  bool is_valid(size_t slot_count) const {
    return magic == kFrameMagic && version == kWireVersion && kind == FrameKind::kCredit &&
           slot < slot_count;
  }
};
static_assert(sizeof(Credit) == 8 && offsetof(Credit, slot) == offsetof(FrameHeader, slot));

}  // namespace rueda::transport::tcp
