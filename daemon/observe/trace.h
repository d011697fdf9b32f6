// What a timeline is made of: spans and marks on tracks, on one node. docs/timeline.md says what
// each kind means. Recorded on the control loop, sent to the node that writes the file in batches.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rueda::observe {

enum class TraceKind : uint8_t {
  // Of a tensor.
  kNegotiate = 0,  // first local rank's submission to launch; value: the collective's kind
  kReady = 1,      // a mark: a rank has submitted it; value: the rank
  kOperation = 2,  // launch to end; value: the collective's kind
  kQueue = 3,      // launch to the data plane's beginning with it
  // Of an operation, that is a batch of tensors.
  kLocalReduce = 4,  // first to last pass over the ranks' memory; value: nanoseconds at work
  kRing = 5,         // first chunk sent, or awaited, to last chunk received; value: bytes
  kChunk = 6,        // a mark: a chunk has come; value: its number
  kCopyOut = 7,      // first to last copy to the ranks' memory; value: nanoseconds at work
  // Of a rank; value: the step's number.
  kStep = 8,
  kForward = 9,    // until its first submission: forward, input, optimizer
  kBackward = 10,  // until its last submission
  kExposed = 11,   // until its last result: communication that nothing hides
};
inline constexpr int kTraceKindCount = 12;

struct TraceEvent {
  uint32_t track = 0;
  TraceKind kind = TraceKind::kNegotiate;
  uint32_t process_set = 0;
  int64_t begin_ns = 0;     // on the steady clock of the node, or of whom it was sent to
  int64_t duration_ns = 0;  // marks: 0
  uint64_t operation = 0;   // the value of its Seq; 0: none
  int64_t value = 0;
};

constexpr bool is_mark(TraceKind kind) {
  return kind == TraceKind::kReady || kind == TraceKind::kChunk;
}

// Some of a node's events. Complete in itself: it names every track that it uses.
struct TraceBatch {
  int32_t node = 0;  // index in the job's layout
  std::string node_id;
  std::vector<std::pair<uint32_t, std::string>> tracks;
  std::vector<TraceEvent> events;
  uint64_t dropped = 0;          // of the node's events, so far
  int64_t clock_offset_ns = 0;   // has been added to the node's times
  int64_t clock_error_ns = 0;    // bound of what may be wrong with that
  uint32_t clock_exchanges = 0;  // that it was estimated from
  bool is_last = false;
};

// Events that wait to be sent. Not thread-safe. Beyond its bounds events are dropped, and counted.
class TraceBuffer {
 public:
  TraceBuffer(size_t max_events, size_t max_tracks)
      : max_events_(max_events), max_tracks_(max_tracks) {}

  static constexpr uint32_t kNoTrack = UINT32_MAX;
  // Made on first use. kNoTrack: there are too many; its events are dropped.
  uint32_t track(const std::string& name);
  void add(const TraceEvent& event);
  // Events that were dropped before they came here.
  void count_dropped(uint64_t events) { dropped_ += events; }
  // The oldest, at most so many, with their tracks.
  TraceBatch take(size_t most);

  bool is_empty() const { return events_.empty(); }
  uint64_t dropped() const { return dropped_; }

 private:
  const size_t max_events_;
  const size_t max_tracks_;
  std::unordered_map<std::string, uint32_t> tracks_;
  std::vector<const std::string*> names_;  // by track
  std::vector<uint64_t> named_in_;         // by track: the last batch that has its name
  uint64_t batches_ = 0;
  std::deque<TraceEvent> events_;
  uint64_t dropped_ = 0;
};

}  // namespace rueda::observe
