#include "client/src/wire/rings.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rueda::client {
namespace {

constexpr uint32_t kCapacity = 8;

// Holds a ring's memfd and the other side's view of it.
class OtherSide {
 public:
  explicit OtherSide(size_t bytes, bool seals = true)
      : memfd(::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    EXPECT_EQ(::ftruncate(memfd.get(), static_cast<off_t>(bytes)), 0);
    if (seals) {
      EXPECT_EQ(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    data_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0));
  }
  ~OtherSide() { ::munmap(data_, bytes_); }

  static OtherSide submissions() {
    return OtherSide(RUEDA_ABI_RING_HEADER_BYTES + kCapacity * sizeof(rueda_abi_submission));
  }
  static OtherSide completions() {
    return OtherSide(RUEDA_ABI_RING_HEADER_BYTES +
                     kCapacity * (sizeof(rueda_abi_completion) + RUEDA_ABI_TEXT_BYTES));
  }

  rueda_abi_ring& header() { return *reinterpret_cast<rueda_abi_ring*>(data_); }
  template <class Record>
  Record& record(size_t index) {
    return reinterpret_cast<Record*>(data_ + RUEDA_ABI_RING_HEADER_BYTES)[index];
  }
  char* text(size_t index) {
    return reinterpret_cast<char*>(data_) + RUEDA_ABI_RING_HEADER_BYTES +
           kCapacity * sizeof(rueda_abi_completion) + index * RUEDA_ABI_TEXT_BYTES;
  }

  // Returns where the ring itself has mapped the memfd: the thread sanitizer sees only races within
  // one mapping.
  std::byte* mapping_of_the_ring() {
    struct stat file {};
    EXPECT_EQ(::fstat(memfd.get(), &file), 0);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::string range, rights, offset, device;
      uint64_t inode = 0;
      std::istringstream(line) >> range >> rights >> offset >> device >> inode;
      auto* const begin = reinterpret_cast<std::byte*>(std::stoull(range, nullptr, 16));
      if (inode == file.st_ino && line.find("memfd:ring") != line.npos && begin != data_) {
        return begin;
      }
    }
    ADD_FAILURE() << "the ring is not mapped";
    return data_;
  }

  UniqueFd memfd;

 private:
  size_t bytes_;
  std::byte* data_;
};

TEST(RingsTest, RefusesRingsThatCouldFault) {
  OtherSide unsealed(1 << 20, false);
  EXPECT_EQ(SubmissionRing::map(unsealed.memfd, kCapacity).status().code(), Code::kInternal);
  OtherSide short_ring(RUEDA_ABI_RING_HEADER_BYTES + 64);
  EXPECT_EQ(SubmissionRing::map(short_ring.memfd, kCapacity).status().code(), Code::kInternal);
  EXPECT_EQ(CompletionRing::map(short_ring.memfd, kCapacity).status().code(), Code::kInternal);
  OtherSide ring = OtherSide::submissions();
  for (uint32_t capacity : {0u, 3u, 1u << 21}) {
    EXPECT_EQ(SubmissionRing::map(ring.memfd, capacity).status().code(), Code::kInternal);
  }
}

TEST(RingsTest, SubmissionsComeOutInOrderAndStopWhenFull) {
  OtherSide other = OtherSide::submissions();
  SubmissionRing ring = SubmissionRing::map(other.memfd, kCapacity).value();
  rueda_abi_submission record{};
  for (uint64_t i = 0; i < kCapacity; ++i) {
    record.ticket = i;
    EXPECT_TRUE(ring.push(record, record.ticket));
  }
  EXPECT_FALSE(ring.push(record, record.ticket));
  EXPECT_EQ(other.header().tail, kCapacity);
  EXPECT_EQ(other.record<rueda_abi_submission>(5).ticket, 5u);
  other.header().head = 1;
  record.ticket = 99;
  EXPECT_TRUE(ring.push(record, record.ticket));
  EXPECT_EQ(other.record<rueda_abi_submission>(0).ticket, 99u);
  EXPECT_FALSE(ring.push(record, record.ticket));
  other.header().head = 1000;
  EXPECT_FALSE(ring.push(record, record.ticket)) << "a head beyond the tail";
}

TEST(RingsTest, WakesASleeperOnce) {
  OtherSide other = OtherSide::submissions();
  SubmissionRing ring = SubmissionRing::map(other.memfd, kCapacity).value();
  EXPECT_FALSE(ring.take_wakeup());
  other.header().consumer_waiting = 1;
  EXPECT_TRUE(ring.take_wakeup());
  EXPECT_FALSE(ring.take_wakeup());
}

