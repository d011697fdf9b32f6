// Tests memory on every device: limits, addresses, handles of other processes.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include <unistd.h>

#include "tests/gpu/rig.h"

namespace rueda::gpu {
namespace {

class GpuMemory : public GpuConformance {
 protected:
  // Everything here goes wrong in a way that costs no context.
  void TearDown() override {
    if (!rig_) return;
    EXPECT_TRUE(device().health().is_ok()) << device().health().to_string();
  }
};

TEST_P(GpuMemory, TheDeviceSaysWhatItIs) {
  const DeviceFacts& facts = device().facts();
  EXPECT_EQ(facts.ordinal, 0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.capability_major, 8);
  EXPECT_GE(facts.memory_bytes, kLimitBytes);
  EXPECT_TRUE(std::any_of(facts.uuid.begin(), facts.uuid.end(), [](uint8_t b) { return b != 0; }));
}

TEST_P(GpuMemory, AllocationsAreAlignedAndApart) {
  std::vector<std::pair<DeviceAddress, uint64_t>> all;
  for (const uint64_t bytes : {1, 255, 256, 257, 70'000}) {
    for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
      all.emplace_back(allocate(bytes, sharing), bytes);
      EXPECT_EQ(all.back().first % 256, 0u);
    }
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(all[i].first, all[i - 1].first + all[i - 1].second);
  }
}

TEST_P(GpuMemory, WhatIsWrittenIsThere) {
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
    const DeviceAddress at = allocate(1000, sharing);
    std::vector<std::byte> bytes(999);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = shared_byte(i, 3);
    put(at + 1, bytes);
    EXPECT_EQ(get(at + 1, bytes.size()), bytes);
  }
}

TEST_P(GpuMemory, TheLimitIsKept) {
  const DeviceAddress most = allocate(kLimitBytes - 4096);
  EXPECT_EQ(device().allocate(4097, Sharing::kIpc).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(device().allocate(UINT64_MAX, Sharing::kIpc).status().code(), Code::kResourceExhausted);
  allocate(4096);
  EXPECT_EQ(device().allocate(1, Sharing::kFd).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(device().free(most).is_ok());
  allocate(kLimitBytes - 4096);
}

TEST_P(GpuMemory, OutOfMemoryIsAnErrorLikeOthers) {
  open({.memory_limit_bytes = UINT64_MAX});
  const uint64_t too_much = 2 * device().facts().memory_bytes;
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
    EXPECT_EQ(device().allocate(too_much, sharing).status().code(), Code::kResourceExhausted);
  }
  EXPECT_NE(allocate(100), 0u);
}

TEST_P(GpuMemory, KernelsReadAndWritePinnedMemoryOfTheHost) {
  const auto pinned = device().allocate_host(8192);
  ASSERT_TRUE(pinned.is_ok());
  const std::span<std::byte> host = pinned.value();
  const auto at = device().address_of_host(host.subspan(4096));
  ASSERT_TRUE(at.is_ok()) << at.status().to_string();
  EXPECT_EQ(at.value() - device().address_of_host(host).value(), 4096u);
  std::vector<int32_t> numbers(1024);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(3 * i);
  std::memcpy(host.data() + 4096, numbers.data(), 4096);
  const DeviceAddress other = allocate(4096);
  put(other, std::as_bytes(std::span(numbers)));
  const auto stream = make_stream();
  const std::array<DeviceAddress, 2> both{at.value(), other};
  const Segment segment{.count = numbers.size(), .sources = both, .destinations = both};
  ASSERT_TRUE(stream->reduce({.dtype = DType::kInt32, .segments = {&segment, 1}}).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  for (int32_t& number : numbers) number *= 2;
  EXPECT_EQ(std::memcmp(host.data() + 4096, numbers.data(), 4096), 0);
  EXPECT_TRUE(std::ranges::equal(get(other, 4096), std::as_bytes(std::span(numbers))));
  std::array<std::byte, 8> unpinned{};
  EXPECT_EQ(device().address_of_host(unpinned).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(device().address_of_host({host.data() + 1, 8192}).status().code(),
            Code::kInvalidArgument);
}

TEST_P(GpuMemory, OnlyWhatWasAllocatedIsFreed) {
  const DeviceAddress at = allocate(1000);
  EXPECT_EQ(device().free(at + 256).code(), Code::kNotFound);
  EXPECT_EQ(device().close_import(at).code(), Code::kNotFound);
  EXPECT_TRUE(device().free(at).is_ok());
  EXPECT_EQ(device().free(at).code(), Code::kNotFound);
  EXPECT_EQ(device().free(0).code(), Code::kNotFound);
  EXPECT_EQ(device().allocate(0, Sharing::kIpc).status().code(), Code::kInvalidArgument);
}

TEST_P(GpuMemory, AnAddressIsFoundInItsAllocation) {
  const DeviceAddress at = allocate(1 << 20);
  for (const uint64_t offset : {0, 1, (1 << 20) - 1}) {
    const auto found = device().find(at + offset);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found.value().base, at);
    EXPECT_GE(found.value().bytes, uint64_t{1} << 20);
  }
  EXPECT_EQ(device().find(4096).status().code(), Code::kNotFound);
}

TEST_P(GpuMemory, AnAddressThatComesAgainIsAnotherAllocation) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 8; ++i) {
    const DeviceAddress at = allocate(8 << 20);
    EXPECT_TRUE(ids.insert(device().find(at).value().id).second);
    EXPECT_TRUE(device().free(at).is_ok());
  }
}

TEST_P(GpuMemory, MemoryOfANeighbourIsReadAndWritten) {
  const auto neighbour = rig_->make_neighbour();
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kFd}) {
    const auto handle = neighbour->share(5000, 9, sharing);
    ASSERT_TRUE(handle.is_ok()) << handle.status().to_string();
    const auto at = device().import_memory(handle.value());
    if (handle.value().fd >= 0) ::close(handle.value().fd);
    ASSERT_TRUE(at.is_ok()) << at.status().to_string();
    expect_all_may_be_allocated();
    EXPECT_EQ(device().find(at.value() + 100).value().base, at.value());
    const auto bytes = get(at.value(), 5000);
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], shared_byte(i, 9));
    const auto most = std::span(bytes).first(4990);
    put(at.value() + 10, most);
    EXPECT_EQ(get(at.value() + 10, most.size()), std::vector(most.begin(), most.end()));
    EXPECT_EQ(device().free(at.value()).code(), Code::kNotFound);
    EXPECT_TRUE(device().close_import(at.value()).is_ok());
    EXPECT_EQ(device().close_import(at.value()).code(), Code::kNotFound);
    EXPECT_TRUE(neighbour->take_back().is_ok());
  }
}

