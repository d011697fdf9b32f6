#include "daemon/session/memory/sigbus_guard.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "daemon/session/memory/arena.h"
#include "daemon/session/memory/guard_slot.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

constexpr size_t kBytes = 4 * 4096;

// A guarded mapping whose file the test can take away, because it is not sealed; an arena must be.
class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(install_sigbus_guard().is_ok()); }
};

TEST_F(GuardTest, LostMemoryBecomesZeroesAndIsFlagged) {
  UniqueFd memfd = make_memfd(kBytes, 0);
  Result<Mapping> mapped = Mapping::map(memfd.get(), kBytes, "a test");
  ASSERT_TRUE(mapped.is_ok());
  UniqueFd other_fd = make_memfd(kBytes, 0);
  Result<Mapping> other = Mapping::map(other_fd.get(), kBytes, "another");
  ASSERT_TRUE(other.is_ok());
  auto* data = reinterpret_cast<volatile char*>(mapped.value().data());
  data[0] = 7;
  ASSERT_EQ(::ftruncate(memfd.get(), 0), 0);
  EXPECT_FALSE(mapped.value().is_lost());
  EXPECT_EQ(char{data[2 * 4096]}, 0);
  EXPECT_TRUE(mapped.value().is_lost());
  data[kBytes - 1] = 9;
  EXPECT_EQ(char{data[kBytes - 1]}, 9);
  EXPECT_EQ(char{data[0]}, 0) << "the whole range is replaced";
  EXPECT_FALSE(other.value().is_lost());
  uint64_t losses = 0;
  EXPECT_EQ(::read(sigbus_event_fd(), &losses, sizeof(losses)), 8);
}

TEST_F(GuardTest, ThreadsMayFaultTogether) {
  UniqueFd memfd = make_memfd(kBytes, 0);
  Result<Mapping> mapped = Mapping::map(memfd.get(), kBytes, "a test");
  ASSERT_TRUE(mapped.is_ok());
  ASSERT_EQ(::ftruncate(memfd.get(), 0), 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      auto* byte = reinterpret_cast<volatile char*>(mapped.value().data() + i * 4096);
      *byte = static_cast<char>(*byte + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(mapped.value().is_lost());
}

TEST(GuardSlot, HasOnlyRangesThatWereSet) {
  constexpr GuardSlot::Range kLarge{0x10000, 0x100000};
  constexpr GuardSlot::Range kSmall{0x80000, 0x1000};
  GuardSlot slot;
  std::atomic<bool> has_ended{false};
  std::thread writer([&] {
    for (int i = 0; i < 1'000'000; ++i) {
      for (const GuardSlot::Range range : {kLarge, kSmall, GuardSlot::Range{}}) slot.set(range);
    }
    slot.set(kLarge);
    has_ended = true;
  });
  // The first address is in both ranges. The second is in the large range alone, but also in the
  // range that the small one's begin and the large one's bytes would make.
  int found = 0;
  int torn = 0;
  while (!has_ended || found == 0) {
    for (const uintptr_t address : {uintptr_t{0x80800}, uintptr_t{0x90000}}) {
      const GuardSlot::Range range = slot.range_with(address);
      const auto is = [&](GuardSlot::Range other) {
        return range.begin == other.begin && range.bytes == other.bytes;
      };
      if (range.bytes > 0) ++found;
      if (!is(kLarge) && !is({}) && (address == 0x90000 || !is(kSmall))) ++torn;
    }
  }
  writer.join();
  EXPECT_EQ(torn, 0) << "of " << found;
}

TEST_F(GuardTest, SlotsAreReusedAndBounded) {
  UniqueFd memfd = make_memfd(4096, 0);
  std::vector<std::byte> memory(64);
  std::vector<GuardedRange> ranges;
  Result<GuardedRange> range = GuardedRange::guard(memory.data(), 64);
  while (range.is_ok()) {
    ranges.push_back(std::move(range).value());
    range = GuardedRange::guard(memory.data(), 64);
  }
  EXPECT_EQ(range.status().code(), Code::kResourceExhausted);
  EXPECT_LE(ranges.size(), static_cast<size_t>(kMaxGuardedRanges));
  Result<Mapping> refused = Mapping::map(memfd.get(), 4096, "one too many");
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  ranges.pop_back();
  EXPECT_TRUE(Mapping::map(memfd.get(), 4096, "one that fits").is_ok());
}

using GuardDeathTest = GuardTest;

TEST_F(GuardDeathTest, FaultElsewhereKeepsItsDefaultAction) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        UniqueFd memfd = make_memfd(4096, 0);
        void* data = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, memfd.get(), 0);
        bool installed = install_sigbus_guard().is_ok() && ::ftruncate(memfd.get(), 0) == 0;
        if (installed) [[maybe_unused]]
          char byte = *static_cast<volatile char*>(data);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(GuardDeathTest, SignalFromAProcessKeepsItsDefaultAction) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        if (install_sigbus_guard().is_ok()) ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

// The seals keep a client from doing this to an arena; a full memory cgroup does the same. The test
// maps a file that ends early over the daemon's own mapping of the arena.
TEST_F(SessionTest, SessionWithLostMemoryIsFailed) {
  start_server();
  auto client = attach(4);
  auto other = attach(5);
  uint32_t arena = add_arena(*client, kBytes);
  rueda_abi_submission record{};
  record.tensor_id = intern(*client, make_tensor("grad", {4}));
  record.input_arena = record.output_arena = arena;
  client->push(record);
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  UniqueFd empty = make_memfd(0);
  std::byte* data = events_.submissions[0].input.data;
  ASSERT_EQ(::mmap(data, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty.get(), 0),
            data);
  EXPECT_EQ(std::byte{*const_cast<volatile std::byte*>(data)}, std::byte{0});
  EXPECT_TRUE(events_.submissions[0].input.arena->is_lost());
  pump_until_lost("rank 4 ");
  EXPECT_THAT(events_.lost[0].message(), ::testing::HasSubstr("lost its memory"));
  EXPECT_EQ(server_->stats().sessions, 1u);
}

TEST_F(SessionTest, CompletionOverLostMemoryIsNotDelivered) {
  start_server();
  auto client = attach(4);
  rueda_abi_submission record{};
  record.input_arena = record.output_arena = add_arena(*client, kBytes);
  record.tensor_id = intern(*client, make_tensor("grad", {4}));
  client->push(record);
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  UniqueFd empty = make_memfd(0);
  std::byte* data = events_.submissions[0].input.data;
  ASSERT_EQ(::mmap(data, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty.get(), 0),
            data);
  *const_cast<volatile std::byte*>(data) = std::byte{1};
  events_.sessions[0]->complete(Ticket(0), Status::ok(), Epoch(1), 1, Seq(1));
  EXPECT_EQ(client->completions.header().tail, 0u);
  pump_until_lost("lost its memory");
}

}  // namespace
}  // namespace rueda::session
