// Tests how owners share the loop of sessions. They count records, and no time.
#include <atomic>
#include <map>

#include <unistd.h>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kRecordsPerTurn = 1024;
constexpr int kRecordsPerPop = 64;
// Fewer than a session takes without a look at the clock.
constexpr int kFew = 60;

class SessionTurnsTest : public SessionTest {
 protected:
  // Attaches a process of the user that is to submit records of one tensor.
  struct Trainer {
    std::unique_ptr<RawClient> client;
    rueda_abi_submission record{};
  };
  Trainer train(int rank, uid_t user) {
    Trainer trainer;
    // What the kernel tells of a client is what it was when it connected.
    EXPECT_EQ(::seteuid(user), 0);
    trainer.client = std::make_unique<RawClient>(path_);
    EXPECT_EQ(::seteuid(0), 0);
    trainer.client->send_attach(rank);
    RawMessage reply = receive(*trainer.client);
    trainer.client->adopt(reply);
    trainer.record.input_arena = trainer.record.output_arena = add_arena(*trainer.client, 16384);
    trainer.record.output_offset = 8192;
    trainer.record.tensor_id = intern(*trainer.client, make_tensor("grad", {1024}));
    return trainer;
  }
  static void submit(Trainer& trainer, int records) {
    for (int i = 0; i < records; ++i) {
      ++trainer.record.ticket;
      trainer.client->push(trainer.record);
    }
  }
  void run_until_taken(uid_t user, int records) {
    pump_until([&] { return taken_[user] >= records; }, "the records");
  }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can play another user";
    start_server(512);
    events_.during_submit = [this](Session& session) { ++taken_[session.attach().peer.uid]; };
  }

  std::map<uid_t, int> taken_;
};

// The twelve once had a turn each before the one had any.
TEST_F(SessionTurnsTest, AUserOfManyProcessesHasNoMoreThanAUserOfOne) {
  std::vector<Trainer> many;
  for (int rank = 0; rank < 12; ++rank) many.push_back(train(rank, 0));
  Trainer one = train(12, kNobody);
  for (Trainer& trainer : many) submit(trainer, 400);
  submit(one, kFew);
  run_until_taken(kNobody, kFew);
  EXPECT_LE(taken_[0], kRecordsPerTurn + kRecordsPerPop);
  run_until_taken(0, 12 * 400);
  EXPECT_EQ(taken_[kNobody], kFew);
  EXPECT_TRUE(events_.lost.empty());
}

// While rings are looked at, too.
TEST_F(SessionTurnsTest, AUserOfManyWatchedRingsHasNoMoreThanAUserOfOne) {
  std::vector<Trainer> many;
  for (int rank = 0; rank < 12; ++rank) many.push_back(train(rank, 0));
  Trainer one = train(12, kNobody);
  server_->watch();
  for (Trainer& trainer : many) submit(trainer, 1);
  submit(one, 1);
  run_until_taken(kNobody, 1);
  run_until_taken(0, 12);
  loop_.restart();
  loop_.poll();
  taken_.clear();
  for (Trainer& trainer : many) submit(trainer, 400);
  submit(one, kFew);
  EXPECT_TRUE(server_->look());
  EXPECT_EQ(taken_[kNobody], kFew);
  EXPECT_LE(taken_[0], kRecordsPerTurn + kRecordsPerPop);
  // Whoever waits for a turn is not looked at until it has come.
  EXPECT_FALSE(server_->look());
  server_->rest();
  run_until_taken(0, 12 * 400);
  for (const Trainer& trainer : many) {
    const auto must_ring = [&] {
      return std::atomic_ref(trainer.client->submissions.header().consumer_waiting).load() != 0;
    };
    pump_until(must_ring, "the end of the watch");
  }
}

// A message costs as much as 16 records.
TEST_F(SessionTurnsTest, MessagesCountAsWell) {
  std::vector<Trainer> many;
  for (int rank = 0; rank < 4; ++rank) many.push_back(train(rank, 0));
  Trainer one = train(4, kNobody);
  const auto ask = [](Trainer& trainer) {
    for (int i = 0; i < 64; ++i) {
      trainer.client->send(RUEDA_ABI_ASK_NONFINITE, nullptr, 0);
    }
  };
  for (Trainer& trainer : many) ask(trainer);
  submit(one, 1);
  run_until_taken(kNobody, 1);
  EXPECT_LE(events_.asking.size(), 64u + 1);
  pump_until([&] { return events_.asking.size() == 4 * 64u; }, "the messages");
}

}  // namespace
}  // namespace rueda::session
