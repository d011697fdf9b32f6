// What a timeline is made of: spans and marks on tracks, on one node. docs/timeline.md says what
// each kind means. Recorded on the control loop, sent to the node that writes the file in batches.
//
// What the tensors of an operation have in common is recorded once, not for each of them: a step
// may have a thousand, and the time that each of them takes is less than that of writing it down.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/dtype.h"

namespace rueda::observe {

enum class TraceKind : uint8_t {
  // Of an operation, that is a batch of tensors.
  kLocalReduce = 0,  // first to last pass over the ranks' memory; value: nanoseconds at work
  kRing = 1,         // first chunk sent, or awaited, to last chunk received; value: bytes
  kChunk = 2,        // a mark: a chunk has come; value: its number
  kCopyOut = 3,      // first to last copy to the ranks' memory; value: nanoseconds at work
  // These belong to a rank; their value is the step's number.
  kStep = 4,
  kForward = 5,   // until its first submission: forward, input, optimizer
  kBackward = 6,  // until its last submission
  kExposed = 7,   // until its last result: communication that nothing hides
};
inline constexpr int kTraceKindCount = 8;

struct TraceEvent {
  uint32_t track = 0;
  TraceKind kind = TraceKind::kLocalReduce;
  uint32_t process_set = 0;
  int64_t begin_ns = 0;     // on the steady clock of the node, or of whom it was sent to
  int64_t duration_ns = 0;  // marks: 0
  uint64_t operation = 0;   // the value of its Seq; 0: none
  int64_t value = 0;
};

// A rank had submitted so many tensors of an operation, one behind the other, at one time.
struct TraceReady {
  static constexpr int64_t kNever = INT64_MIN;  // it has joined

  int32_t rank = 0;
  uint32_t tensors = 0;
  int64_t at_ns = kNever;

  bool operator==(const TraceReady&) const = default;
};

// The tracks of an operation's tensors; operations of the same tensors share them.
using TraceTensors = std::shared_ptr<const std::vector<uint32_t>>;

struct TraceOperation {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  uint32_t process_set = 0;
  uint64_t number = 0;  // the value of its Seq
  int64_t launched_ns = 0;
  int64_t begun_ns = 0;  // by the data plane
  int64_t ended_ns = 0;
  TraceTensors tensors;
  std::vector<TraceReady> ready;  // rank by rank, each with all tensors

  // As the file has them: of each tensor it has two spans, marks, and a third span if there are
  // any.
  uint64_t events() const;
};

// The most tracks of one node.
inline constexpr size_t kMaxTracks = size_t{1} << 14;

// Some of a node's events.
struct TraceBatch {
  int32_t node = 0;  // index in the job's layout
  std::string node_id;
  // Those that no batch of the node's has named before.
  std::vector<std::pair<uint32_t, std::string>> tracks;
  std::vector<TraceEvent> events;
  std::vector<TraceOperation> operations;
  uint64_t dropped = 0;          // of the node's events, so far
  int64_t clock_offset_ns = 0;   // has been added to the node's times
  int64_t clock_error_ns = 0;    // bound of what may be wrong with that
  uint32_t clock_exchanges = 0;  // that it was estimated from
  bool is_last = false;
};

// How much a batch may hold.
struct TraceBatchSize {
  size_t records = SIZE_MAX;  // an event, an operation, or an item of its TraceOperation::ready
  uint64_t events = UINT64_MAX;
};

// The events of a node that wait to be sent. Beyond its bounds events are dropped, and counted. Not
// thread-safe.
class TraceBuffer {
 public:
  TraceBuffer(size_t max_records, size_t max_tracks)
      : max_records_(max_records), max_tracks_(max_tracks) {}

  static constexpr uint32_t kNoTrack = UINT32_MAX;
  // Made on first use. kNoTrack: there are too many; its events are dropped.
  uint32_t track(const std::string& name);
  void add(const TraceEvent& event);
  void add(TraceOperation operation);
  // Events that were dropped before they came here.
  void count_dropped(uint64_t events) { dropped_ += events; }
  // The oldest, at most so many but at least one.
  TraceBatch take(const TraceBatchSize& most);
  // Batches may have been lost, and what they named with them: those to come name all they use.
  void name_again() { is_named_.assign(is_named_.size(), false); }

  bool is_empty() const { return events_.empty() && operations_.empty(); }
  uint64_t dropped() const { return dropped_; }

 private:
  bool is_full() const { return events_.size() + operation_records_ >= max_records_; }
  void name(uint32_t track, TraceBatch& batch);

  const size_t max_records_;
  const size_t max_tracks_;
  std::unordered_map<std::string, uint32_t> tracks_;
  std::vector<const std::string*> names_;  // by track
  std::vector<bool> is_named_;             // by track: in a batch that was taken
  std::deque<TraceEvent> events_;
  std::deque<TraceOperation> operations_;
  size_t operation_records_ = 0;
  uint64_t dropped_ = 0;
};

// Returns the number of all the events of a batch.
uint64_t count_events(const TraceBatch& batch);

}  // namespace rueda::observe
