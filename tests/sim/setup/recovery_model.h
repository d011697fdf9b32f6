// Models what a node has in its memory and on its wires while operations run and nodes die: enough
// of the data plane to see whether recovery keeps what it promises. Values are bit masks of the
// nodes that contributed, so that a sum says what is in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/recovery/recovery.h"
#include "daemon/core/schedules/ring_schedule.h"
#include "tests/sim/setup/segments.h"

namespace rueda::sim {

using NodeMask = uint32_t;

constexpr NodeMask mask_of(NodeIndex node) { return NodeMask{1} << node.value; }

// Describes an operation that a job wants to carry out; the nodes have agreed on the order of
// operations.
struct PlannedOperation {
  int64_t bytes = 1;
  int pieces = 1;
  int tensor = 0;  // consecutive operations of one tensor are its segments
};

struct Plan {
  std::optional<core::Layout> layout;
  core::RecoveryOptions options;
  std::vector<PlannedOperation> operations;
  uint64_t window = 2;             // L5's W
  bool frames_after_seal = false;  // a sealed node still takes part in what it sealed
  MixedEpochs mixed = MixedEpochs::kRefuse;

  int node_count() const { return layout->node_count(); }
  // Returns the number of nodes, and of the witness if there is one.
  int voter_count() const { return node_count() + (options.has_witness ? 1 : 0); }
};

// Holds the final values of one chunk; a mask of 0 means that they are not here.
struct ChunkValue {
  int operation = 0;  // its place in the plan
  NodeMask mask = 0;

  bool operator==(const ChunkValue&) const = default;
};

struct Frame {
  Epoch epoch;
  Seq seq;
  size_t chunk = 0;
  core::RingPhase phase = core::RingPhase::kReduce;
  ChunkValue value;
  Seq stable;
};
struct FetchRequest {
  Epoch epoch;
  Seq seq;
  size_t chunk = 0;
};
struct FetchReply {
  Epoch epoch;
  Seq seq;
  size_t chunk = 0;
  ChunkValue value;
};

struct Parcel {
  int from = 0;
  int to = 0;
  std::variant<Frame, FetchRequest, FetchReply, core::RecoveryMessage> body;

  bool is_data() const { return !std::holds_alternative<core::RecoveryMessage>(body); }
};

// Describes what a node's memory has of one operation of its epoch.
struct Memory {
  int operation = 0;  // its place in the plan
  bool launched = false;
  bool partial = true;             // P
  std::vector<ChunkValue> chunks;  // F
  bool freed = false;              // F is gone
  bool delivered = false;

  bool whole() const {
    for (const ChunkValue& chunk : chunks) {
      if (chunk.mask == 0) return false;
    }
    return !chunks.empty();
  }
};

// Says how one submission ended on one node.
struct OperationEnding {
  enum class Kind : uint8_t { kOpen, kDelivered, kFailed } kind = Kind::kOpen;
  SegmentResult result;
  ChunkValue value;
};

struct NodeModel {
  std::optional<core::Recovery> core;
  bool alive = true;
  bool sealed = false;
  bool ended = false;
  Epoch epoch{1};
  std::vector<NodeIndex> members;
  std::map<uint64_t, Memory> operations;  // by seq of the epoch
  uint64_t next_seq = 1;
  int next_operation = 0;                // the place in the plan of the next to be launched
  int ready = 0;                         // operations of the plan that its ranks have submitted
  std::vector<Parcel> early;             // of an epoch or an operation that it has not begun
  std::vector<OperationEnding> endings;  // by operation of the plan
  std::vector<SegmentTally> tensors;
  std::vector<int> tensor_endings;  // how often each tensor's submission ended
};

}  // namespace rueda::sim
