// Tests the way back: completions, their doorbell, and clients that misuse them.
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

class CompletionTest : public SessionTest {
 protected:
  void start(uint32_t ring_capacity) {
    start_server(ring_capacity);
    client_ = attach();
    rueda_abi_intern barrier = make_tensor("barrier", {});
    barrier.kind = 2;
    tensor_ = intern(*client_, barrier);
  }
  void submit(uint64_t ticket) {
    rueda_abi_submission record{};
    record.ticket = ticket;
    record.tensor_id = tensor_;
    client_->push(record);
    size_t wanted = events_.submissions.size() + 1;
    pump_until([&] { return events_.submissions.size() == wanted; }, "the submission");
  }
  void complete(uint64_t ticket, const Status& status = Status::ok()) {
    events_.sessions[0]->complete(Ticket(ticket), status, Epoch(2), 3, Seq(4));
  }

  std::unique_ptr<RawClient> client_;
  uint32_t tensor_ = 0;
};

TEST_F(CompletionTest, CarriesTheEndAndItsText) {
  start(4);
  submit(10);
  submit(11);
  complete(10);
  complete(11, Status(Code::kMismatch, "tensor 'x' differs"));
  const RawRing& ring = client_->completions;
  EXPECT_EQ(ring.header().tail, 0u) << "shown before the flush";
  events_.sessions[0]->flush();
  EXPECT_EQ(ring.header().tail, 2u);
  const auto& good = ring.record<rueda_abi_completion>(0);
  EXPECT_EQ(good.ticket, 10u);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.epoch, 2u);
  EXPECT_EQ(good.contributors, 3u);
  EXPECT_EQ(good.seq, 4u);
  EXPECT_EQ(good.text_bytes, 0u);
  const auto& bad = ring.record<rueda_abi_completion>(1);
  EXPECT_EQ(bad.code, -2);
  const auto* texts = reinterpret_cast<const char*>(&ring.record<rueda_abi_completion>(4));
  EXPECT_EQ(std::string(texts + RUEDA_ABI_TEXT_BYTES, bad.text_bytes), "tensor 'x' differs");
}

// A client that never sleeps does not look at its socket otherwise.
TEST_F(CompletionTest, SaysOnceThatThereIsNews) {
  start(4);
  for (uint64_t ticket : {1, 2, 3}) submit(ticket);
  complete(1);
  const NonfiniteNews news{Rank{7}, 5, 17, 2, 3, "w", "rank 7 gave -infinity"};
  events_.sessions[0]->nonfinite(&news);
  complete(2);
  complete(3);
  events_.sessions[0]->flush();
  const auto flags = [&](uint64_t i) {
    return client_->completions.record<rueda_abi_completion>(i).flags;
  };
  EXPECT_EQ(flags(0), 0u);
  EXPECT_EQ(flags(1), RUEDA_ABI_FLAG_NEWS);
  EXPECT_EQ(flags(2), 0u);
  const RawMessage message = receive(*client_);
  ASSERT_EQ(message.header.type, RUEDA_ABI_NONFINITE);
  const auto told = message.as<rueda_abi_nonfinite>();
  EXPECT_EQ(told.is_found, 1u);
  EXPECT_EQ(told.rank, 7);
  EXPECT_EQ(told.step, 5u);
  EXPECT_EQ(told.element, 17u);
  EXPECT_EQ(told.value, 2u);
  EXPECT_EQ(told.process_set, 3u);
  EXPECT_STREQ(told.tensor, "w");
  EXPECT_STREQ(told.text, "rank 7 gave -infinity");
}

TEST_F(CompletionTest, AQuestionReachesTheEngineAndIsAnswered) {
  start(4);
  client_->send(RUEDA_ABI_ASK_NONFINITE, nullptr, 0);
  pump_until([&] { return !events_.asking.empty(); }, "the question");
  EXPECT_EQ(events_.asking[0], events_.sessions[0]);
  events_.sessions[0]->nonfinite(nullptr);
  const RawMessage message = receive(*client_);
  ASSERT_EQ(message.header.type, RUEDA_ABI_NONFINITE);
  EXPECT_EQ(message.as<rueda_abi_nonfinite>().is_found, 0u);
}

TEST_F(CompletionTest, RingsOnceForManyAndOnlyAWaiter) {
  start(4);
  for (uint64_t ticket : {1, 2, 3}) submit(ticket);
  Session& session = *events_.sessions[0];
  complete(1);
  session.flush();
  EXPECT_FALSE(client_->take_ring());
  client_->completions.header().consumer_waiting = 1;
  session.flush();
  EXPECT_FALSE(client_->take_ring()) << "nothing was completed since the last flush";
  complete(2);
  complete(3);
  EXPECT_FALSE(client_->take_ring());
  session.flush();
  EXPECT_TRUE(client_->take_ring());
  EXPECT_FALSE(client_->take_ring());
  EXPECT_EQ(client_->completions.header().consumer_waiting, 0u);
}

TEST_F(CompletionTest, FullRingEndsTheSessionFromTheLoop) {
  start(2);
  for (uint64_t ticket : {1, 2, 3}) {
    submit(ticket);
    complete(ticket);
  }
  EXPECT_TRUE(events_.lost.empty()) << "no event from inside complete()";
  pump_until_lost("does not take its completions");
}

TEST_F(CompletionTest, ImpossibleIndexEndsTheSession) {
  start(2);
  submit(1);
  client_->completions.header().head = 1;
  complete(1);
  pump_until_lost("impossible index into its completion ring");
}

TEST_F(CompletionTest, LateCompletionsOfALostSessionAreNothing) {
  start(4);
  submit(1);
  submit(1'000'000);
  client_->submissions.header().tail = 1000;
  client_->ring_daemon();
  Session& session = *events_.sessions[0];
  events_.during_submit = nullptr;
  loop_.run_one();
  complete(1);
  session.flush();
  pump_until_lost("impossible index");
  EXPECT_EQ(client_->completions.header().tail, 0u);
}

// A client owns its end of the doorbells, and may do to it what it likes.
TEST_F(CompletionTest, HostileDoorbellsDoNotBlockTheDaemon) {
  start(1024);
  for (int fd : {client_->client_doorbell.get(), client_->daemon_doorbell.get()}) {
    ASSERT_EQ(::fcntl(fd, F_SETFL, 0), 0);
  }
  // The rings are far more than the socket holds, and none of them is read.
  for (uint64_t ticket = 0; ticket < 1000; ++ticket) {
    submit(ticket);
    complete(ticket);
    client_->completions.header().consumer_waiting = 1;
    client_->completions.header().head = client_->completions.header().tail;
    events_.sessions[0]->flush();
  }
  // The counter goes up and is emptied by the client itself before the daemon looks; the daemon's
  // read must not wait for more.
  client_->ring_daemon();
  uint64_t value = 0;
  ASSERT_EQ(::read(client_->daemon_doorbell.get(), &value, sizeof(value)), 8);
  loop_.restart();
  loop_.poll();
  client_->client_doorbell.reset();
  submit(5000);
  complete(5000);
  client_->completions.header().consumer_waiting = 1;
  events_.sessions[0]->flush();
  EXPECT_TRUE(events_.lost.empty());
  submit(5001);
}

}  // namespace
}  // namespace rueda::session
