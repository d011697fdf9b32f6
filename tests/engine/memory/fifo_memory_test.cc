#include "daemon/engine/memory/fifo_memory.h"

#include <cstring>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

constexpr size_t kCapacity = 8192;

std::unique_ptr<FifoMemory> make() { return FifoMemory::make(kCapacity).value(); }

TEST(FifoMemory, FillsToTheLastByte) {
  auto memory = make();
  EXPECT_EQ(memory->capacity(), kCapacity);
  EXPECT_NE(memory->take(kCapacity - 64), nullptr);
  EXPECT_TRUE(memory->fits(64));
  EXPECT_FALSE(memory->fits(65));
  EXPECT_NE(memory->take(1), nullptr);  // takes a whole multiple of 64
  EXPECT_FALSE(memory->fits(1));
  EXPECT_TRUE(memory->fits(0));
}

// The bytes alone decide whether a piece fits, wherever the pieces happen to lie.
TEST(FifoMemory, APieceMayGoOverTheEnd) {
  auto memory = make();
  std::byte* const first = memory->take(5000);
  std::byte* const second = memory->take(2000);
  std::memset(second, 2, 2000);
  memory->give_back_oldest();
  ASSERT_TRUE(memory->fits(6000));
  std::byte* const third = memory->take(6000);
  std::memset(third, 3, 6000);
  EXPECT_EQ(first[0], std::byte{3}) << "the end is the beginning";
  for (size_t i = 0; i < 2000; ++i) ASSERT_EQ(second[i], std::byte{2}) << i;
  for (size_t i = 0; i < 6000; ++i) ASSERT_EQ(third[i], std::byte{3}) << i;
  EXPECT_EQ(memory->used(), 2048u + 6016u);
}

TEST(FifoMemory, TheNewestMayGoFirst) {
  auto memory = make();
  std::byte* const first = memory->take(64);
  std::byte* const second = memory->take(128);
  memory->give_back_newest();
  EXPECT_EQ(memory->used(), 64u);
  EXPECT_EQ(memory->take(64), second);
  memory->give_back_newest();
  memory->give_back_newest();
  EXPECT_EQ(memory->take(64), first);
}

TEST(FifoMemory, WhatIsLargerThanTheWholeGetsItsOwnWhenNothingIsInUse) {
  auto memory = make();
  EXPECT_TRUE(memory->fits(3 * kCapacity));
  std::byte* const large = memory->take(3 * kCapacity);
  ASSERT_NE(large, nullptr);
  std::memset(large, 1, 3 * kCapacity);
  EXPECT_FALSE(memory->fits(64));
  memory->give_back_oldest();
  EXPECT_EQ(memory->used(), 0u);
  EXPECT_NE(memory->take(64), nullptr);
  EXPECT_FALSE(memory->fits(3 * kCapacity));
}

}  // namespace
}  // namespace rueda::engine
