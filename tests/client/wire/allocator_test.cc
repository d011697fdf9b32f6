#include "client/src/wire/allocator.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/os/shared_mapping.h"

namespace rueda::client {
namespace {

using IfIdle = ArenaAllocator::IfIdle;

// Stands for the daemon: counts arenas and checks what it is given.
struct Registry {
  uint32_t next_id = 0;
  std::map<uint32_t, uint64_t> arenas;
  bool refuses_removal = false;
  bool refuses = false;
  int ends_after = -1;        // the session is over after so many arenas; -1: it is not
  bool knows_arenas = false;  // from a session before

  ArenaAllocator::Registrar registrar() {
    return {.add = [this](int memfd, uint64_t bytes) -> Result<uint32_t> {
              if (refuses) return Status{Code::kResourceExhausted, "no more arenas"};
              if (ends_after == static_cast<int>(arenas.size())) {
                return Status{Code::kRankLost, "rank 3 was killed"};
              }
              int seals = ::fcntl(memfd, F_GET_SEALS);
              if (!knows_arenas) {
                EXPECT_EQ(seals, F_SEAL_SHRINK | F_SEAL_GROW);  // the daemon adds other seals
              }
              EXPECT_EQ(bytes % 4096, 0u);
              EXPECT_EQ(static_cast<uint64_t>(::lseek(memfd, 0, SEEK_END)), bytes);
              arenas[next_id] = bytes;
              return next_id++;
            },
            .remove = [this](uint32_t id) -> Status {
              if (refuses_removal) return {Code::kInvalidArgument, "in use"};
              EXPECT_EQ(arenas.erase(id), 1u);
              return Status::ok();
            }};
  }
};

std::byte* allocate(ArenaAllocator& allocator, size_t bytes) {
  Result<Block> block = allocator.allocate(bytes);
  EXPECT_TRUE(block.is_ok()) << block.status().message();
  return block.is_ok() ? block.value().data : nullptr;
}

int64_t minor_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// The function is not instrumented, because the sanitizers' own memory for these pages would count
// as well.
__attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread"))) void touch(
    std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 4096) data[at] = std::byte{1};
}

TEST(ArenaMemoryTest, IsTouchedWithoutAFault) {
  // The size is that of huge pages, and of a rest in small pages.
  constexpr size_t kBytes = (size_t{16} << 20) + 3 * 4096;
  auto memory = ArenaMemory::create(kBytes);
  ASSERT_TRUE(memory.is_ok()) << memory.status().message();
  std::byte* data = memory.value()->data();
  const int64_t before = minor_faults();
  touch(data, kBytes);
  EXPECT_LE(minor_faults() - before, 8);  // allows a few, but not one for each page
  // Another mapping of the memory begins without page tables, as that of another process does.
  std::byte* other = map_shared(memory.value()->fd(), kBytes);
  ASSERT_TRUE(other);
  EXPECT_EQ(other[0], std::byte{1});
  EXPECT_EQ(other[kBytes - 4096], std::byte{1});
  unmap_guarded(other, kBytes);
}

TEST(FreeSpaceTest, TakesTheSmallestPieceThatFits) {
  FreeSpace space(1024);
  size_t a = space.take(256);
  size_t b = space.take(64);
  size_t c = space.take(128);
  size_t d = space.take(64);
  EXPECT_TRUE(space.give(a));
  EXPECT_TRUE(space.give(c));
  EXPECT_EQ(space.best_fit(100), 128u);
  EXPECT_EQ(space.take(100), c);
  EXPECT_TRUE(space.is_live(b, 64));
  EXPECT_TRUE(space.is_live(d, 64));
}

TEST(FreeSpaceTest, MergesNeighboursOnBothSides) {
  FreeSpace space(192);
  size_t a = space.take(64), b = space.take(64), c = space.take(64);
  EXPECT_EQ(space.best_fit(64), std::nullopt);
  EXPECT_TRUE(space.give(a));
  EXPECT_TRUE(space.give(c));
  EXPECT_EQ(space.best_fit(128), std::nullopt);
  EXPECT_TRUE(space.give(b));
  EXPECT_EQ(space.best_fit(192), 192u);
  EXPECT_TRUE(space.is_idle());
  EXPECT_FALSE(space.give(b)) << "freed twice";
}