TEST(RingsTest, ClipsTextsAndSeesDamage) {
  OtherSide other = OtherSide::completions();
  CompletionRing ring = CompletionRing::map(other.memfd, kCapacity).value();
  std::vector<std::pair<uint64_t, std::string>> seen;
  const auto pop_all = [&] {
    return ring.pop_all([&](const rueda_abi_completion& record, std::string_view text) {
      EXPECT_EQ(other.header().head, 0u) << "places are given back together";
      seen.emplace_back(record.ticket, text);
    });
  };
  EXPECT_EQ(pop_all(), CompletionRing::Pop::kEmpty);
  other.record<rueda_abi_completion>(0).ticket = 7;
  other.record<rueda_abi_completion>(0).text_bytes = 0xffffffff;
  std::memset(other.text(0), 'x', RUEDA_ABI_TEXT_BYTES);
  other.record<rueda_abi_completion>(1).ticket = 8;
  other.header().tail = 2;
  ASSERT_EQ(pop_all(), CompletionRing::Pop::kRecord);
  EXPECT_EQ(seen, (std::vector<std::pair<uint64_t, std::string>>{
                      {7, std::string(RUEDA_ABI_TEXT_BYTES, 'x')}, {8, ""}}));
  EXPECT_EQ(other.header().head, 2u);
  other.header().tail = 2 + kCapacity + 1;
  EXPECT_EQ(pop_all(), CompletionRing::Pop::kCorrupt);
  other.header().tail = 0;
  EXPECT_EQ(pop_all(), CompletionRing::Pop::kCorrupt);
}

TEST(RingsTest, DoesNotSleepOnAFullRing) {
  OtherSide other = OtherSide::completions();
  CompletionRing ring = CompletionRing::map(other.memfd, kCapacity).value();
  EXPECT_TRUE(ring.announce_sleep());
  EXPECT_EQ(other.header().consumer_waiting, 1u);
  ring.awake();
  EXPECT_EQ(other.header().consumer_waiting, 0u);
  other.header().tail = 1;
  EXPECT_FALSE(ring.announce_sleep());
  EXPECT_EQ(other.header().consumer_waiting, 0u);
}

// Two threads use one mapping, because ThreadSanitizer sees only races within one mapping. Records
// must arrive whole and in order.
TEST(RingsTest, TwoThreadsKeepTheOrderOfSubmissions) {
  constexpr uint64_t kRecords = 20'000;
  OtherSide other = OtherSide::submissions();
  SubmissionRing ring = SubmissionRing::map(other.memfd, kCapacity).value();
  std::thread consumer([&] {
    std::byte* const mapping = other.mapping_of_the_ring();
    auto& header = *reinterpret_cast<rueda_abi_ring*>(mapping);
    const auto* records =
        reinterpret_cast<rueda_abi_submission*>(mapping + RUEDA_ABI_RING_HEADER_BYTES);
    std::atomic_ref<uint64_t> head(header.head), tail(header.tail);
    for (uint64_t i = 0; i < kRecords; ++i) {
      while (tail.load(std::memory_order_acquire) == i) std::this_thread::yield();
      const rueda_abi_submission record = records[i % kCapacity];
      ASSERT_EQ(record.ticket, i);
      ASSERT_EQ(record.input_offset, i * 3);
      head.store(i + 1, std::memory_order_release);
    }
  });
  for (uint64_t i = 0; i < kRecords; ++i) {
    rueda_abi_submission record{};
    record.ticket = i;
    record.input_offset = i * 3;
    while (!ring.push(record, record.ticket)) std::this_thread::yield();
  }
  consumer.join();
}

TEST(RingsTest, TwoThreadsKeepTheOrderOfCompletions) {
  constexpr uint64_t kRecords = 20'000;
  OtherSide other = OtherSide::completions();
  CompletionRing ring = CompletionRing::map(other.memfd, kCapacity).value();
  std::thread producer([&] {
    std::byte* const mapping = other.mapping_of_the_ring();
    auto& header = *reinterpret_cast<rueda_abi_ring*>(mapping);
    auto* records = reinterpret_cast<rueda_abi_completion*>(mapping + RUEDA_ABI_RING_HEADER_BYTES);
    std::atomic_ref<uint64_t> head(header.head), tail(header.tail);
    for (uint64_t i = 0; i < kRecords; ++i) {
      while (i - head.load(std::memory_order_acquire) == kCapacity) std::this_thread::yield();
      records[i % kCapacity] = {};
      records[i % kCapacity].ticket = i;
      tail.store(i + 1, std::memory_order_release);
    }
  });
  for (uint64_t i = 0; i < kRecords;) {
    ring.pop_all([&](const rueda_abi_completion& record, std::string_view) {
      EXPECT_EQ(record.ticket, i);
      ++i;
    });
    std::this_thread::yield();
  }
  producer.join();
}

}  // namespace
}  // namespace rueda::client
