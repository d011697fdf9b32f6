#include "daemon/transport/frame_check.h"

#include <array>
#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace rueda::transport {
namespace {

const ChannelId kId{JobKey(7), 3, 0, 1, 2};

FrameHeader good_header() {
  FrameHeader header;
  header.job = kId.job.first;
  header.epoch = kId.epoch;
  header.slot = 1;
  header.payload_bytes = 64;
  return header;
}

TEST(FrameCheck, AcceptsWhatIsRight) {
  const SlotStates states(2, SlotState::kWriters);
  for (const FrameKind kind : {FrameKind::kReduce, FrameKind::kGather, FrameKind::kStable,
                               FrameKind::kProbe, FrameKind::kTable}) {
    FrameHeader header = good_header();
    header.kind = kind;
    EXPECT_TRUE(check_frame(header, kId, 64, states, "node 0").is_ok());
  }
}

TEST(FrameCheck, SaysWhatIsWrong) {
  struct Case {
    std::function<void(FrameHeader&)> spoil;
    Code code;
    std::string words;
  };
  const Case cases[] = {
      {[](FrameHeader& h) { h.magic ^= 1; }, Code::kInternal, "magic"},
      {[](FrameHeader& h) { h.version = 9; }, Code::kVersion, "wire version 9"},
      {[](FrameHeader& h) { h.kind = FrameKind{0}; }, Code::kInternal, "kind 0"},
      {[](FrameHeader& h) { h.kind = FrameKind{3}; }, Code::kInternal, "kind 3"},
      {[](FrameHeader& h) { h.kind = FrameKind{7}; }, Code::kInternal, "kind 7"},
      {[](FrameHeader& h) { h.kind = FrameKind{255}; }, Code::kInternal, "kind 255"},
      {[](FrameHeader& h) { h.job = 8; }, Code::kInternal, "another job"},
      {[](FrameHeader& h) { h.epoch = 2; }, Code::kInternal, "epoch 2"},
      {[](FrameHeader& h) { h.slot = 2; }, Code::kInternal, "slot 2 of 2"},
      {[](FrameHeader& h) { h.slot = 0xffffffff; }, Code::kInternal, "slot 4294967295"},
      {[](FrameHeader& h) { h.payload_bytes = 65; }, Code::kInternal, "65 bytes"},
      {[](FrameHeader& h) { h.slot = 0; }, Code::kInternal, "slot 0 still holds a frame"},
  };
  const SlotStates states{SlotState::kHeld, SlotState::kWriters};
  for (const Case& c : cases) {
    FrameHeader header = good_header();
    c.spoil(header);
    const Status status = check_frame(header, kId, 64, states, "node 0");
    EXPECT_EQ(status.code(), c.code) << c.words;
    EXPECT_NE(status.message().find(c.words), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("node 0"), 0u) << status.message();
  }
}

TEST(FrameCheck, GeometryHasBounds) {
  EXPECT_EQ(check_geometry(kId, 0).code(), Code::kInvalidArgument);
  EXPECT_TRUE(check_geometry(kId, 1).is_ok());
  EXPECT_TRUE(check_geometry(kId, kMaxSlots).is_ok());
  EXPECT_EQ(check_geometry(kId, kMaxSlots + 1).code(), Code::kInvalidArgument);
}

TEST(RegionTable, KnowsWhatLiesInside) {
  std::array<std::byte, 100> memory;
  RegionTable table;
  const RegionKey key = table.add(memory).value();
  EXPECT_NE(key.value, 0u);
  EXPECT_TRUE(table.contains(key, memory.data(), 100));
  EXPECT_TRUE(table.contains(key, memory.data() + 40, 60));
  EXPECT_FALSE(table.contains(key, memory.data() + 40, 61));
  EXPECT_FALSE(table.contains(key, memory.data() + 40, SIZE_MAX));
  EXPECT_FALSE(table.contains(RegionKey{key.value + 1}, memory.data(), 1));
  EXPECT_TRUE(table.contains(RegionKey{}, nullptr, 0));
  table.remove(key);
  EXPECT_FALSE(table.contains(key, memory.data(), 1));
  EXPECT_NE(table.add(memory).value().value, key.value);
}

TEST(RegionTable, MemoryOfAnotherDeviceHasAddressesOfItsOwn) {
  RegionTable table;
  std::vector<std::byte> memory(16);
  const RegionKey host = table.add(memory).value();
  const DeviceRegion one = table.add_device(8192).value();
  const DeviceRegion other = table.add_device(4096).value();
  EXPECT_TRUE(table.contains(one.key, one.base + 100, 8092));
  EXPECT_FALSE(table.contains(one.key, one.base + 100, 8093));
  EXPECT_FALSE(table.contains(other.key, one.base, 1));
  EXPECT_TRUE(table.is_device(one.key));
  EXPECT_FALSE(table.is_device(host));
  EXPECT_DEATH(static_cast<void>(*static_cast<const volatile std::byte*>(one.base)), "");
  table.remove(one.key);
  EXPECT_FALSE(table.is_device(one.key));
  EXPECT_EQ(table.add_device(UINT64_MAX / 4).status().code(), Code::kResourceExhausted);
}

TEST(RegionTable, NeighboursAreOutside) {
  std::array<std::byte, 100> memory;
  RegionTable table;
  const RegionKey key = table.add(std::span(memory).subspan(20, 50)).value();
  EXPECT_FALSE(table.contains(key, memory.data(), 10));
  EXPECT_FALSE(table.contains(key, memory.data() + 19, 2));
  EXPECT_FALSE(table.contains(key, memory.data() + 71, 1));
  EXPECT_TRUE(table.contains(key, memory.data() + 69, 1));
}

}  // namespace
}  // namespace rueda::transport
