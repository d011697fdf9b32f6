// A data job keeps these under policy `shrink` for a recovery: the final values of each track
// (retained_finals.h), and the operations that the epoch before has left COMPLETE. Under another
// policy nothing is kept, and every call says so. The object belongs to its data loop.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/core/recovery/decision.h"
#include "daemon/engine/channels/retained_finals.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/data/operation_table.h"
#include "daemon/engine/data/running_operation.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

class RetainedResults {
 public:
  // All of them outlive the object. `chunk_bytes` is what a chunk of this epoch has.
  RetainedResults(const DataJobOptions& options, observe::Metrics& metrics, uint32_t chunk_bytes)
      : options_(options), metrics_(metrics), chunk_bytes_(chunk_bytes) {}

  // Keeps final values from now on. The error is kResourceExhausted.
  [[nodiscard]] Status allocate();
  bool is_on() const { return held_.front() != nullptr; }
  // Returns the final values of the track, or null where nothing is kept.
  RetainedFinals* of(core::Track track) const { return held_[core::index_of(track)].get(); }
  RetainedFinals* of(Seq seq) const { return of(core::track_of(seq)); }

  // --- Operations of this epoch

  // The operation is launched. The error is kResourceExhausted.
  [[nodiscard]] Status launch(const RunningOperation& running);
  // The owner is about to be told that the operation has ended well.
  void note_delivered(Seq seq);
  // All nodes have completed the operations up to here, as far as they are complete here.
  void note_stable(Seq seq);
  // On the only node of the ring what is complete is stable, because there is nobody else.
  void note_complete_is_stable();
  // R2: learns from a chunk's frame what is stable. Returns what the frame says where it goes next,
  // as final values or not.
  uint64_t pass_on_stability(const transport::FrameHeader& header, bool is_final);

  // --- Operations that the epoch before has left COMPLETE: their values are fetched, or all here

  // Takes over, for the track, from the sealed epoch before what the decision says. `running` has
  // the operations that were under way there.
  void carry_over(RetainedResults& before, OperationTable& running, core::Track track,
                  const core::TrackDecision& decision);
  // If the operation is COMPLETE and was not launched before, it is no longer awaited, and the
  // bytes of its chunks are returned.
  std::optional<uint32_t> take_awaited(Seq seq);
  // Such an operation is launched. The error is kResourceExhausted.
  [[nodiscard]] Status launch_awaited(std::unique_ptr<Operation> operation, uint32_t chunk_bytes);
  bool has_completing() const { return !completing_.empty(); }
  // Returns whether the operation waits for chunks.
  bool is_completing(Seq seq) const { return find(seq) != nullptr; }
  // Returns those whose values are all here.
  std::vector<RunningOperation*> whole() const;
  // Keeps a chunk that was fetched from another node. Returns the operation if that was the last
  // one, and null if others are missing. The error is kInternal if nobody waits for the chunk, or
  // if it has another size.
  Result<RunningOperation*> take_final(Seq seq, uint32_t chunk, std::span<const std::byte> values);
  // Ends the operation.
  void erase(const RunningOperation& running);

 private:
  RunningOperation* find(Seq seq) const;
  std::unique_ptr<RunningOperation> extract(Seq seq);

  const DataJobOptions& options_;
  observe::Metrics& metrics_;
  const uint32_t chunk_bytes_;
  std::array<std::unique_ptr<RetainedFinals>, core::kTracks>
      held_;  // by track; null: nothing is kept
  std::vector<std::unique_ptr<RunningOperation>> completing_;
  std::map<Seq, uint32_t> awaited_;  // not launched here yet: the bytes of a chunk
};

}  // namespace rueda::engine
