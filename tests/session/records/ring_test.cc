#include "daemon/session/records/ring.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::session {
namespace {

// Memory that is zeroed and aligned as a mapping would be.
struct Block {
  explicit Block(size_t bytes) : words(bytes / sizeof(Line) + 1) {}
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  std::byte* data() { return words[0].bytes.data(); }
  rueda_abi_ring& header() { return *reinterpret_cast<rueda_abi_ring*>(data()); }
  std::vector<Line> words;
};

void produce(Block& block, uint32_t capacity, uint64_t index, uint64_t ticket) {
  rueda_abi_submission record{};
  record.ticket = ticket;
  std::memcpy(block.data() + RUEDA_ABI_RING_HEADER_BYTES + index % capacity * sizeof(record),
              &record, sizeof(record));
  std::atomic_ref(block.header().tail).store(index + 1, std::memory_order_release);
}

TEST(SubmissionRing, PopsInOrderAndHandsPlacesBack) {
  Block block(submission_ring_bytes(4));
  SubmissionRing ring(block.data(), 4);
  std::array<rueda_abi_submission, 3> out;
  EXPECT_EQ(ring.pop(out), 0);
  for (uint64_t i = 0; i < 4; ++i) produce(block, 4, i, 100 + i);
  ASSERT_EQ(ring.pop(out), 3);
  EXPECT_EQ(out[2].ticket, 102u);
  EXPECT_EQ(block.header().head, 3u);
  ASSERT_EQ(ring.pop(out), 1);
  EXPECT_EQ(out[0].ticket, 103u);
  EXPECT_EQ(block.header().head, 4u);
}

TEST(SubmissionRing, ImpossibleTailIsBroken) {
  Block block(submission_ring_bytes(4));
  SubmissionRing ring(block.data(), 4);
  std::array<rueda_abi_submission, 8> out;
  for (uint64_t tail : {uint64_t{5}, ~uint64_t{0}, uint64_t{1} << 63}) {
    block.header().tail = tail;
    EXPECT_EQ(ring.pop(out), SubmissionRing::kBroken) << tail;
  }
  // The ring keeps an index of its own, so what the client writes over the shared head changes
  // nothing.
  block.header().tail = 1;
  block.header().head = 77;
  block.header().capacity = 0;
  EXPECT_EQ(ring.pop(out), 1);
  block.header().tail = 0;
  EXPECT_EQ(ring.pop(out), SubmissionRing::kBroken);
}

TEST(SubmissionRing, DoesNotSleepOnARecordThatCameMeanwhile) {
  Block block(submission_ring_bytes(4));
  SubmissionRing ring(block.data(), 4);
  EXPECT_TRUE(ring.prepare_to_sleep());
  EXPECT_EQ(block.header().consumer_waiting, 1u);
  produce(block, 4, 0, 1);
  EXPECT_FALSE(ring.prepare_to_sleep());
  EXPECT_EQ(block.header().consumer_waiting, 0u);
}

TEST(CompletionRing, FullBrokenAndTexts) {
  Block block(completion_ring_bytes(2));
  CompletionRing ring(block.data(), 2);
  rueda_abi_completion record{};
  record.ticket = 9;
  record.text_bytes = 12345;
  EXPECT_EQ(ring.push(record, "why"), CompletionRing::Push::kOk);
  // The 1024th byte is the first half of a character, and is left out.
  EXPECT_EQ(ring.push(record, std::string(1023, 'x') + "é"), CompletionRing::Push::kOk);
  EXPECT_EQ(ring.push(record, ""), CompletionRing::Push::kFull);
  auto* records =
      reinterpret_cast<rueda_abi_completion*>(block.data() + RUEDA_ABI_RING_HEADER_BYTES);
  const char* texts = reinterpret_cast<const char*>(records + 2);
  EXPECT_EQ(records[0].ticket, 9u);
  EXPECT_EQ(std::string(texts, records[0].text_bytes), "why");
  EXPECT_EQ(records[1].text_bytes, 1023u);
  EXPECT_EQ(std::string(texts + 1024, 1023), std::string(1023, 'x'));

  EXPECT_EQ(block.header().tail, 0u);
  ring.publish();
  EXPECT_EQ(block.header().tail, 2u);

  block.header().head = 1;
  EXPECT_EQ(ring.push(record, ""), CompletionRing::Push::kOk);
  block.header().head = 4;
  EXPECT_EQ(ring.push(record, ""), CompletionRing::Push::kBroken);
}

TEST(CompletionRing, WakesOnceAndOnlyAWaiter) {
  Block block(completion_ring_bytes(2));
  CompletionRing ring(block.data(), 2);
  EXPECT_FALSE(ring.publish());
  block.header().consumer_waiting = 1;
  EXPECT_TRUE(ring.publish());
  EXPECT_FALSE(ring.publish());
  block.header().consumer_waiting = 2;
  EXPECT_FALSE(ring.publish());
}

// Both protocols run with two threads on one mapping, where ThreadSanitizer sees them. A lost
// wake-up would leave the consumer waiting for a bell that never rings, and the test would hang.
constexpr uint64_t kRecords = 1'000'000;

struct Bell {
  std::atomic<uint32_t> rings{0};
  void ring() {
    rings.fetch_add(1);
    rings.notify_one();
  }
  void wait() {
    rings.wait(0);
    rings.store(0);
  }
};

TEST(SubmissionRing, MillionRecordsBetweenTwoThreads) {
  constexpr uint32_t kCapacity = 8192;
  Block block(submission_ring_bytes(kCapacity));
  SubmissionRing ring(block.data(), kCapacity);
  Bell bell;
  std::thread producer([&] {
    rueda_abi_ring& header = block.header();
    for (uint64_t i = 0; i < kRecords; ++i) {
      while (i - std::atomic_ref(header.head).load(std::memory_order_acquire) >= kCapacity) {
        std::this_thread::yield();
      }
      produce(block, kCapacity, i, i);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      uint32_t expected = 1;
      if (std::atomic_ref(header.consumer_waiting).compare_exchange_strong(expected, 0)) {
        bell.ring();
      }
    }
  });
  uint64_t next = 0;
  std::array<rueda_abi_submission, 64> out;
  while (next < kRecords) {
    int count = ring.pop(out);
    ASSERT_GE(count, 0);
    for (int i = 0; i < count; ++i) ASSERT_EQ(out[i].ticket, next++);
    if (count == 0 && ring.prepare_to_sleep()) bell.wait();
  }
  producer.join();
}

TEST(CompletionRing, MillionRecordsBetweenTwoThreads) {
  constexpr uint32_t kCapacity = 8192;
  Block block(completion_ring_bytes(kCapacity));
  CompletionRing ring(block.data(), kCapacity);
  Bell bell;
  std::thread consumer([&] {
    rueda_abi_ring& header = block.header();
    std::atomic_ref tail(header.tail);
    std::atomic_ref waiting(header.consumer_waiting);
    auto* records =
        reinterpret_cast<rueda_abi_completion*>(block.data() + RUEDA_ABI_RING_HEADER_BYTES);
    auto* texts = reinterpret_cast<const char*>(records + kCapacity);
    for (uint64_t i = 0; i < kRecords;) {
      if (tail.load(std::memory_order_acquire) == i) {
        waiting.store(1);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (tail.load() == i) bell.wait();
        waiting.store(0);
        continue;
      }
      ASSERT_EQ(records[i % kCapacity].ticket, i);
      ASSERT_EQ(texts[i % kCapacity * RUEDA_ABI_TEXT_BYTES], static_cast<char>('a' + i % 26));
      std::atomic_ref(header.head).store(++i, std::memory_order_release);
    }
  });
  for (uint64_t i = 0; i < kRecords; ++i) {
    rueda_abi_completion record{};
    record.ticket = i;
    std::string text(1, static_cast<char>('a' + i % 26));
    CompletionRing::Push pushed;
    while ((pushed = ring.push(record, text)) == CompletionRing::Push::kFull) {
      std::this_thread::yield();
    }
    ASSERT_EQ(pushed, CompletionRing::Push::kOk);
    const bool is_last_of_many = i % 5 == 4 || i + 1 == kRecords;
    if (is_last_of_many && ring.publish()) bell.ring();
  }
  consumer.join();
}

}  // namespace
}  // namespace rueda::session
