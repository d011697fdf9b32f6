#include "daemon/engine/device/device_staging.h"

#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

namespace rueda::engine {
namespace {

constexpr uint64_t kBytes = 64 << 10;

TEST(DeviceStaging, PiecesLieApartAndComeAgain) {
  const auto staging = DeviceStaging::make(kBytes).value();
  EXPECT_TRUE(staging->is_unused());
  EXPECT_EQ(staging->take(1000), 0u);
  EXPECT_EQ(staging->take(0), 1024u);  // an empty piece has a place, too
  EXPECT_EQ(staging->take(256), 1280u);
  EXPECT_EQ(staging->take(100), 1536u);
  staging->give_back(1024);
  staging->give_back(1280);
  EXPECT_EQ(staging->take(513), 1792u);  // does not fit into the hole
  EXPECT_EQ(staging->take(512), 1024u);
  EXPECT_FALSE(staging->is_unused());
  for (const uint64_t offset : {0, 1024, 1536, 1792}) staging->give_back(offset);
  EXPECT_TRUE(staging->is_unused());
}

TEST(DeviceStaging, WhatDoesNotFitIsToldAndAllOfItDoes) {
  const auto staging = DeviceStaging::make(kBytes).value();
  EXPECT_FALSE(staging->take(kBytes + 1));
  EXPECT_EQ(staging->take(kBytes), 0u);
  EXPECT_FALSE(staging->take(1));
  staging->give_back(0);
  EXPECT_EQ(staging->take(kBytes - 1), 0u);
  EXPECT_FALSE(staging->take(0));
}

TEST(DeviceStaging, AWorkerMapsTheSameMemoryWhichCannotShrink) {
  const auto staging = DeviceStaging::make(kBytes).value();
  const UniqueFd fd = staging->duplicate();
  ASSERT_TRUE(fd.is_open());
  EXPECT_NE(::fcntl(fd.get(), F_GET_SEALS) & F_SEAL_SHRINK, 0);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memcpy(staging->at(4096), "here", 5);
  EXPECT_STREQ(static_cast<const char*>(mapped) + 4096, "here");
  ::munmap(mapped, kBytes);
}

}  // namespace
}  // namespace rueda::engine