TEST(AllocatorTest, BlocksAreAlignedWritableAndApart) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  std::mt19937 random(7);
  std::map<std::byte*, size_t> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() < 200 && random() % 3 != 0) {
      size_t bytes = random() % 20'000;
      std::byte* data = allocate(allocator, bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      auto after = live.lower_bound(data);
      if (after != live.end()) {
        ASSERT_LE(data + bytes, after->first);
      }
      if (after != live.begin()) {
        auto before = std::prev(after);
        ASSERT_GE(data, before->first + before->second);
      }
      std::memset(data, 0x5a, bytes);
      live.emplace(data, std::max<size_t>(bytes, 1));
    } else if (!live.empty()) {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      ASSERT_TRUE(allocator.free(victim->first, IfIdle::kMayReturn).is_ok());
      live.erase(victim);
    }
  }
  EXPECT_EQ(registry.arenas.size(), 1u);
  EXPECT_EQ(allocator.mapped_bytes(), kMinArenaBytes);
}

TEST(AllocatorTest, GrowsByAnArenaThatHoldsTheRequest) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  allocate(allocator, 1);
  allocate(allocator, kMinArenaBytes + 1);
  ASSERT_EQ(registry.arenas.size(), 2u);
  EXPECT_EQ(registry.arenas[1], kMinArenaBytes + 4096);
}

