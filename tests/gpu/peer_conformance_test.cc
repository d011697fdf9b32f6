// Tests, on every device, how another GPU's memory is reached, and the order between two GPUs.
#include <algorithm>
#include <array>
#include <cstring>

#include <unistd.h>

#include "tests/gpu/rig.h"

namespace rueda::gpu {
namespace {

constexpr size_t kBytes = 50'000;

class GpuPeer : public GpuConformance {
 protected:
  void SetUp() override {
    GpuConformance::SetUp();
    if (IsSkipped()) return;
    const Result<Device*> found = rig_->peer();
    if (!found.is_ok()) GTEST_SKIP() << "one GPU: " << found.status().to_string();
    peer_ = found.value();
    neighbour_ = rig_->make_neighbour(true);
    own_neighbour_ = rig_->make_neighbour(false);
  }
  void TearDown() override {
    if (peer_ == nullptr) return;
    EXPECT_TRUE(device().health().is_ok()) << device().health().to_string();
    EXPECT_TRUE(peer_->health().is_ok()) << peer_->health().to_string();
  }

  Device& peer() { return *peer_; }
  // Imports, on a device, shared_byte()s of a neighbour on its GPU.
  DeviceAddress import_on(Device& where, uint8_t seed, Sharing sharing) {
    Neighbour& neighbour = &where == peer_ ? *neighbour_ : *own_neighbour_;
    const auto handle = neighbour.share(kBytes, seed, sharing);
    EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
    if (!handle.is_ok()) return 0;
    const auto at = where.import_memory(handle.value());
    if (handle.value().fd >= 0) ::close(handle.value().fd);
    whole_ = handle.value().bytes;
    EXPECT_TRUE(at.is_ok()) << at.status().to_string();
    return at.is_ok() ? at.value() : 0;
  }
  DeviceAddress reach(Device& who, Device& whose, DeviceAddress base) {
    const auto at = who.reach(whose, base);
    EXPECT_TRUE(at.is_ok()) << at.status().to_string();
    return at.is_ok() ? at.value() : 0;
  }
  static std::vector<std::byte> pattern(uint8_t seed, size_t bytes = kBytes) {
    std::vector<std::byte> made(bytes);
    for (size_t i = 0; i < bytes; ++i) made[i] = shared_byte(i, seed);
    return made;
  }
  // Returns the bytes as the peer reads them in its own memory.
  std::vector<std::byte> get_by_peer(DeviceAddress from, size_t bytes) {
    const auto host = peer().allocate_host(bytes).value();
    const auto stream = peer().make_stream(Priority::kLow).value();
    EXPECT_TRUE(stream->copy_to_host(host.data(), from, bytes).is_ok());
    EXPECT_TRUE(finish(*stream).is_ok());
    std::vector<std::byte> out(host.begin(), host.end());
    EXPECT_TRUE(peer().free_host(host.data()).is_ok());
    return out;
  }

