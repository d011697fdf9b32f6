// Tests submission rings that are looked at instead of waiting for doorbells.
#include <atomic>
#include <filesystem>
#include <fstream>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

class WatchTest : public SessionTest {
 protected:
  struct Trainer {
    std::unique_ptr<RawClient> client;
    rueda_abi_submission record{};

    // Returns what the daemon says of itself in the ring.
    bool must_ring() const {
      return std::atomic_ref(client->submissions.header().consumer_waiting).load() != 0;
    }
    void submit() {
      ++record.ticket;
      client->push(record);
    }
  };

  Trainer train(int rank) {
    Trainer trainer;
    trainer.client = attach(rank);
    trainer.record.input_arena = trainer.record.output_arena = add_arena(*trainer.client, 16384);
    trainer.record.output_offset = 8192;
    trainer.record.tensor_id = intern(*trainer.client, make_tensor("grad", {1024}));
    return trainer;
  }
  // Puts the client under watch: its first submission rings, and from then on nobody needs to.
  void watch(Trainer& trainer) {
    const size_t before = events_.submissions.size();
    server_->watch();
    EXPECT_TRUE(trainer.must_ring());
    trainer.submit();
    pump_until([&] { return events_.submissions.size() == before + 1; }, "the first submission");
    EXPECT_FALSE(trainer.must_ring());
  }
};

// Each move, and each ring, was once looked at, by a loop that did little else.
TEST_F(WatchTest, WhoOnlyMovesWhatItWaitsForIsLookedAtNowAndThen) {
  start_server();
  Trainer trainer = train(0);
  trainer.submit();
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  const auto began = std::chrono::steady_clock::now();
  std::atomic_ref waits_for(trainer.client->submissions.header().producer_waits_for);
  for (uint64_t ticket = 1; ticket <= 20'000; ++ticket) {
    waits_for.store(ticket);
    trainer.client->ring_daemon();
    loop_.restart();
    loop_.poll();
  }
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(events_.waiting.size(), 20u + took / std::chrono::microseconds(100));
  // The last ticket that the client waits for is known all the same, and a record is taken.
  pump_until([&] { return events_.waiting.back() == Ticket{20'000}; }, "the last one");
  trainer.submit();
  pump_until([&] { return events_.submissions.size() == 2; }, "the next submission");
}

// Returns the number of descriptors that wake this process's loops, as the kernel has them.
size_t heard_descriptors() {
  size_t heard = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) heard += line.starts_with("tfd:");
  }
  return heard;
}

// The kernel wakes a loop for each ring at a doorbell in its reactor, awaited or not: once 128,000
// times a second, which took half a core from others.
TEST_F(WatchTest, WhoOnlyRingsWakesNobodyDuringAPause) {
  start_server();
  Trainer trainer = train(0);
  trainer.submit();
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  const size_t heard = heard_descriptors();
  bool was_unheard = false;
  for (int i = 0; i < 10'000 && !was_unheard; ++i) {
    trainer.client->ring_daemon();
    loop_.restart();
    loop_.poll();
    was_unheard = heard_descriptors() == heard - 1;
  }
  EXPECT_TRUE(was_unheard);
  trainer.submit();
  pump_until([&] { return events_.submissions.size() == 2; }, "the next submission");
  pump_until([&] { return heard_descriptors() == heard; }, "the end of the pause");
}

// A client may also go while nobody listens to it.
TEST_F(WatchTest, WhoGoesDuringAPauseLeavesNoDescriptor) {
  start_server();
  const size_t heard = heard_descriptors();
  {
    Trainer trainer = train(0);
    trainer.submit();
    pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
    for (int i = 0; i < 1000; ++i) {
      trainer.client->ring_daemon();
      loop_.restart();
      loop_.poll();
    }
    trainer.client->close();
    pump_until([&] { return events_.lost.size() == 1; }, "the loss");
  }
  pump_until([&] { return heard_descriptors() == heard; }, "the end of the session");
}

TEST_F(WatchTest, NobodyRingsWhileRingsAreWatched) {
  start_server();
  Trainer trainer = train(0);
  watch(trainer);
  EXPECT_FALSE(server_->look());
  for (size_t count = 2; count < 10; ++count) {
    trainer.submit();
    EXPECT_TRUE(server_->look());
    EXPECT_EQ(events_.submissions.size(), count);
    EXPECT_EQ(events_.drained, static_cast<int>(count));
    EXPECT_FALSE(trainer.must_ring());
    EXPECT_FALSE(server_->look());
  }
  server_->rest();
  EXPECT_TRUE(trainer.must_ring());
  trainer.submit();
  pump_until([&] { return events_.submissions.size() == 10; }, "a submission that rings");
}

TEST_F(WatchTest, WhatComesBeforeTheRestIsTakenIn) {
  start_server();
  Trainer trainer = train(0);
  watch(trainer);
  trainer.submit();
  server_->rest();
  EXPECT_EQ(events_.submissions.size(), 2u);
  EXPECT_TRUE(trainer.must_ring());
}

TEST_F(WatchTest, AClientThatGoesToSleepIsNoticed) {
  start_server();
  Trainer trainer = train(0);
  watch(trainer);
  std::atomic_ref(trainer.client->submissions.header().producer_waits_for).store(1);
  EXPECT_TRUE(server_->look());
  ASSERT_EQ(events_.waiting.size(), 1u);
  EXPECT_EQ(events_.waiting[0], Ticket(1));
  EXPECT_FALSE(server_->look());
}

TEST_F(WatchTest, AClientMayGoWhileItIsWatched) {
  start_server();
  Trainer trainer = train(0);
  Trainer other = train(1);
  watch(trainer);
  watch(other);
  trainer.client->close();
  pump_until([&] { return events_.lost.size() == 1; }, "the loss");
  other.submit();
  EXPECT_TRUE(server_->look());
  EXPECT_EQ(events_.submissions.size(), 3u);
  server_->rest();
  EXPECT_TRUE(other.must_ring());
}

TEST_F(WatchTest, OneThatIsLookedAtMayDropTheOthers) {
  start_server();
  Trainer first = train(0);
  Trainer second = train(1);
  watch(first);
  watch(second);
  events_.during_submit = [this](Session& session) {
    for (Session* other : events_.sessions) {
      if (other != &session) other->drop();
    }
  };
  first.submit();
  second.submit();
  EXPECT_TRUE(server_->look());
  EXPECT_EQ(events_.submissions.size(), 3u);
  server_->rest();
  EXPECT_EQ(server_->stats().sessions, 1u);
}

TEST_F(WatchTest, ARingThatIsDamagedEndsItsSession) {
  start_server();
  Trainer trainer = train(0);
  watch(trainer);
  std::atomic_ref(trainer.client->submissions.header().tail).store(1000);
  EXPECT_TRUE(server_->look());
  pump_until_lost("impossible index");
  EXPECT_FALSE(server_->look());
  server_->rest();
}

}  // namespace
}  // namespace rueda::session
