#include "client/src/device/staged_copies.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "client/include/rueda/rueda.h"
#include "tests/client/scripted_driver.h"

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

class StagedCopiesTest : public testing::Test {
 protected:
  static constexpr uint64_t kMaxBytes = 64 * kMiB;

  ~StagedCopiesTest() override {
    if (worker_ != nullptr) ::munmap(worker_, worker_bytes_);
  }

  StagedCopies::Registrar registrar() {
    return {.add = [this](int memfd, uint64_t bytes) -> Result<uint32_t> {
              if (!add_fails.is_ok()) return add_fails;
              shared_bytes += bytes;
              if (worker_ == nullptr) {
                worker_bytes_ = bytes;
                worker_ = static_cast<std::byte*>(
                    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
              }
              shared.insert(++last_id);
              return last_id;
            },
            .remove =
                [this](uint32_t id) {
                  EXPECT_EQ(shared.erase(id), 1u);
                  return Status::ok();
                }};
  }
  StagedCopies::Block take(size_t bytes) {
    const auto block = copies_.take(bytes);
    EXPECT_TRUE(block.is_ok() && block.value());
    return block.is_ok() && block.value() ? *block.value() : StagedCopies::Block();
  }
  bool is_room_for(size_t bytes) { return copies_.take(bytes).value().has_value(); }
  static uint64_t address(const void* memory) { return reinterpret_cast<uint64_t>(memory); }
  // Returns the block as the worker sees it, in the first memory.
  std::byte* in_worker(const StagedCopies::Block& block) { return worker_ + block.offset(); }

  ScriptedDriver driver_;
  Status add_fails;
  std::set<uint32_t> shared;
  uint64_t shared_bytes = 0;
  uint32_t last_id = 0;
  std::byte* worker_ = nullptr;
  size_t worker_bytes_ = 0;
  char stream_ = 0;
  char other_ = 0;
  StagedCopies copies_{driver_, registrar(), kMaxBytes};
};

TEST_F(StagedCopiesTest, ATensorGoesToTheWorkerAndBackInTheOrderOfAStream) {
  std::vector<std::byte> tensor(1000, std::byte{1});
  StagedCopies::Block block = take(tensor.size());
  EXPECT_EQ(block.offset() % kBlockAlignmentBytes, 0u);
  ASSERT_TRUE(copies_.copy_in(block, address(tensor.data()), tensor.size(), &stream_).is_ok());
  std::fill(tensor.begin(), tensor.end(), std::byte{2});  // before the stream has read it
  driver_.advance(&stream_);
  std::byte* const there = in_worker(block);
  EXPECT_TRUE(std::all_of(there, there + 1000, [](std::byte b) { return b == std::byte{2}; }));
  std::fill(there, there + 1000, std::byte{3});
  ASSERT_TRUE(
      copies_.copy_out(block, block.claim_result(), address(tensor.data()), tensor.size(), &stream_)
          .is_ok());
  EXPECT_EQ(tensor[0], std::byte{2});
  driver_.advance(&stream_);
  EXPECT_EQ(std::count(tensor.begin(), tensor.end(), std::byte{3}), 1000);
}

TEST_F(StagedCopiesTest, ALaterStreamWaitsForTheCopyOfTheFirstAndMakesNone) {
  uint64_t tensor = 5;
  StagedCopies::Block block = take(sizeof tensor);
  *reinterpret_cast<uint64_t*>(in_worker(block)) = 7;
  ASSERT_TRUE(copies_.copy_out(block, block.claim_result(), address(&tensor), 8, &stream_).is_ok());
  ASSERT_TRUE(copies_.copy_out(block, block.claim_result(), address(&tensor), 8, &other_).is_ok());
  EXPECT_FALSE(driver_.synchronize(&other_).is_ok()) << "the first has not come so far";
  driver_.advance(&stream_);
  EXPECT_EQ(tensor, 7u);
  tensor = 9;
  EXPECT_TRUE(driver_.synchronize(&other_).is_ok());
  EXPECT_EQ(tensor, 9u);
}

TEST_F(StagedCopiesTest, WithoutAStreamCopiesAreMadeOnOneOfOurs) {
  uint64_t tensor = 5;
  StagedCopies::Block block = take(sizeof tensor);
  ASSERT_TRUE(copies_.copy_in(block, address(&tensor), 8, RUEDA_NO_STREAM).is_ok());
  EXPECT_EQ(copies_.stream_of(RUEDA_NO_STREAM).value(), &driver_.own_stream);
  EXPECT_EQ(copies_.stream_of(&stream_).value(), &stream_);
  EXPECT_TRUE(copies_.finish().is_ok());
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(in_worker(block)), 5u);
}

