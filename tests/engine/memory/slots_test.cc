#include "daemon/engine/memory/slots.h"

#include <set>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(SlotGeometry, StagingStaysWithinItsBound) {
  for (const int nodes : {2, 3, 8, 64, 500}) {
    for (const uint64_t chunk : {uint64_t{4096}, 256 * kMiB / 1024, 4 * kMiB}) {
      for (const uint64_t budget : {64 * kMiB, 1024 * kMiB}) {
        const auto geometry = SlotGeometry::make(nodes, 4, chunk, budget);
        EXPECT_LE(geometry.total_bytes(), budget) << nodes << " nodes, chunks of " << chunk;
        EXPECT_LE(geometry.slot_bytes, chunk);
        EXPECT_GE(geometry.slot_bytes, 4096u);
        EXPECT_EQ(geometry.slot_bytes % 4096, 0u);
      }
    }
  }
}

TEST(SlotGeometry, AChunkThatFitsIsNotCut) {
  EXPECT_EQ(SlotGeometry::make(2, 4, 256 * 1024, 64 * kMiB).slot_bytes, 256u * 1024);
  EXPECT_EQ(SlotGeometry::make(8, 4, 256 * 1024, 256 * kMiB).slot_bytes, 256u * 1024);
}

TEST(SlotGeometry, ManyNodesShrinkTheChunksDownToAPage) {
  EXPECT_LT(SlotGeometry::make(64, 4, 256 * 1024, 64 * kMiB).slot_bytes, 256u * 1024);
  EXPECT_EQ(SlotGeometry::make(2000, 4, 256 * 1024, kMiB).slot_bytes, 4096u);
}

TEST(SlotGeometry, EveryChunkUnderWayHasASlotOfItsOwn) {
  for (const int nodes : {2, 3, 5}) {
    const auto geometry = SlotGeometry::make(nodes, 4, 4096, 64 * kMiB);
    std::set<uint32_t> slots;
    std::set<uint32_t> buffers;
    for (uint64_t seq = 100; seq < 104; ++seq) {
      for (int64_t piece = 37; piece < 37 + geometry.window; ++piece) {
        buffers.insert(geometry.origin_buffer(Seq{seq}, piece));
        for (int shard = 0; shard < nodes; ++shard) {
          slots.insert(geometry.ring_slot(Seq{seq}, piece, shard, core::RingPhase::kReduce));
          slots.insert(geometry.ring_slot(Seq{seq}, piece, shard, core::RingPhase::kGather));
        }
      }
    }
    for (uint64_t number = 100; number < 100 + core::kDecreedWindow; ++number) {
      const Seq seq{core::kDecreedBit | number};
      for (int64_t piece = 5; piece < 5 + geometry.slots_per_chain(); ++piece) {
        slots.insert(geometry.chain_slot(seq, piece));
        buffers.insert(geometry.origin_buffer(seq, piece));
      }
    }
    EXPECT_EQ(slots.size(), geometry.slots());
    EXPECT_EQ(*slots.rbegin(), geometry.slots() - 1);
    EXPECT_EQ(buffers.size(), geometry.origin_buffers());
    EXPECT_EQ(*buffers.rbegin(), geometry.origin_buffers() - 1);
  }
}

TEST(SlotGeometry, AcknowledgementsHaveSlotsOfTheirOwn) {
  const SlotGeometry without = SlotGeometry::make(4, 4, 4096, 64u << 20);
  const SlotGeometry with = SlotGeometry::make(4, 4, 4096, 64u << 20, true);
  EXPECT_EQ(without.slots(), with.chunk_slots());
  EXPECT_EQ(with.slots(), without.slots() + 2);
  EXPECT_EQ(with.acknowledgement_slot(core::Track::kLockable), without.slots());
  EXPECT_EQ(with.acknowledgement_slot(core::Track::kDecreed), without.slots() + 1);
}

TEST(SlotGeometry, ABroadcastUsesTheSlotsOfItsLaneInTurn) {
  const auto geometry = SlotGeometry::make(3, 4, 4096, 64 * kMiB);
  const Seq seq{core::kDecreedBit | 6};
  std::set<uint32_t> slots;
  for (int64_t piece = 0; piece < geometry.slots_per_chain(); ++piece) {
    slots.insert(geometry.chain_slot(seq, piece));
  }
  EXPECT_EQ(slots.size(), geometry.slots_per_chain());
  EXPECT_EQ(*slots.begin(), 4 * geometry.slots_per_lane());
  EXPECT_EQ(*slots.rbegin(), 4 * geometry.slots_per_lane() + geometry.slots_per_chain() - 1);
  EXPECT_EQ(geometry.chain_slot(seq, 0), geometry.chain_slot(seq, geometry.slots_per_chain()));
}

}  // namespace
}  // namespace rueda::engine
