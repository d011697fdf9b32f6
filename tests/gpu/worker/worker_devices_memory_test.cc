// Tests memory of a worker with several GPUs: all of them have what one of them has opened, or none
// has.
#include <algorithm>
#include <array>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/several_gpus.h"

namespace rueda::gpu {
namespace {

class DevicesMemoryTest : public SeveralGpus, public testing::WithParamInterface<size_t> {
 protected:
  DevicesMemoryTest() : SeveralGpus(GetParam()) {}
};

TEST_P(DevicesMemoryTest, MemoryIsClosedOnAllAndComesAgain) {
  open_all();
  const auto mapped = [this] {
    size_t count = 0;
    for (FakeDevice* const device : opened_) {
      const uint64_t own = 0x10'0000'0000 * static_cast<uint64_t>(device->facts().ordinal);
      for (uint64_t page = 0; page < 8 * kManyBytes; page += 4096) {
        const DeviceAddress at = 0x7f00'0000'0000 + own + page;
        const auto found = device->find(at);
        count += found.is_ok() && at - found.value().base < 4096 ? 1 : 0;
      }
    }
    return count;
  };
  EXPECT_EQ(mapped(), own_.size() * own_.size());
  Packet removal(WorkerMessage::kRemoveMemory);
  send(removal.add(RemoveMemoryBody{.memory = 1}));
  wait_a_while();
  EXPECT_EQ(mapped(), own_.size() * (own_.size() - 1));
  expect_added(1);
  EXPECT_EQ(mapped(), own_.size() * own_.size());
  run(sum_of_all(1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_all(sum());
}

TEST_P(DevicesMemoryTest, AJoinIsAllGpus) {
  open_all();
  Rank& last = own_.back();
  constexpr uint64_t kPiece = kManyBytes / 2 / 4096 * 4096 + 4096;
  std::vector<uint32_t> pieces;
  std::vector<DeviceAddress> addresses;
  for (uint32_t number = 30; number < 32; ++number) {
    addresses.push_back(last.device.allocate(kPiece, Sharing::kFd).value());
    add(number, last.device.export_memory(addresses.back()).value(), last.device.facts().uuid);
    expect_outcome(WorkerMessage::kMemoryAdded, number, Code::kOk);
    pieces.push_back(number);
  }
  const auto join = [this](uint32_t number, const std::vector<uint32_t>& numbers) {
    Packet packet(WorkerMessage::kJoinMemory);
    packet.add(JoinMemoryBody{.memory = number, .pieces = static_cast<uint32_t>(numbers.size())});
    send(packet.add_bytes(numbers.data(), numbers.size() * sizeof(uint32_t)));
  };
  join(40, pieces);
  expect_outcome(WorkerMessage::kMemoryAdded, 40, Code::kOk);
  // The operation's output lies in the join.
  WorkerOperation operation = sum_of_all(1);
  operation.segments[0].destinations.back() = {.memory = 40};
  for (const uint64_t steps : steps_for(operation)) EXPECT_GT(steps, 0u);
  const std::vector<float> wanted = sum();
  const auto host = last.device.allocate_host(kPiece).value();
  for (size_t i = 0; i < addresses.size(); ++i) {
    ASSERT_TRUE(last.stream->copy_to_host(host.data(), addresses[i], kPiece).is_ok());
    run_own(last);
    const uint64_t bytes = std::min(kPiece, kManyBytes - i * kPiece);
    const auto* const expected = reinterpret_cast<const std::byte*>(wanted.data()) + i * kPiece;
    EXPECT_EQ(std::memcmp(host.data(), expected, bytes), 0) << "piece " << i;
  }
  // Pieces of two GPUs cannot make one range.
  const DeviceAddress other = own_[0].device.allocate(kPiece, Sharing::kFd).value();
  add(33, own_[0].device.export_memory(other).value(), own_[0].device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 33, Code::kOk);
  join(41, {30, 33});
  expect_outcome(WorkerMessage::kMemoryAdded, 41, Code::kInvalidArgument);
  EXPECT_NE(text_.find("two GPUs"), std::string::npos) << text_;
}

TEST_P(DevicesMemoryTest, WhatCannotBeReachedIsToldAndNoMore) {
  open_with_counters();
  allocate(0, kManyBytes, Sharing::kIpc);
  fill(0);
  expect_added(0);
  allocate(1, kManyBytes, Sharing::kIpc);
  fill(1);
  expect_added(1);
  Rank& own = own_[1];
  const DeviceAddress more = own.device.allocate(kBytes, Sharing::kIpc).value();
  const MemoryHandle handle = own.device.export_memory(more).value();
  opened_[0]->fail_once("reach", {Code::kResourceExhausted, "no addresses"});
  add(60, handle, own.device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 60, Code::kResourceExhausted);
  // Nothing of the memory is open on the other GPU.
  add(61, handle, own.device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 61, Code::kOk);
  add(62, handle, own_[0].device.facts().uuid);  // shows that it is not
  expect_outcome(WorkerMessage::kMemoryAdded, 62, Code::kPermission);
  std::array<uint8_t, 16> stranger{0xfa};
  stranger[15] = 99;
  add(63, handle, stranger);
  expect_outcome(WorkerMessage::kMemoryAdded, 63, Code::kPermission);
  EXPECT_FALSE(worker_->is_busy());
}

// A rank's memory cannot be opened: the host memory in its place belongs to each GPU, too.
TEST_P(DevicesMemoryTest, AllHaveHostMemoryInPlaceOfARanks) {
  open_with_counters();
  UniqueFd memfd(::memfd_create("staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = (kManyBytes + 4095) / 4096 * 4096;
  ASSERT_EQ(::ftruncate(memfd.get(), static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto* const there = static_cast<float*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0));
  ASSERT_NE(there, MAP_FAILED);
  const auto add_mapped = [&](uint32_t number) {
    Packet packet(WorkerMessage::kAddMemory);
    packet.add(AddMemoryBody{.memory = number, .kind = MemoryKind::kMapped, .bytes = bytes});
    packet.fd = UniqueFd(::dup(memfd.get()));
    send(packet);
  };
  add_mapped(70);  // comes before the other GPUs
  expect_outcome(WorkerMessage::kMemoryAdded, 70, Code::kOk);
  for (uint32_t i = 0; i < own_.size(); ++i) {
    allocate(i, kManyBytes, Sharing::kIpc);
    fill(i);
    expect_added(i);
  }
  for (const uint32_t number : {70u, 71u}) {
    std::copy(given_[1].begin(), given_[1].end(), there);
    WorkerOperation operation = sum_of_all(number);
    operation.segments[0].sources[1] = {.memory = number};
    operation.segments[0].destinations[1] = {.memory = number};
    for (uint32_t i = 0; i < own_.size(); ++i) write(i, given_[i]);
    run(operation);
    expect_outcome(WorkerMessage::kEnded, number, Code::kOk);
    EXPECT_TRUE(read(0) == sum());
    EXPECT_TRUE(std::equal(there, there + kMany, sum().begin()));
    Packet remove(WorkerMessage::kRemoveMemory);
    send(remove.add(RemoveMemoryBody{number}));
    if (number == 71) break;
    // Memory that one of the GPUs cannot have, none keeps.
    opened_.back()->fail_once("address_of_host", {Code::kInternal, "it is not to be had"});
    add_mapped(71);
    expect_outcome(WorkerMessage::kMemoryAdded, 71, Code::kInternal);
    add_mapped(71);
    expect_outcome(WorkerMessage::kMemoryAdded, 71, Code::kOk);
  }
  ::munmap(there, bytes);
}

INSTANTIATE_TEST_SUITE_P(Gpus, DevicesMemoryTest, testing::Values(2, 4),
                         testing::PrintToStringParamName());

class WithoutPeerAccess : public SeveralGpus {
 protected:
  WithoutPeerAccess() : SeveralGpus(2, 1, false) {}
};

TEST_F(WithoutPeerAccess, AnotherGpusMemoryIsRefusedAndTheFirstGoesOn) {
  open_with_counters();
  for (uint32_t i = 0; i < 2; ++i) {
    allocate(i, kManyBytes, Sharing::kIpc);
    fill(i);
  }
  expect_added(0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_added(1, Code::kPermission);
    EXPECT_NE(text_.find("fake GPU 0 and fake GPU 1 do not reach each other"), std::string::npos)
        << text_;
    EXPECT_NE(text_.find("hand over host memory"), std::string::npos) << text_;
  }
  WorkerOperation alone{.number = 1};
  alone.segments = {{.count = kMany, .sources = {{.memory = 0}}, .destinations = {{.memory = 0}}}};
  run(alone);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
}

}  // namespace
}  // namespace rueda::gpu