TEST_F(StagedCopiesTest, ABlockIsUsedAgainWhenStreamsAreDoneWithIt) {
  std::vector<std::byte> tensor(40 * kMiB);
  StagedCopies::Block block = take(tensor.size());
  ASSERT_TRUE(copies_.copy_in(block, address(tensor.data()), tensor.size(), &stream_).is_ok());
  ASSERT_TRUE(
      copies_.copy_out(block, block.claim_result(), address(tensor.data()), tensor.size(), &other_)
          .is_ok());
  EXPECT_FALSE(is_room_for(tensor.size()));
  copies_.give_back(block);
  EXPECT_FALSE(is_room_for(tensor.size()));
  EXPECT_EQ(copies_.taken(), 1u);
  driver_.advance(&other_);
  EXPECT_FALSE(is_room_for(tensor.size())) << "the copy in is yet to be made";
  driver_.advance(&stream_);
  EXPECT_EQ(copies_.taken(), 0u);
  EXPECT_TRUE(is_room_for(tensor.size()));
}

TEST_F(StagedCopiesTest, ABlockIsNotUsedAgainWhileALaterStreamHasYetToLookAtIt) {
  uint64_t tensor = 5;
  StagedCopies::Block block = take(40 * kMiB);
  for (void* stream : {&stream_, &other_, &stream_}) {
    ASSERT_TRUE(copies_.copy_out(block, block.claim_result(), address(&tensor), 8, stream).is_ok());
  }
  copies_.give_back(block);
  driver_.advance(&stream_);
  EXPECT_FALSE(is_room_for(40 * kMiB));
  EXPECT_TRUE(driver_.synchronize(&other_).is_ok());
  EXPECT_TRUE(is_room_for(40 * kMiB));
}

TEST_F(StagedCopiesTest, MoreStreamsThanCanWaitForAResultAreAnError) {
  uint64_t tensor = 5;
  StagedCopies::Block block = take(8);
  for (StagedCopies::Turn turn = 0; turn < StagedCopies::kMaxTurns; ++turn) {
    ASSERT_TRUE(
        copies_.copy_out(block, block.claim_result(), address(&tensor), 8, &stream_).is_ok());
  }
  const Status refused =
      copies_.copy_out(block, block.claim_result(), address(&tensor), 8, &other_);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  copies_.give_back(block);
  driver_.advance(&stream_);
  EXPECT_EQ(copies_.taken(), 0u);
}

TEST_F(StagedCopiesTest, WhatNoStreamHasIsUsedAgainAtOnce) {
  for (int i = 0; i < 10; ++i) copies_.give_back(take(40 * kMiB));
  EXPECT_EQ(shared.size(), 1u);
}

TEST_F(StagedCopiesTest, SmallArenasMakeRoomForALargeBlock) {
  std::vector<StagedCopies::Block> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(take(10 * kMiB));
  EXPECT_GT(shared.size(), 1u);
  EXPECT_LE(shared_bytes, kMaxBytes);
  const StagedCopies::Block kept = blocks.back();
  blocks.pop_back();
  for (const StagedCopies::Block& block : blocks) copies_.give_back(block);
  EXPECT_FALSE(is_room_for(60 * kMiB)) << "one is still in use";
  copies_.give_back(kept);
  EXPECT_TRUE(is_room_for(60 * kMiB));
  EXPECT_EQ(driver_.pinned.size(), shared.size());
}

TEST_F(StagedCopiesTest, MoreThanThereMayBeIsAnErrorWithItsRemedy) {
  const auto refused = copies_.take(kMaxBytes);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("raise RUEDA_DEVICE_STAGING_BYTES"));
}

TEST_F(StagedCopiesTest, WhatCannotBePinnedOrSharedLeavesNothing) {
  driver_.register_fails = {Code::kResourceExhausted, "no memory to pin"};
  EXPECT_EQ(copies_.take(8).status(), driver_.register_fails);
  driver_.register_fails = Status::ok();
  add_fails = {Code::kUnavailable, "the worker has gone"};
  EXPECT_EQ(copies_.take(8).status(), add_fails);
  EXPECT_TRUE(driver_.pinned.empty());
  add_fails = Status::ok();
  EXPECT_TRUE(is_room_for(8));
}

TEST_F(StagedCopiesTest, WhatAStreamHasYetToReadStaysWhenAllElseGoes) {
  uint64_t tensor = 5;
  {
    StagedCopies copies(driver_, registrar(), kMaxBytes);
    StagedCopies::Block first = *copies.take(20 * kMiB).value();
    StagedCopies::Block second = *copies.take(20 * kMiB).value();
    ASSERT_TRUE(
        copies.copy_out(second, second.claim_result(), address(&tensor), 8, &stream_).is_ok());
    copies.give_back(first);
    copies.give_back(second);
    EXPECT_EQ(driver_.pinned.size(), 2u);
  }
  EXPECT_EQ(driver_.pinned.size(), 1u);
  driver_.advance(&stream_);
  EXPECT_EQ(tensor, 0u) << "as the worker left it";
}

}  // namespace
}  // namespace rueda::client