  Device* peer_ = nullptr;
  std::unique_ptr<Neighbour> neighbour_;
  std::unique_ptr<Neighbour> own_neighbour_;
  uint64_t whole_ = 0;  // the bytes of the last import, as its handle has them
};

TEST_P(GpuPeer, IsAnotherGpuThatReachesUsAndWeIt) {
  EXPECT_NE(peer().facts().ordinal, device().facts().ordinal);
  EXPECT_NE(peer().facts().uuid, device().facts().uuid);
  EXPECT_TRUE(device().can_reach(peer().facts()).is_ok());
  EXPECT_TRUE(peer().can_reach(device().facts()).is_ok());
}

TEST_P(GpuPeer, WhatThePeerHasImportedIsReadAndWritten) {
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
    const DeviceAddress theirs = import_on(peer(), 9, sharing);
    const DeviceAddress at = reach(device(), peer(), theirs);
    expect_all_may_be_allocated();
    EXPECT_EQ(device().find(at + 100).value().base, at);
    EXPECT_EQ(get(at, kBytes), pattern(9));
    const auto written = pattern(77, kBytes - 10);
    put(at + 10, written);
    EXPECT_EQ(get_by_peer(theirs + 10, written.size()), written);
    EXPECT_TRUE(device().close_import(at).is_ok());
    EXPECT_EQ(device().close_import(at).code(), Code::kNotFound);
    EXPECT_EQ(get_by_peer(theirs, 10).front(), shared_byte(0, 9));
    EXPECT_TRUE(peer().close_import(theirs).is_ok());
  }
}

TEST_P(GpuPeer, AJoinIsReachedAsAWhole) {
  const DeviceAddress one = import_on(peer(), 1, Sharing::kFd);
  const DeviceAddress two = import_on(peer(), 2, Sharing::kFd);
  const DeviceAddress joined = peer().join(std::array{two, one}).value();
  const DeviceAddress at = reach(device(), peer(), joined);
  EXPECT_EQ(get(at, kBytes), pattern(2));
  EXPECT_EQ(get(at + whole_, kBytes), pattern(1));
  const auto across = pattern(5, 200);
  put(at + whole_ - 100, across);
  EXPECT_EQ(get_by_peer(one, 100), std::vector(across.begin() + 100, across.end()));
  EXPECT_EQ(get_by_peer(joined + whole_ - 100, 200), across);
}

TEST_P(GpuPeer, ReachedMemoryIsClosedInAnyOrder) {
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
    const DeviceAddress first = import_on(peer(), 3, sharing);
    const DeviceAddress second = import_on(peer(), 4, sharing);
    const DeviceAddress of_first = reach(device(), peer(), first);
    const DeviceAddress of_second = reach(device(), peer(), second);
    EXPECT_TRUE(peer().close_import(first).is_ok());
    EXPECT_TRUE(device().close_import(of_second).is_ok());
    EXPECT_EQ(get_by_peer(second, kBytes), pattern(4));
    EXPECT_TRUE(device().close_import(of_first).is_ok());
    EXPECT_TRUE(peer().close_import(second).is_ok());
  }
}

