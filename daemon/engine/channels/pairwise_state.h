// The state of a pairwise all-reduce in one lane: how far each piece is
// (core/schedules/pairwise_schedule.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/base/parts.h"
#include "daemon/core/schedules/pairwise_schedule.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

// A message that has come, in its slot.
struct WaitingMessage {
  bool has_come = false;
  uint32_t slot = 0;
  std::span<const std::byte> payload;
};

// A piece of the operation, with a work buffer of the mesh.
struct PairwisePiece {
  int64_t number = -1;  // -1: none is under way.
  ElementRange range;   // The piece's elements of the operation.
  size_t sends_begun = 0;
  size_t receives_done = 0;
  size_t adding_to = 0;      // Not 0: receives before this one are being added up elsewhere.
  std::vector<bool> unsent;  // By send of the program.
  // The messages by the program's number of the receive. After a receive is done, the message of
  // the buffer's next piece may already be there.
  std::vector<WaitingMessage> messages;
};

// The exchange of one lane. It keeps its memory from one operation to the next.
struct PairwiseState {
  const core::PairwiseProgram* program = nullptr;  // Null if no exchange is under way.
  int64_t piece_elements = 0;
  int64_t pieces = 0;
  int64_t first_place = 0;  // The place of piece 0 in the window.
  int64_t next_piece = 0;   // The next piece to begin.
  int64_t pieces_done = 0;
  std::vector<PairwisePiece> window;  // By place modulo its size.

  // Operations of one lane begin at one place after the other, so that those of one piece use all
  // work buffers and slots in turn: none is needed again at once.
  int64_t place(int64_t piece) const { return first_place + piece; }
  size_t index(int64_t piece) const { return static_cast<size_t>(place(piece)) % window.size(); }
};

// An addition that another process makes for a piece: of the receives from `begin` to before `end`.
// Meanwhile their slots stay taken and the work buffer is held, whatever becomes of the operation.
struct PairwiseAddition {
  Seq seq;
  uint32_t generation = 0;
  const core::PairwiseProgram* program = nullptr;
  uint32_t work = 0;
  size_t begin = 0;
  size_t end = 0;
};

// A message of an operation that this node has not launched.
struct EarlyMessage {
  NodeIndex from;
  transport::FrameHeader header;
  std::span<std::byte> payload;
};

}  // namespace rueda::engine
