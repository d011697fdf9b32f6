// Every bound that a client or a peer can run into, in one place. docs/operations.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rueda::limits {

inline constexpr size_t kMaxJobIdBytes = 63;
inline constexpr size_t kMaxNodeIdBytes = 63;
inline constexpr size_t kMaxPrincipalBytes = 63;
inline constexpr size_t kMaxTensorNameBytes = 255;
inline constexpr int kMaxDims = 8;
inline constexpr int kMaxLocalRanks = 64;
inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxRanks = 65536;
inline constexpr size_t kMaxTensorsPerSession = 1u << 20;
inline constexpr size_t kMaxProcessSets = 64;  // Of a job, at a time, beside the set of all ranks.
inline constexpr size_t kMaxOffersOfRank = 1u << 20;  // Sends that wait on another node.
inline constexpr size_t kMaxArenasPerSession = 1024;
inline constexpr size_t kMaxArenasPerPrincipal = 4096;
inline constexpr size_t kMaxMappedBytes = size_t{32} << 40;   // The sum over all arenas.
inline constexpr size_t kMaxDeviceMemoriesPerSession = 4096;  // Pieces of memory on all GPUs.
inline constexpr size_t kMaxSessions = 1024;
inline constexpr size_t kMaxJobs = 256;
// It is small, because pairs are measured one after the other.
inline constexpr size_t kMaxProbedNodes = 32;
inline constexpr size_t kMaxControlLinks = 8192;
inline constexpr size_t kMaxStrangers = 512;  // Links and connections that no job needs.
inline constexpr size_t kMaxHelloBytes = 1024;
inline constexpr size_t kMaxCounts = 65536;
inline constexpr size_t kMaxTensorBytes = size_t{1} << 40;
inline constexpr size_t kMaxControlMessageBytes = 4u << 20;
inline constexpr int kMaxLockAfterSteps = 1 << 20;
inline constexpr int64_t kMinCycleTimeUs = 10;
inline constexpr int64_t kMaxCycleTimeUs = 1'000'000;
inline constexpr int kMaxSleepAgreedEvery = 1 << 20;  // Cycles.
inline constexpr size_t kMaxTimelinePathBytes = 1023;
inline constexpr size_t kTokenBytes = 32;

}  // namespace rueda::limits