TEST(AllocatorTest, ReusesAFreedArena) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  std::byte* data = allocate(allocator, 2 * kMinArenaBytes);
  ASSERT_TRUE(allocator.free(data, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(allocate(allocator, 2 * kMinArenaBytes), data);
  EXPECT_EQ(registry.next_id, 1u);
}

TEST(AllocatorTest, ReturnsIdleArenasBeyondTheBound) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  std::byte* small = allocate(allocator, 64);
  std::byte* large = allocate(allocator, kMaxIdleBytes + 4096);
  ASSERT_EQ(registry.arenas.size(), 2u);
  registry.refuses_removal = true;
  EXPECT_TRUE(allocator.free(large, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(registry.arenas.size(), 2u) << "the daemon refused: kept";
  registry.refuses_removal = false;
  EXPECT_EQ(allocate(allocator, kMaxIdleBytes + 4096), large);
  EXPECT_TRUE(allocator.free(large, IfIdle::kKeep).is_ok());
  EXPECT_EQ(registry.arenas.size(), 2u);
  EXPECT_EQ(allocate(allocator, kMaxIdleBytes + 4096), large);
  EXPECT_TRUE(allocator.free(large, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(registry.arenas.size(), 1u);
  EXPECT_EQ(allocator.mapped_bytes(), kMinArenaBytes);
  EXPECT_TRUE(allocator.free(small, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(registry.arenas.size(), 1u) << "within the bound: kept for the next allocation";
}

TEST(AllocatorTest, LocatesLiveBlocksOnly) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  Block block = allocator.allocate(1000).value();
  auto inside = allocator.locate(block.data + 8, 900);
  ASSERT_TRUE(inside.is_ok());
  ASSERT_TRUE(inside.value().has_value());
  EXPECT_EQ(inside.value()->arena_id, block.place.arena_id);
  EXPECT_EQ(inside.value()->offset, block.place.offset + 8);

  int foreign = 0;
  auto outside = allocator.locate(&foreign, sizeof(foreign));
  ASSERT_TRUE(outside.is_ok());
  EXPECT_FALSE(outside.value().has_value());

  EXPECT_EQ(allocator.locate(block.data, 4096).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(allocator.free(block.data, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(allocator.locate(block.data, 8).status().code(), Code::kInvalidArgument);
}

TEST(AllocatorTest, RefusesPointersThatAreNoBlocks) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  std::byte* data = allocate(allocator, 1000);
  int foreign = 0;
  EXPECT_EQ(allocator.free(&foreign, IfIdle::kKeep).code(), Code::kNotFound);
  EXPECT_EQ(allocator.free(data + 64, IfIdle::kKeep).code(), Code::kNotFound);
  EXPECT_TRUE(allocator.free(data, IfIdle::kKeep).is_ok());
  EXPECT_EQ(allocator.free(data, IfIdle::kKeep).code(), Code::kNotFound);
}

TEST(AllocatorTest, ARefusedArenaIsAnError) {
  Registry registry;
  registry.refuses = true;
  ArenaAllocator allocator(registry.registrar());
  EXPECT_EQ(allocator.allocate(1).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(allocator.mapped_bytes(), 0u);
  EXPECT_EQ(allocator.allocate(SIZE_MAX).status().code(), Code::kResourceExhausted);
}

TEST(AllocatorTest, RetiredArenasLiveAsLongAsTheirBlocks) {
  Registry registry;
  ArenaAllocator allocator(registry.registrar());
  std::byte* kept = allocate(allocator, 100);
  std::byte* other = allocate(allocator, kMinArenaBytes + 1);
  ASSERT_TRUE(allocator.free(other, IfIdle::kKeep).is_ok());
  allocator.retire();
  EXPECT_EQ(allocator.mapped_bytes(), kMinArenaBytes);
  std::memset(kept, 1, 100);
  EXPECT_EQ(allocator.allocate(1).status().code(), Code::kShutDown);
  EXPECT_TRUE(allocator.free(kept, IfIdle::kMayReturn).is_ok());
  EXPECT_TRUE(allocator.is_idle());
  EXPECT_EQ(allocator.mapped_bytes(), 0u);
}

// After each reset of an elastic job all memory of rueda_alloc was foreign, and copied.
TEST(AllocatorTest, ArenasAreHandedOverAgain) {
  Registry before;
  ArenaAllocator allocator(before.registrar(), ArenaAllocator::Descriptors::kKeep);
  std::byte* data = allocate(allocator, 100);
  std::byte* other = allocate(allocator, kMinArenaBytes + 1);
  std::memset(data, 1, 100);
  allocator.rest();
  EXPECT_EQ(allocator.allocate(1).status().code(), Code::kShutDown);
  ASSERT_TRUE(allocator.free(other, IfIdle::kMayReturn).is_ok());
  Registry after;
  after.knows_arenas = true;
  after.next_id = 40;
  allocator.resume(after.registrar());
  EXPECT_EQ(after.arenas.size(), 2u) << "an idle arena is worth keeping, too";
  EXPECT_TRUE(after.arenas.contains(allocator.locate(data, 100).value()->arena_id));
  EXPECT_EQ(data[99], std::byte{1});
  EXPECT_EQ(allocate(allocator, kMinArenaBytes + 1), other);
}

// Two deaths shortly after each other once made foreign memory of all arenas for good.
TEST(AllocatorTest, ASessionThatEndsBeforeItHasAllArenasLosesNone) {
  Registry before;
  ArenaAllocator allocator(before.registrar(), ArenaAllocator::Descriptors::kKeep);
  std::byte* one = allocate(allocator, kMinArenaBytes);
  std::byte* other = allocate(allocator, kMinArenaBytes + 1);
  allocator.rest();
  Registry ends;
  ends.knows_arenas = true;
  ends.ends_after = 1;
  EXPECT_FALSE(allocator.resume(ends.registrar()));
  EXPECT_NE(allocator.locate(one, 1).value().has_value(),
            allocator.locate(other, 1).value().has_value());
  allocator.rest();
  Registry after;
  after.knows_arenas = true;
  EXPECT_TRUE(allocator.resume(after.registrar()));
  EXPECT_EQ(after.arenas.size(), 2u);
  for (const std::byte* const data : {one, other}) {
    EXPECT_TRUE(allocator.locate(data, 1).value().has_value());
  }
}

// A daemon that has taken another's place cannot map what that one has sealed.
TEST(AllocatorTest, WhatTheNextDaemonDoesNotTakeIsForeignAndGoesWithItsLastBlock) {
  Registry before;
  ArenaAllocator allocator(before.registrar(), ArenaAllocator::Descriptors::kKeep);
  std::byte* data = allocate(allocator, 100);
  std::byte* idle = allocate(allocator, kMinArenaBytes + 1);
  ASSERT_TRUE(allocator.free(idle, IfIdle::kKeep).is_ok());
  allocator.rest();
  Registry after;
  after.refuses = true;
  allocator.resume(after.registrar());
  EXPECT_EQ(allocator.mapped_bytes(), kMinArenaBytes);
  EXPECT_FALSE(allocator.locate(data, 100).value().has_value());
  after.refuses = false;
  EXPECT_NE(allocate(allocator, 100), nullptr);
  EXPECT_EQ(after.arenas.size(), 1u) << "a foreign arena gets no new blocks";
  std::memset(data, 1, 100);
  ASSERT_TRUE(allocator.free(data, IfIdle::kMayReturn).is_ok());
  EXPECT_EQ(allocator.mapped_bytes(), kMinArenaBytes);
}

}  // namespace
}  // namespace rueda::client
