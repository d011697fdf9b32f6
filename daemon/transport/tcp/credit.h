// Credits travel back on a connection and say which slots are free again. A credit is the first
// eight bytes of a frame header of kind kCredit, so that a stream out of step is noticed.
//
// On a protected connection they go in batches: eight bytes of the same shape, of kind kCredits and
// with the number of credits in place of the slot; the credits; and a tag over both. They are not
// encrypted, because they say nothing that the lengths of frames do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"
#include "daemon/transport/seal.h"

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

inline constexpr uint32_t kMaxBatchedCredits = 128;
inline constexpr size_t kMaxBatchBytes = (1 + kMaxBatchedCredits) * sizeof(Credit) + kTagBytes;

// Appends the credits to `out` as they go over the connection. `sealer` is null where nothing is
// protected.
void append_credits(std::span<const Credit> credits, Sealer* sealer, std::vector<std::byte>& out);

// What stands at the beginning of what has come.
struct CreditBatch {
  size_t bytes = 0;  // The bytes that it takes; 0 if more have to come.
  std::span<const std::byte> credits;

  size_t size() const { return credits.size() / sizeof(Credit); }
  Credit operator[](size_t i) const {
    Credit credit;
    std::memcpy(&credit, credits.data() + i * sizeof(Credit), sizeof(Credit));
    return credit;
  }
};
// Takes as many credits from the beginning of `bytes` as there are, or the first batch of them. The
// error is kInternal: it is no batch, or was changed on its way.
Result<CreditBatch> take_credits(std::span<std::byte> bytes, Opener* opener);

}  // namespace rueda::transport::tcp