TEST_P(GpuMemory, AnIpcHandleIsOpenOnce) {
  const auto neighbour = rig_->make_neighbour();
  const auto handle = neighbour->share(5000, 9, Sharing::kIpc).value();
  const auto at = device().import_memory(handle);
  ASSERT_TRUE(at.is_ok()) << at.status().to_string();
  EXPECT_EQ(device().import_memory(handle).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(device().close_import(at.value()).is_ok());
  const auto again = device().import_memory(handle);
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_TRUE(device().close_import(again.value()).is_ok());
}

bool is_refusal(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kInvalidArgument;
}

TEST_P(GpuMemory, AHandleThatIsNoneIsRefused) {
  MemoryHandle junk{.bytes = 5000};
  junk.ipc.fill(std::byte{0x5a});
  EXPECT_TRUE(is_refusal(device().import_memory(junk).status()));
  junk.sharing = Sharing::kFd;
  EXPECT_TRUE(is_refusal(device().import_memory(junk).status()));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  junk.fd = ends[0];
  EXPECT_FALSE(device().import_memory(junk).is_ok());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(GpuMemory, OurOwnIpcHandleIsRefused) {
  const DeviceAddress at = allocate(5000);
  const auto handle = device().export_memory(at);
  ASSERT_TRUE(handle.is_ok()) << handle.status().to_string();
  EXPECT_EQ(device().import_memory(handle.value()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(device().export_memory(at + 256).status().code(), Code::kNotFound);
}

TEST_P(GpuMemory, WholePagesAreExportedToOtherDevicesOrThereIsAReason) {
  const DeviceAddress at = allocate((1 << 20) + 100);
  const Result<DmaBuf> exported = device().export_dma_buf(at);
  if (!exported.is_ok()) {
    EXPECT_EQ(exported.status().code(), Code::kUnavailable);
    EXPECT_FALSE(exported.status().message().empty());
  } else {
    EXPECT_TRUE(exported.value().fd.is_open());
    EXPECT_EQ(exported.value().bytes, uint64_t{1} << 20);
  }
  EXPECT_EQ(device().export_dma_buf(at + 4096).status().code(), Code::kNotFound);
  EXPECT_NE(device().export_dma_buf(allocate(100)).status().code(), Code::kOk);
}

TEST_P(GpuMemory, WhatTheNeighbourHasTakenBackIsRefused) {
  const auto neighbour = rig_->make_neighbour();
  const auto handle = neighbour->share(3 << 20, 9, Sharing::kIpc).value();
  ASSERT_TRUE(neighbour->take_back().is_ok());
  EXPECT_TRUE(is_refusal(device().import_memory(handle).status()));
}

// Holds a neighbour's pieces, imported, with the seed of each.
class GpuJoin : public GpuMemory {
 protected:
  DeviceAddress import_piece(uint8_t seed, Sharing sharing = Sharing::kFd) {
    const auto handle = neighbour().share(kPieceBytes, seed, sharing);
    EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
    if (!handle.is_ok()) return 0;
    const auto at = device().import_memory(handle.value());
    if (handle.value().fd >= 0) ::close(handle.value().fd);
    EXPECT_TRUE(at.is_ok()) << at.status().to_string();
    whole_ = handle.value().bytes;
    return at.is_ok() ? at.value() : 0;
  }
  DeviceAddress join(const std::vector<DeviceAddress>& pieces) {
    const auto at = device().join(pieces);
    EXPECT_TRUE(at.is_ok()) << at.status().to_string();
    return at.is_ok() ? at.value() : 0;
  }
  Code code_of(const std::vector<DeviceAddress>& pieces) {
    return device().join(pieces).status().code();
  }
  void expect_piece(DeviceAddress at, uint8_t seed) {
    const auto bytes = get(at, kPieceBytes);
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], shared_byte(i, seed)) << i;
  }
  Neighbour& neighbour() {
    if (!neighbour_) neighbour_ = rig_->make_neighbour();
    return *neighbour_;
  }

  static constexpr size_t kPieceBytes = 50'000;
  uint64_t whole_ = 0;  // the bytes of a piece, as its handle has them

 private:
  std::unique_ptr<Neighbour> neighbour_;
};

TEST_P(GpuJoin, LaysImportsOneBehindAnotherInTheOrderGiven) {
  const DeviceAddress one = import_piece(1);
  const DeviceAddress two = import_piece(2);
  const DeviceAddress three = import_piece(3);
  const DeviceAddress at = join({three, one, two});
  expect_all_may_be_allocated();
  EXPECT_EQ(device().find(at + 2 * whole_ + 1).value().base, at);
  EXPECT_EQ(device().find(at).value().bytes, 3 * whole_);
  expect_piece(at, 3);
  expect_piece(at + whole_, 1);
  expect_piece(at + 2 * whole_, 2);
  // Bytes that are written across the seams are in the pieces.
  std::vector<std::byte> across(whole_ + 200);
  for (size_t i = 0; i < across.size(); ++i) across[i] = shared_byte(i, 77);
  put(at + whole_ - 100, across);
  EXPECT_EQ(get(at + whole_ - 100, across.size()), across);
  EXPECT_EQ(get(three + whole_ - 100, 100), std::vector(across.begin(), across.begin() + 100));
  EXPECT_EQ(get(one, whole_), std::vector(across.begin() + 100, across.end() - 100));
  EXPECT_EQ(get(two, 100), std::vector(across.end() - 100, across.end()));
}

TEST_P(GpuJoin, IsReducedLikeOtherMemory) {
  const DeviceAddress one = import_piece(1);
  const DeviceAddress two = import_piece(2);
  const DeviceAddress at = join({one, two});
  const uint64_t count = 2 * whole_ / 4;
  std::vector<int32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<int32_t>(i);
  put(at, std::as_bytes(std::span(numbers)));
  const DeviceAddress other = allocate(2 * whole_);
  put(other, std::as_bytes(std::span(numbers)));
  const auto stream = make_stream();
  const std::array<DeviceAddress, 2> both{at, other};
  const Segment segment{.count = count, .sources = both, .destinations = std::span(both).first(1)};
  ASSERT_TRUE(stream->reduce({.dtype = DType::kInt32, .segments = {&segment, 1}}).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  for (int32_t& number : numbers) number *= 2;
  const auto wanted = std::as_bytes(std::span(numbers));
  EXPECT_TRUE(std::ranges::equal(get(one, whole_), wanted.first(whole_)));
  EXPECT_TRUE(std::ranges::equal(get(two, whole_), wanted.last(whole_)));
}

TEST_P(GpuJoin, IsClosedBeforeItsPiecesAndLeavesThem) {
  const DeviceAddress one = import_piece(1);
  const DeviceAddress two = import_piece(2);
  const DeviceAddress first = join({one, two});
  const DeviceAddress second = join({two, one});
  EXPECT_EQ(device().free(first).code(), Code::kNotFound);
  EXPECT_EQ(device().close_import(one).code(), Code::kInvalidArgument);
  EXPECT_TRUE(device().close_import(first).is_ok());
  EXPECT_EQ(device().close_import(first).code(), Code::kNotFound);
  EXPECT_EQ(device().close_import(two).code(), Code::kInvalidArgument);
  expect_piece(second + whole_, 1);
  EXPECT_TRUE(device().close_import(second).is_ok());
  expect_piece(one, 1);
  EXPECT_TRUE(device().close_import(one).is_ok());
  expect_piece(two, 2);
  EXPECT_TRUE(device().close_import(two).is_ok());
}

TEST_P(GpuJoin, IsOfImportsByDescriptorsAlone) {
  const DeviceAddress one = import_piece(1);
  const DeviceAddress by_handle = import_piece(2, Sharing::kIpc);
  const DeviceAddress two = import_piece(3);
  EXPECT_EQ(code_of({}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({one}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({one, by_handle}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({one, allocate(5000, Sharing::kFd)}), Code::kNotFound);
  EXPECT_EQ(code_of({one, two + 256}), Code::kNotFound);
  EXPECT_EQ(code_of({one, join({one, two})}), Code::kInvalidArgument);
  EXPECT_TRUE(device().close_import(by_handle).is_ok());
}

TEST_P(GpuMemory, PinnedMemoryIsZeroAndFreedOnce) {
  const auto memory = pinned(100'000);
  EXPECT_TRUE(
      std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(device().unregister_host(memory.data()).code(), Code::kNotFound);
  EXPECT_TRUE(device().free_host(memory.data()).is_ok());
  EXPECT_EQ(device().free_host(memory.data()).code(), Code::kNotFound);
  EXPECT_EQ(device().allocate_host(0).status().code(), Code::kInvalidArgument);
}

TEST_P(GpuMemory, MemoryIsRegisteredOnce) {
  alignas(4096) static std::byte page[2 * 4096];
  EXPECT_EQ(device().register_host({page, 0}).code(), Code::kInvalidArgument);
  ASSERT_TRUE(device().register_host(page).is_ok());
  EXPECT_EQ(device().register_host(page).code(), Code::kInvalidArgument);
  EXPECT_EQ(device().free_host(page).code(), Code::kNotFound);
  EXPECT_TRUE(device().unregister_host(page).is_ok());
  EXPECT_EQ(device().unregister_host(page).code(), Code::kNotFound);
  ASSERT_TRUE(device().register_host(page).is_ok());
  EXPECT_TRUE(device().unregister_host(page).is_ok());
}

INSTANTIATE_TEST_SUITE_P(Rigs, GpuMemory, testing::ValuesIn(all_rigs()), rig_name);
INSTANTIATE_TEST_SUITE_P(Rigs, GpuJoin, testing::ValuesIn(all_rigs()), rig_name);

}  // namespace
}  // namespace rueda::gpu