TEST_P(GpuPeer, OnlyWhatThePeerHasImportedItselfIsReached) {
  const DeviceAddress theirs = import_on(peer(), 3, Sharing::kIpc);
  const DeviceAddress by_fd = import_on(peer(), 3, Sharing::kFd);
  EXPECT_EQ(device().reach(peer(), theirs + 256).status().code(), Code::kNotFound);
  EXPECT_EQ(device().reach(peer(), peer().allocate(1000, Sharing::kIpc).value()).status().code(),
            Code::kNotFound);
  const DeviceAddress at = reach(device(), peer(), theirs);
  EXPECT_EQ(device().reach(peer(), theirs).status().code(), Code::kInvalidArgument);
  const DeviceAddress fd_at = reach(device(), peer(), by_fd);
  EXPECT_EQ(peer().reach(device(), at).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(peer().reach(device(), fd_at).status().code(), Code::kInvalidArgument);
  const DeviceAddress own = import_on(device(), 3, Sharing::kFd);
  EXPECT_EQ(device().join(std::array{own, fd_at}).status().code(), Code::kInvalidArgument);
}

TEST_P(GpuPeer, ACounterOrdersTheStreamsOfTwoGpus) {
  const auto memory = pinned(64);
  auto* const there = reinterpret_cast<uint64_t*>(memory.data());
  auto* const back = there + 1;
  const auto stream = make_stream();
  const auto peers = peer().make_stream(Priority::kHigh).value();
  EXPECT_EQ(peers->wait_value(there, 1).code(), Code::kInvalidArgument);
  ASSERT_TRUE(peer().reach_host(device(), memory.data()).is_ok());
  EXPECT_EQ(peer().reach_host(device(), memory.data()).code(), Code::kInvalidArgument);
  EXPECT_EQ(peer().reach_host(device(), memory.data() + 8).code(), Code::kNotFound);
  EXPECT_EQ(peer().register_host(memory).code(), Code::kInvalidArgument);
  // One GPU reads what the other writes, again and again.
  const DeviceAddress theirs = import_on(peer(), 0, Sharing::kIpc);
  const DeviceAddress at = reach(device(), peer(), theirs);
  const DeviceAddress scratch = allocate(kBytes);
  const DeviceAddress copied = peer().allocate(kBytes, Sharing::kIpc).value();
  for (uint64_t i = 1; i <= 10; ++i) {
    put(scratch, pattern(static_cast<uint8_t>(i)));
    ASSERT_TRUE(stream->copy(at, scratch, kBytes).is_ok());
    ASSERT_TRUE(stream->write_value(there, i).is_ok());
    ASSERT_TRUE(peers->wait_value(there, i).is_ok());
    ASSERT_TRUE(peers->copy(copied, theirs, kBytes).is_ok());
    ASSERT_TRUE(peers->write_value(back, i).is_ok());
    ASSERT_TRUE(stream->wait_value(back, i).is_ok());
    ASSERT_TRUE(finish(*stream).is_ok());
    EXPECT_EQ(get_by_peer(copied, kBytes), pattern(static_cast<uint8_t>(i)));
  }
  EXPECT_TRUE(peer().unregister_host(memory.data()).is_ok());
  EXPECT_EQ(peer().unregister_host(memory.data()).code(), Code::kNotFound);
  EXPECT_TRUE(device().free_host(memory.data()).is_ok());
}

// Each GPU adds up a half of what both have, for both, as the worker does.
TEST_P(GpuPeer, TwoGpusReduceAHalfEachForBoth) {
  constexpr uint64_t kCount = kBytes / 4;
  const std::array<DeviceAddress, 2> imports{import_on(device(), 1, Sharing::kIpc),
                                             import_on(peer(), 2, Sharing::kIpc)};
  const std::array<DeviceAddress, 2> ours{imports[0], reach(device(), peer(), imports[1])};
  const std::array<DeviceAddress, 2> theirs{reach(peer(), device(), imports[0]), imports[1]};
  const auto stream = make_stream();
  const auto peers = peer().make_stream(Priority::kLow).value();
  const auto reduce = [&](Stream& own, const std::array<DeviceAddress, 2>& at, uint64_t begin,
                          uint64_t end) {
    const std::array<DeviceAddress, 2> moved{at[0] + begin * 4, at[1] + begin * 4};
    const Segment segment{.count = end - begin, .sources = moved, .destinations = moved};
    ASSERT_TRUE(own.reduce({.dtype = DType::kInt32, .segments = {&segment, 1}}).is_ok());
  };
  constexpr uint64_t kHalf = 6208;  // is a multiple of 64
  reduce(*stream, ours, 0, kHalf);
  reduce(*peers, theirs, kHalf, kCount);
  ASSERT_TRUE(finish(*stream).is_ok());
  ASSERT_TRUE(finish(*peers).is_ok());
  std::vector<std::byte> wanted = pattern(1);
  const std::vector<std::byte> other = pattern(2);
  for (size_t i = 0; i < kBytes; i += 4) {
    uint32_t sum = 0;
    uint32_t added = 0;
    std::memcpy(&sum, &wanted[i], 4);
    std::memcpy(&added, &other[i], 4);
    sum += added;
    std::memcpy(&wanted[i], &sum, 4);
  }
  EXPECT_EQ(get(imports[0], kBytes), wanted);
  EXPECT_EQ(get_by_peer(imports[1], kBytes), wanted);
}

INSTANTIATE_TEST_SUITE_P(Rigs, GpuPeer, testing::ValuesIn(all_rigs()), rig_name);

}  // namespace
}  // namespace rueda::gpu
