// Tests streams on every device: order, counters, and what is lost with the device.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tests/gpu/rig.h"

namespace rueda::gpu {
namespace {

constexpr size_t kBytes = 1 << 16;

class GpuStream : public GpuConformance {
 protected:
  static uint64_t read(const uint64_t* counter) {
    return std::atomic_ref(*const_cast<uint64_t*>(counter)).load(std::memory_order_acquire);
  }
  static void write(uint64_t* counter, uint64_t value) {
    std::atomic_ref(*counter).store(value, std::memory_order_release);
  }
  std::span<std::byte> filled(uint8_t value, size_t bytes = kBytes) {
    const auto memory = pinned(bytes);
    std::memset(memory.data(), value, bytes);
    return memory;
  }
  bool is_idle(Stream& stream) {
    const Result<bool> idle = stream.is_idle();
    EXPECT_TRUE(idle.is_ok()) << idle.status().to_string();
    return idle.is_ok() && idle.value();
  }
};

TEST_P(GpuStream, WorkIsDoneInOrder) {
  const auto stream = make_stream();
  const auto one = filled(1);
  const auto two = filled(2);
  const auto out = pinned(2 * kBytes);
  const DeviceAddress a = allocate(kBytes);
  const DeviceAddress b = allocate(kBytes);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(stream->copy_to_device(a, one.data(), kBytes).is_ok());
    ASSERT_TRUE(stream->copy(b, a, kBytes).is_ok());
    ASSERT_TRUE(stream->copy_to_device(a, two.data(), kBytes).is_ok());
    ASSERT_TRUE(stream->copy_to_host(out.data(), b, kBytes).is_ok());
    ASSERT_TRUE(stream->copy(b, a, kBytes).is_ok());
    ASSERT_TRUE(stream->copy_to_host(out.data() + kBytes, b, kBytes).is_ok());
  }
  ASSERT_TRUE(finish(*stream).is_ok());
  EXPECT_EQ(std::memcmp(out.data(), one.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(out.data() + kBytes, two.data(), kBytes), 0);
}

TEST_P(GpuStream, ACopyOfNothingDoesNothing) {
  const auto stream = make_stream(Priority::kHigh);
  EXPECT_TRUE(stream->copy(0, 0, 0).is_ok());
  EXPECT_TRUE(stream->copy_to_host(nullptr, 0, 0).is_ok());
  EXPECT_TRUE(stream->copy_to_device(0, nullptr, 0).is_ok());
  EXPECT_TRUE(finish(*stream).is_ok());
}

TEST_P(GpuStream, AWaitHoldsWhatIsBehindIt) {
  const auto stream = make_stream();
  const auto from = filled(7);
  const auto to = pinned(kBytes);
  uint64_t* const go = counter();
  const DeviceAddress at = allocate(kBytes);
  ASSERT_TRUE(stream->copy_to_device(at, from.data(), kBytes).is_ok());
  ASSERT_TRUE(stream->wait_value(go, 5).is_ok());
  ASSERT_TRUE(stream->copy_to_host(to.data(), at, kBytes).is_ok());
  wait_a_while();
  EXPECT_FALSE(is_idle(*stream));
  write(go, 4);
  wait_a_while();
  EXPECT_FALSE(is_idle(*stream));
  EXPECT_EQ(to[kBytes - 1], std::byte{0});
  write(go, 5);
  ASSERT_TRUE(finish(*stream).is_ok());
  EXPECT_EQ(std::memcmp(to.data(), from.data(), kBytes), 0);
}

TEST_P(GpuStream, AValueThatIsThereIsNotWaitedFor) {
  const auto stream = make_stream();
  uint64_t* const there = counter();
  write(there, 100);
  for (const uint64_t value : {100, 99, 0}) {
    ASSERT_TRUE(stream->wait_value(there, value).is_ok());
  }
  EXPECT_TRUE(finish(*stream).is_ok());
}

TEST_P(GpuStream, CountersWrapAround) {
  const auto stream = make_stream();
  uint64_t* const at = counter();
  write(at, UINT64_MAX - 1);
  ASSERT_TRUE(stream->wait_value(at, 3).is_ok());
  wait_a_while();
  EXPECT_FALSE(is_idle(*stream));
  write(at, 3);
  EXPECT_TRUE(finish(*stream).is_ok());
}

TEST_P(GpuStream, WhoSeesTheValueSeesTheWork) {
  const auto stream = make_stream();
  uint64_t* const done = counter();
  const auto to = pinned(kBytes);
  const DeviceAddress at = allocate(kBytes);
  for (uint8_t round = 1; round <= 20; ++round) {
    const auto from = filled(round);
    ASSERT_TRUE(stream->copy_to_device(at, from.data(), kBytes).is_ok());
    ASSERT_TRUE(stream->copy_to_host(to.data(), at, kBytes).is_ok());
    ASSERT_TRUE(stream->write_value(done, round).is_ok());
    ASSERT_TRUE(wait_for([&] { return read(done) == round; }));
    ASSERT_EQ(std::memcmp(to.data(), from.data(), kBytes), 0) << int{round};
  }
}

TEST_P(GpuStream, WhoSeesAnyOfManyValuesSeesTheWork) {
  const auto stream = make_stream();
  const auto to = pinned(kBytes);
  const DeviceAddress at = allocate(kBytes);
  constexpr size_t kCounters = 600;
  auto* const counters = reinterpret_cast<uint64_t*>(pinned(kCounters * sizeof(uint64_t)).data());
  for (uint8_t round = 1; round <= 5; ++round) {
    std::vector<CounterValue> writes;
    for (size_t i = 0; i < kCounters; ++i) writes.push_back({&counters[i], round + 10 * i});
    const auto from = filled(round);
    ASSERT_TRUE(stream->copy_to_device(at, from.data(), kBytes).is_ok());
    ASSERT_TRUE(stream->copy_to_host(to.data(), at, kBytes).is_ok());
    ASSERT_TRUE(stream->write_values(writes).is_ok());
    const size_t seen = 149 * (round - 1);
    ASSERT_TRUE(wait_for([&] { return read(&counters[seen]) == round + 10 * seen; }));
    ASSERT_EQ(std::memcmp(to.data(), from.data(), kBytes), 0) << int{round};
    ASSERT_TRUE(finish(*stream).is_ok());
    for (size_t i = 0; i < kCounters; ++i) ASSERT_EQ(read(&counters[i]), round + 10 * i);
  }
  EXPECT_TRUE(stream->write_values({}).is_ok());
  uint64_t elsewhere = 0;
  const std::vector<CounterValue> wrong{{counters, 0}, {&elsewhere, 1}};
  EXPECT_EQ(stream->write_values(wrong).code(), Code::kInvalidArgument);
}

TEST_P(GpuStream, OneStreamWaitsForAnother) {
  const auto first = make_stream();
  const auto second = make_stream(Priority::kHigh);
  const auto from = filled(3);
  const auto to = pinned(kBytes);
  uint64_t* const go = counter();
  uint64_t* const done = counter();
  const DeviceAddress at = allocate(kBytes);
  ASSERT_TRUE(second->wait_value(done, 1).is_ok());
  ASSERT_TRUE(second->copy_to_host(to.data(), at, kBytes).is_ok());
  ASSERT_TRUE(first->wait_value(go, 1).is_ok());
  ASSERT_TRUE(first->copy_to_device(at, from.data(), kBytes).is_ok());
  ASSERT_TRUE(first->write_value(done, 1).is_ok());
  wait_a_while();
  EXPECT_EQ(read(done), 0u);
  EXPECT_FALSE(is_idle(*second));
  write(go, 1);
  ASSERT_TRUE(finish(*second).is_ok());
  EXPECT_EQ(std::memcmp(to.data(), from.data(), kBytes), 0);
  EXPECT_TRUE(finish(*first).is_ok());
}

TEST_P(GpuStream, AStreamThatWaitsHoldsUpNoOther) {
  const auto blocked = make_stream(Priority::kHigh);
  const auto other = make_stream();
  uint64_t* const go = counter();
  uint64_t* const done = counter();
  ASSERT_TRUE(blocked->wait_value(go, 1).is_ok());
  ASSERT_TRUE(other->write_value(done, 1).is_ok());
  EXPECT_TRUE(finish(*other).is_ok());
  EXPECT_EQ(read(done), 1u);
  write(go, 1);
  EXPECT_TRUE(finish(*blocked).is_ok());
}

TEST_P(GpuStream, MemoryThatIsRegisteredIsReached) {
  alignas(4096) static std::byte page[4096];
  ASSERT_TRUE(device().register_host(page).is_ok());
  auto* const done = reinterpret_cast<uint64_t*>(page + 4088);
  const DeviceAddress at = allocate(100);
  put(at, std::vector(100, std::byte{42}));
  const auto stream = make_stream();
  ASSERT_TRUE(stream->copy_to_host(page + 1, at, 100).is_ok());
  ASSERT_TRUE(stream->write_value(done, 9).is_ok());
  ASSERT_TRUE(stream->wait_value(done, 9).is_ok());
  ASSERT_TRUE(finish(*stream).is_ok());
  EXPECT_EQ(read(done), 9u);
  EXPECT_EQ(page[100], std::byte{42});
  ASSERT_TRUE(device().unregister_host(page).is_ok());
  EXPECT_EQ(stream->write_value(done, 1).code(), Code::kInvalidArgument);
}

TEST_P(GpuStream, HostMemoryThatIsNotPinnedIsRefused) {
  const auto stream = make_stream();
  std::vector<std::byte> pageable(100);
  alignas(8) uint64_t value = 0;
  const DeviceAddress at = allocate(100);
  const auto memory = pinned(64);
  auto* const odd = reinterpret_cast<uint64_t*>(memory.data() + 4);
  auto* const over = memory.data() + 60;
  EXPECT_EQ(stream->copy_to_device(at, pageable.data(), 100).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->copy_to_host(pageable.data(), at, 100).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->copy_to_host(over, at, 5).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->wait_value(&value, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->write_value(&value, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->wait_value(odd, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->write_value(odd, 1).code(), Code::kInvalidArgument);
  EXPECT_TRUE(finish(*stream).is_ok());
  EXPECT_TRUE(device().health().is_ok());
}

// Checks a lost device. A lost context stays lost for its process, so this runs in a process of its
// own.
void expect_all_calls_fail(Device& device, Stream& stream, std::span<std::byte> host,
                           std::vector<Status>& all) {
  auto* const counter = reinterpret_cast<uint64_t*>(host.data());
  all = {device.health(),
         stream.is_idle().status(),
         stream.wait_value(counter, 0),
         stream.write_value(counter, 1),
         stream.copy(4096, 8192, 1),
         stream.copy_to_host(host.data(), 4096, 1),
         stream.copy_to_device(4096, host.data(), 1),
         stream.reduce({}),
         device.allocate(1, Sharing::kIpc).status(),
         device.free(4096),
         device.find(4096).status(),
         device.export_memory(4096).status(),
         device.import_memory({}).status(),
         device.close_import(4096),
         device.allocate_host(1).status(),
         device.free_host(host.data()),
         device.register_host(host),
         device.unregister_host(host.data()),
         device.make_stream(Priority::kLow).status()};
}

TEST_P(GpuStream, AStickyErrorIsEveryCallsError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto lose = [&] {
    const auto stream = make_stream();
    const auto host = pinned(kBytes);
    const DeviceAddress good = allocate(kBytes);
    const DeviceAddress nowhere = 1 << 20;
    const Segment segment{
        .count = 16, .sources = std::span(&nowhere, 1), .destinations = std::span(&good, 1)};
    const Status launched = stream->reduce({.segments = std::span(&segment, 1)});
    const Status found = launched.is_ok() ? finish(*stream) : launched;
    std::vector<Status> all;
    expect_all_calls_fail(device(), *stream, host, all);
    bool is_right = found.code() == Code::kUnavailable;
    for (const Status& status : all) is_right = is_right && status == found;
    std::cerr << "found: " << found.to_string() << "\n";
    for (const Status& status : all) std::cerr << status.to_string() << "\n";
    rig_->remove_folder();
    std::_Exit(is_right ? 0 : 1);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(0), "found: ");
  EXPECT_TRUE(device().health().is_ok());
}

INSTANTIATE_TEST_SUITE_P(Rigs, GpuStream, testing::ValuesIn(all_rigs()), rig_name);

}  // namespace
}  // namespace rueda::gpu
