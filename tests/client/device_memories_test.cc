#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/src/device/memories.h"
#include "tests/client/scripted_driver.h"

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

class DeviceMemoriesTest : public testing::Test {
 protected:
  DeviceMemoriesTest()
      : memories_(
            driver_,
            {.add = [this](const rueda_abi_device_memory& memory, int) -> Result<uint32_t> {
               if (!add_fails.is_ok()) return add_fails;
               added.push_back(memory);
               open.insert(static_cast<uint32_t>(added.size()));
               return static_cast<uint32_t>(added.size());
             },
             .join = [this](std::span<const uint32_t> ids) -> Result<uint32_t> {
               if (!join_fails.is_ok()) return join_fails;
               joined.emplace_back(ids.begin(), ids.end());
               const auto id = static_cast<uint32_t>(kFirstJoin + joined.size());
               for (const uint32_t piece : ids) EXPECT_TRUE(open.contains(piece));
               open.insert(id);
               return id;
             },
             .remove =
                 [this](uint32_t id) {
                   for (size_t i = 0; i < joined.size(); ++i) {
                     if (!open.contains(static_cast<uint32_t>(kFirstJoin + 1 + i))) continue;
                     EXPECT_FALSE(std::ranges::count(joined[i], id)) << "a join has it";
                   }
                   EXPECT_EQ(open.erase(id), 1u);
                   return Status::ok();
                 },
             .check_unused =
                 [this](uint64_t begin, uint64_t end) {
                   const auto used = in_use.lower_bound(begin);
                   if (used == in_use.end() || *used >= end) return Status::ok();
                   return Status{Code::kInvalidArgument, "it is in use by a submission"};
                 }},
            [this](const Status& why) { staged.push_back(why); }, watched_) {}

  ScriptedDriver driver_;
  WatchedAllocations watched_;
  std::vector<rueda_abi_device_memory> added;
  std::set<uint32_t> open;
  std::set<uint64_t> in_use;  // addresses in flight
  std::vector<Status> staged;
  Status add_fails;
  static constexpr uint32_t kFirstJoin = 1'000'000;
  std::vector<std::vector<uint32_t>> joined;
  Status join_fails;
  DeviceMemories memories_;
};

TEST_F(DeviceMemoriesTest, AnAllocationIsSharedOnceHoweverManyTensorsLieInIt) {
  driver_.allocate(0x1000, 4096);
  for (uint64_t offset = 0; offset < 4096; offset += 256) {
    const auto place = memories_.locate(0x1000 + offset, 256);
    ASSERT_TRUE(place.is_ok()) << place.status().message();
    EXPECT_EQ(place.value().memory_id, 1u);
    EXPECT_EQ(place.value().offset, offset);
  }
  ASSERT_EQ(added.size(), 1u);
  EXPECT_EQ(added[0].bytes, 4096u);
  EXPECT_EQ(added[0].kind, static_cast<uint32_t>(RUEDA_ABI_DEVICE_IPC));
  EXPECT_EQ(added[0].device[0], 1);
  EXPECT_EQ(added[0].ipc[0], 1);
  EXPECT_EQ(driver_.finds, 1);
  EXPECT_EQ(memories_.stats().hits, 15u);
  EXPECT_EQ(memories_.stats().misses, 1u);
}

TEST_F(DeviceMemoriesTest, WithAnnouncedFreesTheDriverIsAskedNowAndThen) {
  driver_.allocate(0x1000, 4096);
  constexpr int kUses = 10 * static_cast<int>(DeviceMemories::kUsesACheck);
  for (int i = 0; i < kUses; ++i) ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  EXPECT_EQ(memories_.stats().checks, kUses - 1u) << "each time, as long as nobody has promised";
  memories_.announce_frees(true);
  for (int i = 0; i < kUses; ++i) ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  EXPECT_EQ(memories_.stats().checks, kUses - 1u + 10);
  ASSERT_TRUE(memories_.forget(0x1000).is_ok());
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, 2u);
}

