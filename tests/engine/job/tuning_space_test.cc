#include "daemon/engine/job/tuning_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using testing::ElementsAre;

JobSpec job_of(int nodes) {
  std::vector<core::LayoutNode> layout;
  for (int i = 0; i < nodes; ++i) {
    layout.push_back({"n" + std::to_string(i), "", {Rank{2 * i}, Rank{2 * i + 1}}});
  }
  JobSpec spec{"job", "", "", {}, NodeIndex{0}, core::Layout::make(std::move(layout)).value()};
  spec.autotunes = true;
  return spec;
}

core::TuningSpace space_of(const JobSpec& spec, const EngineOptions& options = {}) {
  return tuning_options(options, spec, int64_t{64} << 20, 1).space;
}

TEST(TuningSpace, HasWhatTheDefaultsLeaveOpen) {
  EngineOptions options;
  options.staging_bytes = 1u << 30;
  options.streams = 5;
  const core::TuningSpace space = space_of(job_of(2), options);
  EXPECT_EQ(space.defaults(), (core::TunedSetting{64 << 20, {}}));
  EXPECT_THAT(space.fusion_bytes, ElementsAre(64 << 20, 16 << 20, 4 << 20, 1 << 20));
  EXPECT_THAT(space.chunk_bytes, ElementsAre(0, 64 << 10, 128 << 10, 512 << 10, 1 << 20));
  EXPECT_THAT(space.streams, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(space.cutovers_log2, ElementsAre(0, core::kRingAlways, -2, 2));
}

TEST(TuningSpace, ChunksFitIntoTheStagingMemory) {
  const std::vector<uint32_t> chunks = space_of(job_of(2)).chunk_bytes;
  ASSERT_EQ(chunks.size(), 4u) << "twice and four times as much would be the same slot";
  EXPECT_GT(chunks.back(), 256u << 10);
  EXPECT_LT(chunks.back(), 512u << 10);
  for (const uint32_t bytes : space_of(job_of(60)).chunk_bytes) EXPECT_LT(bytes, 256u << 10);
}

TEST(TuningSpace, WhatSomebodyHasSetStays) {
  JobSpec spec = job_of(2);
  spec.fusion_threshold_bytes = 64 << 20;
  spec.algorithm = core::AlgorithmChoice::kTable;
  const core::TuningSpace space = space_of(spec);
  EXPECT_EQ(space.fusion_bytes.size(), 1u);
  EXPECT_EQ(space.cutovers_log2.size(), 1u);
}

TEST(TuningSpace, OneNodeHasNoNetworkButWithAMemberForEachRank) {
  JobSpec spec = job_of(1);
  EXPECT_EQ(space_of(spec).chunk_bytes.size(), 1u);
  EXPECT_GT(space_of(spec).fusion_bytes.size(), 1u);
  spec.reducer = core::Reducer::kDevice;
  EXPECT_GT(space_of(spec).chunk_bytes.size(), 1u);
}

TEST(TuningSpace, SlotsAreWideWhereOthersMayBeNeeded) {
  EngineOptions options;
  JobSpec spec = job_of(2);
  EXPECT_EQ(widest_chunk_bytes(options, spec), 1u << 20);
  options.chunk_bytes = 2 << 20;
  EXPECT_EQ(widest_chunk_bytes(options, spec), 4u << 20);
  spec.autotunes = false;
  EXPECT_EQ(widest_chunk_bytes(options, spec), 0u);
  EXPECT_FALSE(tuning_options(options, spec, 1, 1).is_enabled);
  spec.replays = true;
  EXPECT_EQ(widest_chunk_bytes(options, spec), 4u << 20);
}

}  // namespace
}  // namespace rueda::engine
