#include "daemon/engine/channels/send_scheduler.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

struct Written {
  uint32_t slot;
  uint64_t cookie;
  size_t buffers;
  bool operator==(const Written&) const = default;
};

// Records what is written, and checks that the outbox keeps the channel's rule: no write into a
// busy slot.
class RecordingChannel final : public transport::SendChannel {
 public:
  bool slot_free(uint32_t slot) const override { return !busy_.contains(slot); }
  void write(const transport::FrameHeader& header, std::span<const transport::SendBuffer> buffers,
             uint64_t cookie) override {
    EXPECT_TRUE(busy_.insert(header.slot).second) << "slot " << header.slot << " is busy";
    written.push_back({header.slot, cookie, buffers.size()});
  }
  void close() override {}
  uint64_t bytes_sent() const override { return 0; }

  void free(uint32_t slot, SendScheduler& outbox) {
    EXPECT_EQ(busy_.erase(slot), 1u);
    outbox.on_slot_free(slot);
  }
  std::vector<Written> written;

 private:
  std::set<uint32_t> busy_;
};

class SendSchedulerTest : public ::testing::Test {
 protected:
  SendSchedulerTest() { outbox_.set_channel(&channel_); }
  void push(uint32_t cookie, uint32_t slot, size_t bytes = 8, uint32_t lane = 0,
            SendPriority urgency = {}) {
    transport::FrameHeader header;
    header.slot = slot;
    header.payload_bytes = static_cast<uint32_t>(bytes);
    outbox_.push(cookie, lane, urgency, header, {memory_.data(), bytes, {}});
  }

  std::array<std::byte, 64> memory_{};
  RecordingChannel channel_;
  SendScheduler outbox_{{.slots = 4, .cookies = 8, .lanes = 3}};
};

TEST_F(SendSchedulerTest, AFreeSlotIsWrittenAtOnce) {
  EXPECT_TRUE(outbox_.is_quiet());
  push(5, 2);
  EXPECT_EQ(channel_.written, (std::vector<Written>{{2, 5, 1}}));
  EXPECT_TRUE(outbox_.in_use(5));
  EXPECT_FALSE(outbox_.in_use(4));
  EXPECT_FALSE(outbox_.is_quiet());
}

TEST_F(SendSchedulerTest, EachSlotHasALineOfItsOwnFirstComeFirstServed) {
  for (const uint32_t cookie : {0u, 1u, 2u}) push(cookie, 3);
  push(3, 1);  // another slot does not wait for the busy one
  push(4, 3);
  ASSERT_EQ(channel_.written, (std::vector<Written>{{3, 0, 1}, {1, 3, 1}}));
  channel_.free(3, outbox_);
  channel_.free(3, outbox_);
  channel_.free(3, outbox_);
  EXPECT_EQ(channel_.written,
            (std::vector<Written>{{3, 0, 1}, {1, 3, 1}, {3, 1, 1}, {3, 2, 1}, {3, 4, 1}}));
}

TEST_F(SendSchedulerTest, ALineThatRanEmptyStartsAnew) {
  push(0, 0);
  push(1, 0);
  channel_.free(0, outbox_);
  channel_.free(0, outbox_);
  outbox_.on_sent(0);
  outbox_.on_sent(1);
  push(1, 0);
  push(0, 0);
  channel_.free(0, outbox_);
  EXPECT_EQ(channel_.written, (std::vector<Written>{{0, 0, 1}, {0, 1, 1}, {0, 1, 1}, {0, 0, 1}}));
}

// The buffer belongs to the caller again after on_sent, though the neighbour still holds the slot.
TEST_F(SendSchedulerTest, ACookieIsFreeOnceSentAndASlotOnceReleased) {
  push(0, 0);
  outbox_.on_sent(0);
  EXPECT_FALSE(outbox_.in_use(0));
  EXPECT_FALSE(outbox_.is_quiet());
  push(0, 0);  // this frame waits
  EXPECT_TRUE(outbox_.in_use(0));
  EXPECT_EQ(channel_.written.size(), 1u);
}

TEST_F(SendSchedulerTest, ItIsQuietWhenTheNeighbourHasFreedEverything) {
  push(0, 0);
  push(1, 0);
  push(2, 1);
  channel_.free(0, outbox_);
  channel_.free(1, outbox_);
  EXPECT_FALSE(outbox_.is_quiet());
  channel_.free(0, outbox_);
  EXPECT_TRUE(outbox_.is_quiet());
}

TEST_F(SendSchedulerTest, AFrameWithoutPayloadHasNoBuffer) {
  push(0, 0, 0);
  EXPECT_EQ(channel_.written, (std::vector<Written>{{0, 0, 0}}));
}

// The channel has room for one frame.
class OutboxOrder : public SendSchedulerTest {
 protected:
  OutboxOrder() { narrow_.set_channel(&channel_); }
  SendScheduler narrow_{{.slots = 16, .cookies = 16, .lanes = 3, .max_unsent_bytes = 1}};

  void queue(uint32_t cookie, uint32_t lane, SendPriority urgency) {
    transport::FrameHeader header;
    header.slot = cookie;
    narrow_.push(cookie, lane, urgency, header, {memory_.data(), 8, {}});
  }
  std::vector<uint64_t> send() {
    std::vector<uint64_t> order;
    for (size_t i = 0; i < channel_.written.size(); ++i) {
      order.push_back(channel_.written[i].cookie);
      narrow_.on_sent(static_cast<uint32_t>(order.back()));
    }
    return order;
  }
};

TEST_F(OutboxOrder, WhatWasSubmittedLastGoesFirst) {
  for (const uint32_t cookie : {0u, 1u}) queue(cookie, 0, {0, 1});
  for (const uint32_t cookie : {2u, 3u}) queue(cookie, 1, {0, 2});
  // The first frame was on its way before there was a choice.
  EXPECT_EQ(send(), (std::vector<uint64_t>{0, 2, 3, 1}));
}

TEST_F(OutboxOrder, UnlessTheClientSaysOtherwise) {
  for (const uint32_t cookie : {0u, 1u}) queue(cookie, 0, {0, 3});
  for (const uint32_t cookie : {2u, 3u}) queue(cookie, 1, {7, 1});
  for (const uint32_t cookie : {4u, 5u}) queue(cookie, 2, {-1, 4});
  EXPECT_EQ(send(), (std::vector<uint64_t>{0, 2, 3, 1, 4, 5}));
}

TEST_F(OutboxOrder, NobodyWaitsForEver) {
  queue(0, 0, {0, 1});
  queue(1, 0, {0, 1});
  for (uint32_t cookie = 2; cookie < 13; ++cookie) queue(cookie, 1, {0, 2});
  EXPECT_EQ(send(), (std::vector<uint64_t>{0, 2, 3, 4, 5, 6, 7, 8, 1, 9, 10, 11, 12}));
}

TEST_F(OutboxOrder, WhatFitsIntoTheChannelDoesNotWait) {
  for (uint32_t cookie = 0; cookie < 4; ++cookie) push(cookie, cookie, 8, cookie % 3, {0, cookie});
  EXPECT_EQ(channel_.written.size(), 4u);
}

using OutboxDeathTest = SendSchedulerTest;

TEST_F(OutboxDeathTest, ACookieIsNotUsedTwice) {
  push(0, 0);
  EXPECT_DEATH(push(0, 1), "in_use");
}

TEST_F(OutboxDeathTest, ASlotThatWasNotWrittenIsNotFreed) {
  EXPECT_DEATH(outbox_.on_slot_free(2), "busy");
}

}  // namespace
}  // namespace rueda::engine