TEST_F(DeviceMemoriesTest, WhatWasFreedWithoutAWordIsFoundNowAndThen) {
  for (const uint64_t base : {0x1000, 0x3000, 0x5000}) {
    driver_.allocate(base, 4096);
    ASSERT_TRUE(memories_.locate(base, 1).is_ok());
  }
  driver_.free(0x1000);
  driver_.free(0x5000);
  in_use.insert(0x5000);
  const auto use_until_sweep = [&] {
    for (uint64_t i = 0; i < DeviceMemories::kUsesASweep; ++i) {
      ASSERT_TRUE(memories_.locate(0x3000, 1).is_ok());
    }
  };
  use_until_sweep();
  EXPECT_EQ(open, (std::set<uint32_t>{2, 3})) << "what is in flight stays";
  in_use.clear();
  use_until_sweep();
  EXPECT_EQ(open, (std::set<uint32_t>{2}));
  EXPECT_EQ(memories_.stats().known, 1u);
}

TEST_F(DeviceMemoriesTest, APromiseThatWasNotKeptIsSaidAndEnds) {
  driver_.allocate(0x1000, 4096);
  memories_.announce_frees(true);
  ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  testing::internal::CaptureStderr();
  uint64_t uses = 1;
  while (memories_.locate(0x1000, 1).value().memory_id == 1) ++uses;
  EXPECT_EQ(uses, DeviceMemories::kUsesACheck);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("without rueda_device_forget"));
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, 3u) << "each use is checked again";
}

TEST_F(DeviceMemoriesTest, WatchedAllocationsAreCheckedNowAndThenAndOthersAtEachUse) {
  driver_.allocate(0x1000, 4096);
  watched_.allocated(0x1000);
  driver_.allocate(0x3000, 4096);
  ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  ASSERT_TRUE(memories_.locate(0x3000, 1).is_ok());
  constexpr int kUses = 2 * static_cast<int>(DeviceMemories::kUsesACheck);
  for (int i = 0; i < kUses; ++i) ASSERT_TRUE(memories_.locate(0x1800, 1).is_ok());
  EXPECT_EQ(memories_.stats().checks, 2u);
  for (int i = 0; i < kUses; ++i) ASSERT_TRUE(memories_.locate(0x3000, 1).is_ok());
  EXPECT_EQ(memories_.stats().checks, 2u + kUses);
}

TEST_F(DeviceMemoriesTest, AWatchedAllocationIsForgottenBeforeItIsFreed) {
  for (uint32_t id = 1; id < 4; ++id) {
    driver_.allocate(0x1000, 4096);
    watched_.allocated(0x1000);
    EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, id);
    EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, id);
    EXPECT_EQ(open, (std::set<uint32_t>{id}));
    watched_.freeing(0x1000);
    EXPECT_TRUE(open.empty());
    driver_.free(0x1000);
  }
  EXPECT_EQ(memories_.stats().checks, 0u);
  EXPECT_EQ(memories_.stats().recycled, 0u);
}

TEST_F(DeviceMemoriesTest, AWatchedAllocationThatIsFreedWhileItIsInUseIsAskedForBeforeTheNextUse) {
  driver_.allocate(0x1000, 4096);
  watched_.allocated(0x1000);
  ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  in_use.insert(0x1000);
  watched_.freeing(0x1000);
  EXPECT_EQ(open.size(), 1u) << "it could not be removed";
  in_use.clear();
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  watched_.allocated(0x1000);
  EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, 2u);
  EXPECT_EQ(memories_.stats().recycled, 1u);
  EXPECT_EQ(open, (std::set<uint32_t>{2}));
}

