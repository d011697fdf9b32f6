// How a message about a transfer between ranks (core/messages/transfer_messages.h) is written into
// a frame: little-endian, with a fixed layout (docs/protocol.md, "Transfers between ranks"). All
// functions are pure, and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/base/status.h"
#include "daemon/core/messages/transfer_messages.h"

namespace rueda::engine {

// The data of a message may come with its offer if it has at most so many bytes.
inline constexpr int64_t kMostCarriedBytes = 32 << 10;
// What one node may have waiting on another of data that came with offers, in bytes.
inline constexpr int64_t kCarriedBudget = 512 << 10;
// A record without what an offer carries has at most so many bytes.
inline constexpr size_t kMostRecordBytes = 1 << 10;

struct TransferRecord {
  uint32_t process_set = 0;
  core::TransferMessage message;
  std::span<const std::byte> data;  // What an offer carries, in the memory that was read.
};

// Writes the record, without the data. Returns its size, at most kMostRecordBytes, which `to` has
// room for. The text of a refusal is cut.
size_t write_record(uint32_t process_set, const core::TransferMessage& message, std::byte* to);

// Reads what a peer has sent. The error says what is wrong with it. Whether an offer can be, or an
// answer is one to an open offer, is for the caller to say.
Result<TransferRecord> read_record(std::span<const std::byte> from);

}  // namespace rueda::engine
