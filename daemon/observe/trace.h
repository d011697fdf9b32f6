// The parts of a timeline: spans and marks on tracks, on one node. docs/timeline.md says what each
// kind means. They are recorded on the control loop, and sent in batches to the node that writes
// the file.
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
  // These belong to an operation, that is, to a batch of tensors.
  kLocalReduce = 0,  // First to last pass over the ranks' memory; value: nanoseconds at work.
  kRing = 1,         // First chunk sent, or awaited, to last chunk received; value: bytes.
  kChunk = 2,        // A mark: a chunk has come; value: its number.
  kCopyOut = 3,      // First to last copy to the ranks' memory; value: nanoseconds at work.
  // These belong to a rank; their value is the step's number.
  kStep = 4,
  kForward = 5,   // Until its first submission: forward pass, input, optimizer.
  kBackward = 6,  // Until its last submission.
  kExposed = 7,   // Until its last result: communication that nothing hides.
  // These are messages between ranks, from their submission to their end; value: bytes. `operation`
  // has this node's rank in its upper half, and the rank at the other end in its lower half.
  kSend = 8,
  kReceive = 9,
};
inline constexpr int kTraceKindCount = 10;

struct TraceEvent {
  uint32_t track = 0;
  TraceKind kind = TraceKind::kLocalReduce;
  uint32_t process_set = 0;
  int64_t begin_ns = 0;     // On the steady clock of the node, or of the node that it was sent to.
  int64_t duration_ns = 0;  // It is 0 for marks.
  uint64_t operation = 0;   // The value of its Seq; 0 without an operation.
  int64_t value = 0;
};

// A rank had submitted so many tensors of an operation, one behind the other, at one time.
struct TraceReady {
  static constexpr int64_t kNever = INT64_MIN;  // The rank has joined.

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
  uint64_t number = 0;  // The value of its Seq.
  int64_t launched_ns = 0;
  int64_t begun_ns = 0;  // When the data plane began it.
  int64_t ended_ns = 0;
  TraceTensors tensors;
  std::vector<TraceReady> ready;  // They go rank by rank, each with all tensors.

  // Returns how many events of the file the operation makes: for each tensor two spans, marks, and
  // a third span if there are any marks.
  uint64_t events() const;
};

// The most tracks that one node may have.
inline constexpr size_t kMaxTracks = size_t{1} << 14;

// Some of a node's events.
struct TraceBatch {
  int32_t node = 0;  // Its index in the job's layout.
  std::string node_id;
  // The tracks that no batch of the node has named before, with their names.
  std::vector<std::pair<uint32_t, std::string>> tracks;
  std::vector<TraceEvent> events;
  std::vector<TraceOperation> operations;
  uint64_t dropped = 0;          // How many of the node's events were dropped so far.
  int64_t clock_offset_ns = 0;   // It has been added to the node's times.
  int64_t clock_error_ns = 0;    // A bound of what may be wrong with that.
  uint32_t clock_exchanges = 0;  // How many exchanges it was estimated from.
  bool is_last = false;
};

// The most that a batch may hold.
struct TraceBatchSize {
  // A record is an event, an operation, or an item of its TraceOperation::ready.
  size_t records = SIZE_MAX;
  uint64_t events = UINT64_MAX;
};

// The events of a node that wait to be sent. Beyond its bounds events are dropped, and counted. The
// class is not thread-safe.
class TraceBuffer {
 public:
  TraceBuffer(size_t max_records, size_t max_tracks)
      : max_records_(max_records), max_tracks_(max_tracks) {}

  static constexpr uint32_t kNoTrack = UINT32_MAX;
  // Returns the track with this name, which is made on first use, or kNoTrack if there are too
  // many; its events are dropped.
  uint32_t track(const std::string& name);
  void add(const TraceEvent& event);
  void add(TraceOperation operation);
  // Counts events that were dropped before they came here.
  void count_dropped(uint64_t events) { dropped_ += events; }
  // Takes the oldest records: at most so many, but at least one, if there is one.
  TraceBatch take(const TraceBatchSize& most);
  // Makes the batches to come name all tracks that they use, because batches may have been lost,
  // with the names in them.
  void name_again() { is_named_.assign(is_named_.size(), false); }

  bool is_empty() const { return events_.empty() && operations_.empty(); }
  uint64_t dropped() const { return dropped_; }

 private:
  bool is_full() const { return events_.size() + operation_records_ >= max_records_; }
  void name(uint32_t track, TraceBatch& batch);

  const size_t max_records_;
  const size_t max_tracks_;
  std::unordered_map<std::string, uint32_t> tracks_;
  std::vector<const std::string*> names_;  // By track.
  std::vector<bool> is_named_;             // By track: whether a batch that was taken has named it.
  std::deque<TraceEvent> events_;
  std::deque<TraceOperation> operations_;
  size_t operation_records_ = 0;
  uint64_t dropped_ = 0;
};

// Returns the number of all the events of a batch.
uint64_t count_events(const TraceBatch& batch);

}  // namespace rueda::observe
