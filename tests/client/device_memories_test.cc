#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/src/device/memories.h"

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

// A driver whose allocations the test makes and frees, and which counts what it is asked.
class ScriptedDriver final : public DeviceDriver {
 public:
  void allocate(uint64_t base, uint64_t bytes, bool by_fd = false) {
    allocations_[base] = {bytes, ++last_id_, by_fd};
  }
  void free(uint64_t base) { allocations_.erase(base); }

  Result<DeviceAllocation> find(uint64_t address) override {
    ++finds;
    const auto* found = at(address);
    if (found == nullptr) return Status{Code::kInvalidArgument, "no memory of a GPU's"};
    return DeviceAllocation{found->first, found->second.bytes, found->second.id, {1}};
  }
  uint64_t buffer_id(uint64_t address) override {
    const auto* found = at(address);
    return found == nullptr ? 0 : found->second.id;
  }
  Result<ExportedMemory> export_memory(const DeviceAllocation& allocation) override {
    ++exports;
    ExportedMemory exported;
    exported.is_fd = allocations_.at(allocation.base).by_fd;
    exported.ipc[0] = static_cast<std::byte>(allocation.buffer_id);
    return exported;
  }
  Result<uint64_t> register_host(std::span<std::byte>) override { return uint64_t{0}; }
  void unregister_host(std::byte*) override {}
  Status write_value(void*, uint64_t, uint64_t) override { return Status::ok(); }
  Status wait_value(void*, uint64_t, uint64_t) override { return Status::ok(); }

  int finds = 0;
  int exports = 0;

 private:
  struct Allocation {
    uint64_t bytes = 0;
    uint64_t id = 0;
    bool by_fd = false;
  };
  const std::pair<const uint64_t, Allocation>* at(uint64_t address) const {
    const auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    const auto& found = *std::prev(after);
    return address - found.first < found.second.bytes ? &found : nullptr;
  }
  std::map<uint64_t, Allocation> allocations_;
  uint64_t last_id_ = 0;
};

class DeviceMemoriesTest : public testing::Test {
 protected:
  DeviceMemoriesTest()
      : memories_(driver_,
                  {.add = [this](const rueda_abi_device_memory& memory, int) -> Result<uint32_t> {
                     if (!add_fails.is_ok()) return add_fails;
                     added.push_back(memory);
                     open.insert(static_cast<uint32_t>(added.size()));
                     return static_cast<uint32_t>(added.size());
                   },
                   .remove =
                       [this](uint32_t id) {
                         if (in_use.contains(id)) {
                           return Status{Code::kUnavailable, "it is in use by a submission"};
                         }
                         open.erase(id);
                         return Status::ok();
                       }}) {}

  ScriptedDriver driver_;
  std::vector<rueda_abi_device_memory> added;
  std::set<uint32_t> open;
  std::set<uint32_t> in_use;
  Status add_fails;
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
  driver_.allocate(0x1080, 0x1000);  // reaches into the third
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
  in_use.insert(1);
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

TEST_F(DeviceMemoriesTest, ATensorLiesInOneAllocation) {
  driver_.allocate(0x1000, 4096);
  driver_.allocate(0x2000, 4096);
  EXPECT_TRUE(memories_.locate(0x1ff8, 8).is_ok());
  EXPECT_THAT(memories_.locate(0x1ff8, 9).status().message(), HasSubstr("must lie in one"));
}

}  // namespace
}  // namespace rueda::client
