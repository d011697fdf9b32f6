// Tests what only the fake does: addresses that come again, memory that goes away, errors on
// demand.
#include "tests/gpu/fake/fake_device.h"

#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rueda::gpu::fake {
namespace {

class FakeDeviceTest : public testing::Test {
 protected:
  Status finish(Stream& stream) {
    gpu_.run();
    return stream.is_idle().status();
  }
  static std::unique_ptr<Stream> stream_of(FakeDevice& device) {
    return device.make_stream(Priority::kLow).value();
  }

  FakeGpu gpu_{{.memory_bytes = 1 << 20}};
  FakeDevice device_{gpu_};
  FakeDevice other_{gpu_};  // plays another process
};

TEST_F(FakeDeviceTest, AnAddressComesAgainAtOnce) {
  const DeviceAddress low = device_.allocate(1000, Sharing::kIpc).value();
  const DeviceAddress middle = device_.allocate(1000, Sharing::kIpc).value();
  const DeviceAddress high = device_.allocate(1000, Sharing::kIpc).value();
  EXPECT_LT(low, middle);
  EXPECT_LT(middle, high);
  const uint64_t id = device_.find(middle).value().id;
  ASSERT_TRUE(device_.free(middle).is_ok());
  EXPECT_EQ(device_.find(middle).status().code(), Code::kNotFound);
  // A larger piece does not fit there, and a smaller one does.
  EXPECT_GT(device_.allocate(1025, Sharing::kIpc).value(), high);
  EXPECT_EQ(device_.allocate(1024, Sharing::kIpc).value(), middle);
  EXPECT_NE(device_.find(middle).value().id, id);
  // The other process has the same addresses for other memory.
  EXPECT_EQ(other_.allocate(1000, Sharing::kIpc).value(), low);
}

TEST_F(FakeDeviceTest, TheMemoryOfTheGpuIsSharedOut) {
  const DeviceAddress most = device_.allocate((1 << 20) - 256, Sharing::kIpc).value();
  EXPECT_EQ(other_.allocate(257, Sharing::kIpc).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(other_.allocate(256, Sharing::kIpc).is_ok());
  ASSERT_TRUE(device_.free(most).is_ok());
  EXPECT_TRUE(other_.allocate(257, Sharing::kIpc).is_ok());
  {
    FakeDevice third(gpu_);
    ASSERT_TRUE(third.allocate(1 << 19, Sharing::kIpc).is_ok());
  }
  EXPECT_TRUE(other_.allocate(1 << 19, Sharing::kIpc).is_ok());
}

TEST_F(FakeDeviceTest, ANeighbourThatFreesWhatIsMappedCostsTheContext) {
  const DeviceAddress theirs = other_.allocate(1000, Sharing::kIpc).value();
  const DeviceAddress at = device_.import_memory(other_.export_memory(theirs).value()).value();
  const DeviceAddress ours = device_.allocate(1000, Sharing::kIpc).value();
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->copy(ours, at, 1000).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(other_.free(theirs).is_ok());
  ASSERT_TRUE(stream->copy(ours, at, 1000).is_ok());
  EXPECT_EQ(finish(*stream).code(), Code::kUnavailable);
  EXPECT_EQ(device_.health().code(), Code::kUnavailable);
  EXPECT_TRUE(other_.health().is_ok());
  EXPECT_TRUE(other_.allocate(1, Sharing::kIpc).is_ok());
}

TEST_F(FakeDeviceTest, ANeighbourThatDiesTakesItsMemoryWithIt) {
  auto dying = std::make_unique<FakeDevice>(gpu_);
  const DeviceAddress theirs = dying->allocate(1000, Sharing::kFd).value();
  const MemoryHandle handle = dying->export_memory(theirs).value();
  const DeviceAddress at = device_.import_memory(handle).value();
  dying.reset();
  EXPECT_EQ(device_.import_memory(handle).status().code(), Code::kNotFound);
  ::close(handle.fd);
  const auto stream = stream_of(device_);
  const DeviceAddress ours = device_.allocate(1000, Sharing::kIpc).value();
  ASSERT_TRUE(stream->copy(ours, at, 1).is_ok());
  EXPECT_FALSE(finish(*stream).is_ok());
}

TEST_F(FakeDeviceTest, WhoeverMapsADmaBufSeesWhatTheDeviceHas) {
  const DeviceAddress at = device_.allocate(8192, Sharing::kIpc).value();
  const auto stream = stream_of(device_);
  const std::span<std::byte> host = device_.allocate_host(8192).value();
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(stream->copy_to_device(at, host.data(), host.size()).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  const DmaBuf exported = device_.export_dma_buf(at).value();
  ASSERT_EQ(exported.bytes, 8192u);
  void* const mapped = ::mmap(nullptr, exported.bytes, PROT_READ, MAP_SHARED, exported.fd.get(),
                              static_cast<off_t>(exported.offset));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(std::memcmp(mapped, host.data(), host.size()), 0);
  ::munmap(mapped, exported.bytes);
}

TEST_F(FakeDeviceTest, OneByteTooFarCostsTheContext) {
  const DeviceAddress from = device_.allocate(1000, Sharing::kIpc).value();
  const DeviceAddress to = device_.allocate(1000, Sharing::kIpc).value();
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->copy(to, from, 1000).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(stream->copy(to + 1, from, 1000).is_ok());
  EXPECT_FALSE(finish(*stream).is_ok());
  EXPECT_FALSE(device_.health().is_ok());
}

TEST_F(FakeDeviceTest, ReservedAddressesHaveMemoryWhereItIsPut) {
  constexpr uint64_t kPiece = 2 * kGranuleBytes;
  const DeviceAddress base = device_.reserve(4 * kPiece).value();
  EXPECT_EQ(device_.find(base).status().code(), Code::kNotFound);
  EXPECT_EQ(device_.find_reserved(base + kPiece).value().base, base);
  EXPECT_EQ(device_.find_reserved(base - 1).status().code(), Code::kNotFound);
  EXPECT_TRUE(device_.allocate_at(base, kPiece).is_ok());
  EXPECT_TRUE(device_.allocate_at(base + kPiece, kPiece).is_ok());
  EXPECT_TRUE(device_.allocate_at(base + 3 * kPiece, kPiece).is_ok());
  EXPECT_EQ(device_.allocate_at(base + kGranuleBytes, kPiece).code(), Code::kInvalidArgument);
  EXPECT_EQ(device_.allocate_at(base + 2 * kPiece, kPiece + 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(device_.allocate_at(4096, kPiece).code(), Code::kNotFound);
  EXPECT_EQ(device_.allocated_bytes(), 3 * kPiece);
  const Allocation second = device_.find(base + kPiece + 1).value();
  EXPECT_EQ(second.base, base + kPiece);
  EXPECT_EQ(second.bytes, kPiece);
  // An operation goes on from one piece to the next.
  const DeviceAddress other = device_.allocate(2 * kPiece, Sharing::kIpc).value();
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->copy(base, other, 2 * kPiece).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(device_.free(base + kPiece).is_ok());
  EXPECT_EQ(device_.find(base + kPiece).status().code(), Code::kNotFound);
  EXPECT_TRUE(device_.allocate_at(base + kPiece, kPiece).is_ok());
  EXPECT_NE(device_.find(base + kPiece).value().id, second.id);
  ASSERT_TRUE(stream->copy(base, other, 2 * kPiece).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(stream->copy(other, base + kPiece, kPiece + 1).is_ok());
  EXPECT_FALSE(finish(*stream).is_ok()) << "behind the second there is nothing";
}

TEST_F(FakeDeviceTest, OfAJoinOnlyWhatIsTouchedHasToBeThere) {
  std::vector<DeviceAddress> theirs;
  std::vector<DeviceAddress> ours;
  for (int i = 0; i < 2; ++i) {
    theirs.push_back(other_.allocate(kGranuleBytes, Sharing::kFd).value());
    const MemoryHandle handle = other_.export_memory(theirs.back()).value();
    ours.push_back(device_.import_memory(handle).value());
    ::close(handle.fd);
  }
  const DeviceAddress joined = device_.join(ours).value();
  const DeviceAddress to = device_.allocate(2 * kGranuleBytes, Sharing::kIpc).value();
  ASSERT_TRUE(other_.free(theirs[1]).is_ok());
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->copy(to, joined, kGranuleBytes).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(stream->copy(to, joined, kGranuleBytes + 1).is_ok());
  EXPECT_FALSE(finish(*stream).is_ok());
}

TEST_F(FakeDeviceTest, AnAddressIsOfOneGpu) {
  FakeGpu second({.ordinal = 1});
  FakeDevice peer(second);
  EXPECT_EQ(peer.facts().ordinal, 1);
  const DeviceAddress theirs = other_.allocate(1000, Sharing::kIpc).value();
  const MemoryHandle handle = other_.export_memory(theirs).value();
  EXPECT_EQ(peer.import_memory(handle).status().code(), Code::kInvalidArgument);
  const DeviceAddress at = device_.import_memory(handle).value();
  const DeviceAddress reached = peer.reach(device_, at).value();
  EXPECT_EQ(peer.find(at).status().code(), Code::kNotFound);
  EXPECT_EQ(device_.find(reached).status().code(), Code::kNotFound);
  const DeviceAddress own = peer.allocate(1000, Sharing::kIpc).value();
  const auto stream = stream_of(peer);
  ASSERT_TRUE(stream->copy(own, reached, 1000).is_ok());
  second.run();
  EXPECT_TRUE(stream->is_idle().value());
  ASSERT_TRUE(stream->copy(own, at, 1).is_ok());
  second.run();
  EXPECT_FALSE(peer.health().is_ok()) << "it is not reached there";
  EXPECT_TRUE(device_.health().is_ok());
}

TEST_F(FakeDeviceTest, WhatIsReachedGoesWhenItsOwnerFreesIt) {
  FakeGpu second({.ordinal = 1});
  FakeDevice peer(second);
  const DeviceAddress theirs = other_.allocate(1000, Sharing::kIpc).value();
  const DeviceAddress at = device_.import_memory(other_.export_memory(theirs).value()).value();
  const DeviceAddress reached = peer.reach(device_, at).value();
  const DeviceAddress own = peer.allocate(1000, Sharing::kIpc).value();
  ASSERT_TRUE(other_.free(theirs).is_ok());
  const auto stream = stream_of(peer);
  ASSERT_TRUE(stream->copy(own, reached, 1).is_ok());
  second.run();
  EXPECT_FALSE(peer.health().is_ok());
}

TEST_F(FakeDeviceTest, PeerAccessMayBeMissing) {
  FakeGpu second({.ordinal = 1, .has_peer_access = false});
  FakeDevice peer(second);
  const Status refused = peer.can_reach(device_.facts());
  EXPECT_EQ(refused.code(), Code::kPermission);
  EXPECT_NE(refused.message().find("fake GPU 1 and fake GPU 0 do not reach"), std::string::npos)
      << refused.message();
}

TEST_F(FakeDeviceTest, AForgedSizeIsRefused) {
  const DeviceAddress theirs = other_.allocate(1000, Sharing::kIpc).value();
  MemoryHandle handle = other_.export_memory(theirs).value();
  handle.bytes = 2000;
  EXPECT_EQ(device_.import_memory(handle).status().code(), Code::kInvalidArgument);
}

TEST_F(FakeDeviceTest, FreeingBehindAWaitWouldHang) {
  const DeviceAddress at = device_.allocate(1000, Sharing::kIpc).value();
  const auto memory = device_.allocate_host(8).value();
  auto* const counter = reinterpret_cast<uint64_t*>(memory.data());
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->wait_value(counter, 1).is_ok());
  EXPECT_EQ(device_.free(at).code(), Code::kTimeout);
  EXPECT_EQ(device_.free_host(memory.data()).code(), Code::kTimeout);
  *counter = 1;
  EXPECT_TRUE(device_.free(at).is_ok());
  EXPECT_TRUE(stream->is_idle().value());
}

TEST_F(FakeDeviceTest, AFailureOnDemandComesOnce) {
  const Status failure(Code::kInternal, "on demand");
  device_.fail_once("allocate", failure);
  EXPECT_TRUE(device_.allocate_host(8).is_ok());
  EXPECT_EQ(device_.allocate(8, Sharing::kIpc).status(), failure);
  EXPECT_EQ(device_.allocated_bytes(), 0u);
  EXPECT_TRUE(device_.allocate(8, Sharing::kIpc).is_ok());
  const auto stream = stream_of(device_);
  device_.fail_once("copy", failure);
  EXPECT_EQ(stream->copy(1, 2, 3), failure);
  EXPECT_TRUE(stream->is_idle().value());
  EXPECT_TRUE(device_.health().is_ok());
}

TEST_F(FakeDeviceTest, TheDeviceIsLostWhenItIsSaid) {
  const Status lost(Code::kUnavailable, "on demand");
  const auto memory = device_.allocate_host(16).value();
  auto* const counters = reinterpret_cast<uint64_t*>(memory.data());
  const auto stream = stream_of(device_);
  const auto neighbours = stream_of(other_);
  device_.lose_after(3, lost);
  for (uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(stream->write_value(&counters[0], i).is_ok());
  EXPECT_TRUE(device_.health().is_ok());
  gpu_.run();
  EXPECT_EQ(counters[0], 3u);
  EXPECT_EQ(device_.health(), lost);
  EXPECT_EQ(stream->is_idle().status(), lost);
  EXPECT_EQ(stream->write_value(&counters[0], 20), lost);
  EXPECT_TRUE(neighbours->is_idle().value());
  other_.lose(lost);
  EXPECT_EQ(neighbours->is_idle().status(), lost);
}

TEST_F(FakeDeviceTest, AStreamTakesOnlySoMuch) {
  const auto memory = device_.allocate_host(8).value();
  auto* const counter = reinterpret_cast<uint64_t*>(memory.data());
  const auto stream = stream_of(device_);
  ASSERT_TRUE(stream->wait_value(counter, 1).is_ok());
  Status status;
  size_t taken = 1;
  while (taken < 10'000 && (status = stream->write_value(counter, 2)).is_ok()) ++taken;
  EXPECT_EQ(taken, 1024u);
  EXPECT_TRUE(status.is_retryable());
  *counter = 1;
  gpu_.run();
  EXPECT_TRUE(stream->write_value(counter, 2).is_ok());
}

}  // namespace
}  // namespace rueda::gpu::fake
