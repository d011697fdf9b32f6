#include "daemon/engine/job/tuning_space.h"

#include <algorithm>
#include <vector>

#include "daemon/engine/data/data_parts.h"
#include "daemon/engine/memory/slots.h"

namespace rueda::engine {
namespace {

constexpr uint32_t kLeastChunkBytes = 16 << 10;
constexpr uint64_t kMaxChunkBytes = 4 << 20;  // It is SlotGeometry's limit.
constexpr int64_t kLeastFusionBytes = 64 << 10;
// The search takes some three hundred steps if they take a second, and a quarter of a minute if
// they are short.
constexpr size_t kMaxCandidates = 12;
constexpr int kWindowRounds = 3;
constexpr TicksMs kWindowMs = 200;
// The factor up to which the search goes from the default, both ways: a quarter, half, twice, four
// times.
constexpr uint64_t kWidening = 4;

// Returns slots as the job's data plane has them, or smaller ones.
SlotGeometry slots_for(const EngineOptions& options, const JobSpec& spec, size_t loops,
                       uint64_t chunk_bytes) {
  const core::Reducer reducer = spec.reducer.value_or(options.reducer);
  const DataParts parts(reducer, spec.layout, spec.self);
  const uint64_t budget = options.staging_bytes / (parts.max_on_a_node() * loops);
  // The mesh gets a quarter of the memory.
  return SlotGeometry::make(static_cast<int>(parts.ring().size()), options.lanes, chunk_bytes,
                            budget / 4 * 3);
}

// Returns the chunks that fit, which are few where many nodes share the memory.
std::vector<uint32_t> chunks_around(uint32_t configured, uint32_t widest) {
  std::vector<uint32_t> chunks{0};
  for (const uint32_t wanted : {configured / 4, configured / 2, configured * 2, configured * 4}) {
    const uint32_t bytes = std::min(wanted, widest);
    const bool is_known = bytes == configured || bytes == chunks.back();
    if (bytes >= kLeastChunkBytes && !is_known) chunks.push_back(bytes);
  }
  return chunks;
}

}  // namespace

core::TuningOptions tuning_options(const EngineOptions& options, const JobSpec& spec,
                                   int64_t fusion_threshold_bytes, size_t loops) {
  core::TuningOptions tuning;
  if (!spec.autotunes) return tuning;
  tuning.is_enabled = true;
  tuning.max_candidates = kMaxCandidates;
  tuning.window_rounds = kWindowRounds;
  tuning.window_ms = kWindowMs;
  tuning.rounds_to_skip = 1;
  tuning.space.fusion_bytes = {fusion_threshold_bytes};
  if (!spec.fusion_threshold_bytes) {
    for (const int64_t part : {4, 16, 64}) {
      const int64_t bytes = fusion_threshold_bytes / part;
      if (bytes >= kLeastFusionBytes) tuning.space.fusion_bytes.push_back(bytes);
    }
  }
  const bool is_by_device = spec.reducer.value_or(options.reducer) == core::Reducer::kDevice;
  if (spec.layout.node_count() == 1 && !is_by_device) return tuning;  // There is no network.
  tuning.space.chunk_bytes =
      chunks_around(slots_for(options, spec, loops, options.chunk_bytes).slot_bytes,
                    slots_for(options, spec, loops, widest_chunk_bytes(options, spec)).slot_bytes);
  for (uint32_t streams = 1; streams < options.streams; streams *= 2) {
    tuning.space.streams.push_back(streams);
  }
  if (spec.algorithm == core::AlgorithmChoice::kAuto) {
    tuning.space.cutovers_log2 = {0, core::kRingAlways, -2, 2};
  }
  return tuning;
}

uint64_t widest_chunk_bytes(const EngineOptions& options, const JobSpec& spec) {
  if (!spec.autotunes && !spec.replays) return 0;
  return std::clamp(options.chunk_bytes * kWidening, options.chunk_bytes,
                    std::max(options.chunk_bytes, kMaxChunkBytes));
}

}  // namespace rueda::engine