TEST_F(DeviceMemoriesTest, WatchedMemoryThatSomethingElseFreesIsSaidAndEndsTheTrust) {
  driver_.allocate(0x1000, 4096);
  watched_.allocated(0x1000);
  ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  testing::internal::CaptureStderr();
  uint64_t uses = 1;
  while (memories_.locate(0x1000, 1).value().memory_id == 1) ++uses;
  EXPECT_EQ(uses, DeviceMemories::kUsesACheck);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("was freed by something else"));
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  EXPECT_EQ(memories_.locate(0x1000, 1).value().memory_id, 3u) << "each use is checked again";
}

TEST_F(DeviceMemoriesTest, VirtualMemoryGoesByItsDescriptor) {
  driver_.allocate(0x1000, 4096, true);
  ASSERT_TRUE(memories_.locate(0x1000, 1).is_ok());
  EXPECT_EQ(added[0].kind, static_cast<uint32_t>(RUEDA_ABI_DEVICE_FD));
}

TEST_F(DeviceMemoriesTest, ARecycledAddressIsAnotherAllocation) {
  driver_.allocate(0x1000, 4096);
  EXPECT_EQ(memories_.locate(0x1100, 8).value().memory_id, 1u);
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  EXPECT_EQ(memories_.locate(0x1100, 8).value().memory_id, 2u);
  EXPECT_EQ(open, std::set<uint32_t>{2});
  EXPECT_EQ(memories_.stats().recycled, 1u);
  EXPECT_EQ(memories_.stats().known, 1u);
}

TEST_F(DeviceMemoriesTest, AllThatANewAllocationCoversIsForgotten) {
  driver_.allocate(0x1000, 0x100);
  driver_.allocate(0x1100, 0x100);
  driver_.allocate(0x2000, 0x100);
  for (const uint64_t base : {0x1000u, 0x1100u, 0x2000u}) {
    ASSERT_TRUE(memories_.locate(base, 8).is_ok());
    driver_.free(base);
  }
  driver_.allocate(0x1080, 0x1000);  // reaches into the third allocation
  EXPECT_EQ(memories_.locate(0x1900, 8).value().offset, 0x880u);
  EXPECT_EQ(open, std::set<uint32_t>{4});
  EXPECT_EQ(memories_.locate(0x1180, 8).value().memory_id, 4u);
  EXPECT_EQ(memories_.stats().known, 1u);
}

TEST_F(DeviceMemoriesTest, WhatIsForgottenIsSharedAgain) {
  driver_.allocate(0x1000, 4096);
  ASSERT_TRUE(memories_.locate(0x1000, 8).is_ok());
  EXPECT_TRUE(memories_.forget(0x1fff).is_ok());
  EXPECT_TRUE(open.empty());
  EXPECT_TRUE(memories_.forget(0x1fff).is_ok());
  EXPECT_EQ(memories_.locate(0x1000, 8).value().memory_id, 2u);
  EXPECT_EQ(memories_.stats().recycled, 0u);
}

