// Records what happens to a job on one node while its timeline is on. It is told what the core is
// told, and what the core says. It belongs to the control loop, and takes the time itself.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/engine/operation/operation_trace.h"
#include "daemon/observe/step_watch.h"
#include "daemon/observe/trace.h"

namespace rueda::engine {

struct JobTraceOptions {
  std::vector<Rank> ranks;  // This node's ranks; the index is the local rank.
  bool wants_chunks = false;
  int64_t clock_skew_ns = 0;  // A fault that tests plant: it is added to every time.
  // The most records that may wait to be sent.
  size_t max_records = size_t{1} << 16;
  size_t max_tracks = observe::kMaxTracks;
};

class JobTrace {
 public:
  // Returns when a rank's submission came, in nanoseconds of the steady clock.
  using SubmittedAt = std::function<int64_t(LocalRank, Ticket)>;

  explicit JobTrace(JobTraceOptions options);

  // The operation is launched. `locals` are the node's ranks in the process set.
  void on_launch(const core::Launch& launch, const std::vector<LocalRank>& locals,
                 const SubmittedAt& submitted_at);
  // Returns the trace of a part of the operation that was launched last. It is called for each part
  // before the next launch.
  std::shared_ptr<OperationTrace> part_of_launch(int64_t bytes);
  // Forgets the launches that were cancelled, because they come again.
  void on_cancelled(const core::Cancel& cancelled);
  void on_ended(uint32_t process_set, Seq seq);
  // A send or a receive of a rank has ended well, with `peer` at the other end.
  void on_transferred(const core::TensorDescriptor& transfer, LocalRank rank, Rank peer,
                      int64_t submitted_ns);
  // Returns whether operations were launched that have not ended.
  bool has_under_way() const { return !operations_.empty(); }
  // Ends the steps that go on. Nothing is recorded afterwards.
  void finish();

  observe::TraceBuffer& buffer() { return buffer_; }

 private:
  struct Tensors {
    core::LaunchTensors of;
    std::vector<uint32_t> tracks;    // The track of each tensor.
    observe::TraceTensors recorded;  // The tracks of tensors that have one.
    uint64_t untracked = 0;
  };
  struct UnderWay {
    observe::TraceOperation record;
    std::vector<LocalRank> ranks;
    int64_t bytes = 0;
    uint64_t untracked = 0;  // The number of tensors without a track.
    std::vector<std::shared_ptr<OperationTrace>> parts;
  };
  using Key = std::pair<uint32_t, Seq>;  // The process set comes first.
  enum class Lane { kLocalReduce, kRing, kCopyOut, kSends, kReceives };

  int64_t now_ns() const { return steady_now_ns() + options_.clock_skew_ns; }
  uint32_t track_of(const core::TensorDescriptor& tensor);
  Tensors find_tensors(const core::LaunchTensors& launched);
  // Returns the launch's tensors; those of a plan are found once.
  const Tensors& tensors_of(const core::Launch& launch);
  // Returns a track on which nothing is recorded from `begin_ns` on, because operations overlap.
  uint32_t lane_track(Lane lane, int64_t begin_ns, int64_t end_ns);
  // Adds a stage. If there was no such stage, it does nothing, and the event stays as it is.
  void add_stage(Lane lane, observe::TraceKind kind, const OperationTrace::Stage& stage,
                 int64_t value, observe::TraceEvent& event);
  void add_chunks(const OperationTrace& part, observe::TraceEvent& event);
  void add_step(size_t place, const observe::TraceStep& step);

  const JobTraceOptions options_;
  observe::TraceBuffer buffer_;
  std::vector<uint32_t> rank_tracks_;
  std::vector<observe::StepWatch> steps_;             // By local rank.
  std::unordered_map<const void*, Tensors> planned_;  // By the address of what is launched.
  Tensors launched_;  // The tensors that were last launched without a plan.
  std::map<Key, UnderWay> operations_;
  UnderWay* launched_last_ = nullptr;
  // The tracks of each lane, and where the last event of each ends.
  std::array<std::vector<std::pair<uint32_t, int64_t>>, 5> lanes_;
};

}  // namespace rueda::engine