TEST_F(DeviceMemoriesTest, MemoryInUseStaysKnown) {
  driver_.allocate(0x1000, 4096);
  ASSERT_TRUE(memories_.locate(0x1000, 8).is_ok());
  in_use.insert(0x1008);
  EXPECT_EQ(memories_.forget(0x1000).code(), Code::kInvalidArgument);
  EXPECT_EQ(memories_.locate(0x1000, 8).value().memory_id, 1u);
  driver_.free(0x1000);
  driver_.allocate(0x1000, 4096);
  const auto place = memories_.locate(0x1000, 8);
  EXPECT_EQ(place.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(place.status().message(), HasSubstr("in use by a submission"));
  in_use.clear();
  EXPECT_EQ(memories_.locate(0x1000, 8).value().memory_id, 2u);
}

TEST_F(DeviceMemoriesTest, ErrorsLeaveNothingKnown) {
  EXPECT_EQ(memories_.locate(0x1000, 8).status().code(), Code::kInvalidArgument);
  driver_.allocate(0x1000, 4096);
  add_fails = {Code::kUnavailable, "there is no worker"};
  EXPECT_EQ(memories_.locate(0x1000, 8).status().code(), Code::kUnavailable);
  EXPECT_EQ(memories_.stats().known, 0u);
  add_fails = Status::ok();
  EXPECT_TRUE(memories_.locate(0x1000, 8).is_ok());
}

TEST_F(DeviceMemoriesTest, WhatTheWorkerCannotOpenIsStagedAndSaidOnce) {
  driver_.allocate(0x1000, 4096);
  driver_.allocate(0x2000, 4096);
  driver_.allocate(0x4000, 4096);
  add_fails = {Code::kPermission, "it cannot be opened"};
  for (const uint64_t address : {0x1000u, 0x1800u, 0x4000u}) {
    const auto place = memories_.locate(address, 8);
    ASSERT_TRUE(place.is_ok()) << place.status().message();
    EXPECT_TRUE(place.value().is_staged);
  }
  ASSERT_EQ(staged.size(), 1u);
  EXPECT_EQ(staged[0], add_fails);
  EXPECT_EQ(memories_.stats().misses, 2u);
  EXPECT_EQ(memories_.stats().hits, 1u) << "it is known that it cannot be opened";
  add_fails = Status::ok();
  EXPECT_TRUE(memories_.locate(0x1000, 8).value().is_staged);
  // A tensor is staged as soon as some of it is, whatever the kinds of its allocations.
  EXPECT_TRUE(memories_.locate(0x1ff8, 16).value().is_staged);
  EXPECT_FALSE(memories_.locate(0x2000, 8).value().is_staged);
  EXPECT_TRUE(joined.empty());
  // An allocation in use stays known; another allocation may be of a kind that can be opened.
  in_use.insert(0x4008);
  EXPECT_EQ(memories_.forget(0x4000).code(), Code::kInvalidArgument);
  in_use.clear();
  EXPECT_TRUE(memories_.forget(0x4000).is_ok());
  EXPECT_FALSE(memories_.locate(0x4000, 8).value().is_staged);
}

// Tests with pieces of 0x1000 bytes from 0x1000 on, which are shared by descriptors.
class DeviceJoinsTest : public DeviceMemoriesTest {
 protected:
  void map(int pieces) {
    for (int i = 1; i <= pieces; ++i) driver_.allocate(uint64_t{0x1000} * i, 0x1000, true);
  }
  void map_again(uint64_t base) {
    driver_.free(base);
    driver_.allocate(base, 0x1000, true);
  }
  uint32_t id_at(uint64_t address, size_t bytes) {
    const auto place = memories_.locate(address, bytes);
    EXPECT_TRUE(place.is_ok()) << place.status().message();
    return place.is_ok() ? place.value().memory_id : 0;
  }
  std::string error_at(uint64_t address, size_t bytes) {
    const auto place = memories_.locate(address, bytes);
    EXPECT_EQ(place.status().code(), Code::kInvalidArgument);
    return place.status().message();
  }
};

TEST_F(DeviceJoinsTest, ATensorAcrossAllocationsLiesInTheirJoin) {
  map(4);
  const auto place = memories_.locate(0x1ff8, 0x2000);
  ASSERT_TRUE(place.is_ok()) << place.status().message();
  EXPECT_EQ(place.value().memory_id, kFirstJoin + 1);
  EXPECT_EQ(place.value().offset, 0xff8u);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0], (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(added.size(), 3u);
  EXPECT_EQ(memories_.stats().known, 3u);
  EXPECT_EQ(memories_.stats().misses, 1u);
  const int finds = driver_.finds;
  // A known tensor comes once more, and then another tensor in the same allocations.
  EXPECT_EQ(id_at(0x1ff8, 0x2000), kFirstJoin + 1);
  EXPECT_EQ(memories_.locate(0x1000, 0x3000).value().offset, 0u);
  EXPECT_EQ(driver_.finds, finds);
  EXPECT_EQ(memories_.stats().hits, 2u);
  EXPECT_EQ(memories_.stats().checks, 6u) << "one for each allocation";
  // These tensors end at the seam, lie in one allocation alone, or need fewer allocations.
  EXPECT_EQ(id_at(0x1ff8, 8), 1u);
  EXPECT_EQ(id_at(0x2000, 0x1000), 2u);
  EXPECT_EQ(joined.size(), 1u);
  EXPECT_EQ(id_at(0x1ff8, 9), kFirstJoin + 2);
  EXPECT_EQ(memories_.stats().misses, 2u);
  EXPECT_EQ(added.size(), 3u);
}

TEST_F(DeviceJoinsTest, WithAnnouncedFreesAJoinIsFoundWithoutAQuestion) {
  map(2);
  memories_.announce_frees(true);
  for (uint64_t i = 0; i <= DeviceMemories::kUsesACheck; ++i) {
    ASSERT_EQ(id_at(0x1800, 0x1000), kFirstJoin + 1);
  }
  EXPECT_EQ(driver_.finds, 2);
  EXPECT_EQ(memories_.stats().checks, 2u) << "of one use";
}

TEST_F(DeviceJoinsTest, APieceThatComesAgainTakesItsJoinsWithIt) {
  map(4);
  EXPECT_EQ(id_at(0x1800, 0x1000), kFirstJoin + 1);  // allocations 1, 2
  EXPECT_EQ(id_at(0x2800, 0x1000), kFirstJoin + 2);  // allocations 2, 3
  EXPECT_EQ(id_at(0x3800, 0x1000), kFirstJoin + 3);  // allocations 3, 4
  map_again(0x2000);
  EXPECT_EQ(id_at(0x3800, 0x1000), kFirstJoin + 3);
  EXPECT_EQ(memories_.stats().recycled, 0u) << "it has nothing of it";
  EXPECT_EQ(id_at(0x1800, 0x1000), kFirstJoin + 4);
  EXPECT_EQ(joined.back(), (std::vector<uint32_t>{1, 5}));
  EXPECT_EQ(open, (std::set<uint32_t>{1, 3, 4, 5, kFirstJoin + 3, kFirstJoin + 4}));
  EXPECT_EQ(memories_.stats().recycled, 1u);
  EXPECT_EQ(memories_.stats().known, 4u);
  EXPECT_EQ(id_at(0x2800, 0x1000), kFirstJoin + 5);
  EXPECT_EQ(joined.back(), (std::vector<uint32_t>{5, 3}));
}

TEST_F(DeviceJoinsTest, APieceThatIsForgottenTakesItsJoinsWithIt) {
  map(3);
  EXPECT_EQ(id_at(0x1800, 0x2000), kFirstJoin + 1);
  EXPECT_TRUE(memories_.forget(0x3fff).is_ok());
  EXPECT_EQ(open, (std::set<uint32_t>{1, 2}));
  EXPECT_EQ(id_at(0x1800, 0x2000), kFirstJoin + 2);
  EXPECT_EQ(joined.back(), (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(memories_.stats().recycled, 0u);
}

TEST_F(DeviceJoinsTest, AJoinInUseStaysAndSoDoItsPieces) {
  map(3);
  EXPECT_EQ(id_at(0x1800, 0x2000), kFirstJoin + 1);
  in_use.insert(0x2800);
  EXPECT_EQ(memories_.forget(0x2000).code(), Code::kInvalidArgument);
  EXPECT_EQ(id_at(0x1800, 0x2000), kFirstJoin + 1);
  map_again(0x2000);
  EXPECT_THAT(error_at(0x1800, 0x2000), HasSubstr("in use by a submission"));
  in_use.clear();
  EXPECT_EQ(id_at(0x1800, 0x2000), kFirstJoin + 2);
}

TEST_F(DeviceJoinsTest, WhatCannotBeJoinedIsAnErrorWithItsRemedy) {
  map(2);
  driver_.allocate(0x3000, 0x1000, false);
  driver_.allocate(0x4000, 0x1000, true, 2);
  driver_.allocate(0x5000, 0x1000, true, 2);
  EXPECT_THAT(error_at(0x2800, 0x1000), HasSubstr("2048 bytes on: only what virtual memory"));
  EXPECT_THAT(error_at(0x3800, 0x1000), HasSubstr("lies in one allocation"));
  EXPECT_THAT(error_at(0x1800, 0x2000), HasSubstr("not cudaMalloc's"));
  driver_.free(0x3000);
  EXPECT_THAT(error_at(0x2800, 0x1000),
              HasSubstr("4096 bytes of device memory reach beyond their allocation, 2048 bytes on: "
                        "behind 2048 of them: no memory"));
  driver_.allocate(0x3000, 0x1000, true, 2);
  EXPECT_THAT(error_at(0x2800, 0x1000), HasSubstr("another GPU's"));
  driver_.free(0x3000);
  driver_.allocate(0x2f00, 0x1100, true);
  EXPECT_THAT(error_at(0x2800, 0x1000), HasSubstr("begins inside the one before"));
  EXPECT_TRUE(joined.empty());
  EXPECT_EQ(id_at(0x4800, 0x1000), kFirstJoin + 1) << "of the other GPU";
  join_fails = {Code::kResourceExhausted, "there are no addresses"};
  EXPECT_EQ(memories_.locate(0x1800, 0x1000).status(), join_fails);
  join_fails = Status::ok();
  EXPECT_EQ(id_at(0x1800, 0x1000), kFirstJoin + 2);
  constexpr int kTooMany = RUEDA_ABI_MAX_JOINED + 1;
  for (int i = 0; i < kTooMany; ++i) driver_.allocate(0x10'0000 + i, 1, true);
  EXPECT_THAT(error_at(0x10'0000, kTooMany), HasSubstr("hand it over in parts"));
  EXPECT_GT(id_at(0x10'0000, kTooMany - 1), kFirstJoin);
}

TEST_F(DeviceJoinsTest, TheLeastRecentlyUsedMakesRoomUnlessItIsHeld) {
  constexpr auto kMost = static_cast<int>(DeviceMemories::kMaxJoins);
  map(kMost + 4);
  const auto across = [](int piece) { return uint64_t{0x1000} * piece + 0x800; };
  const auto held = memories_.locate(across(1), 0x1000).value();
  for (int piece = 2; piece <= kMost; ++piece) id_at(across(piece), 0x1000);
  EXPECT_EQ(id_at(across(2), 0x1000), kFirstJoin + 2) << "used again";
  EXPECT_EQ(joined.size(), DeviceMemories::kMaxJoins);
  id_at(across(kMost + 1), 0x1000);
  EXPECT_FALSE(open.contains(kFirstJoin + 3));
  EXPECT_TRUE(open.contains(kFirstJoin + 1) && open.contains(kFirstJoin + 2));
  EXPECT_EQ(memories_.stats().known, kMost + 2u);
  // The join comes again, in place of the next one.
  id_at(across(3), 0x1000);
  EXPECT_FALSE(open.contains(kFirstJoin + 4));
  std::vector<DeviceMemories::Place> all;
  for (const int piece : {2, 3}) all.push_back(memories_.locate(across(piece), 0x1000).value());
  for (int piece = 5; piece <= kMost + 1; ++piece) {
    all.push_back(memories_.locate(across(piece), 0x1000).value());
  }
  const auto refused = memories_.locate(across(kMost + 2), 0x1000);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("wait for some of them"));
  all.pop_back();
  EXPECT_TRUE(memories_.locate(across(kMost + 2), 0x1000).is_ok());
}

}  // namespace
}  // namespace rueda::client
