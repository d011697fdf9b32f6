#include "daemon/base/turns.h"

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace rueda {
namespace {

constexpr int64_t kQuantum = 100;

class TurnsTest : public ::testing::Test {
 protected:
  using Party = std::shared_ptr<Turns::Party>;

  // Always has more work, in pieces that cost so much, as a session whose client always submits.
  struct Greedy {
    Greedy(TurnsTest& owner, Party of, std::string as, int64_t each)
        : test(owner), party(std::move(of)), name(std::move(as)), cost(each) {}
    void go_on() {
      while (party->may_work()) {
        party->charge(cost);
        test.done_[name] += cost;
      }
      party->wait([this] { go_on(); });
    }
    TurnsTest& test;
    const Party party;
    const std::string name;
    const int64_t cost;
  };

  void run(int handlers) {
    loop_.restart();
    for (int i = 0; i < handlers; ++i) loop_.poll_one();
  }

  boost::asio::io_context loop_{1};
  Turns turns_{loop_, kQuantum, std::chrono::hours(1)};
  std::map<std::string, int64_t> done_;
};

TEST_F(TurnsTest, WhoIsAloneWorksAtOnce) {
  const Party alone = turns_.party("alone");
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(alone->may_work());
    alone->charge(kQuantum / 10);
  }
  EXPECT_FALSE(alone->may_work());
  bool had_turn = false;
  alone->wait([&] { had_turn = true; });
  run(1);
  EXPECT_TRUE(had_turn);
  EXPECT_TRUE(alone->may_work());
}

// One owner with 512 sessions had 512 times as much of the loop as another with one.
TEST_F(TurnsTest, AnOwnerOfManyHasNoMoreThanAnOwnerOfOne) {
  std::vector<std::unique_ptr<Greedy>> all;
  for (int i = 0; i < 512; ++i) {
    all.push_back(std::make_unique<Greedy>(*this, turns_.party("many"), "many", 7));
  }
  all.push_back(std::make_unique<Greedy>(*this, turns_.party("one"), "one", 7));
  for (const auto& each : all) each->go_on();
  run(2000);
  EXPECT_GT(done_["one"], 10 * kQuantum);
  EXPECT_NEAR(static_cast<double>(done_["many"]), static_cast<double>(done_["one"]),
              2.0 * kQuantum);
}

// A piece of work may cost more than is left; what it costs more is missing from the next turn.
TEST_F(TurnsTest, WhoseWorkComesInLargePiecesHasNoMore) {
  Greedy coarse(*this, turns_.party("coarse"), "coarse", 3 * kQuantum / 2);
  Greedy fine(*this, turns_.party("fine"), "fine", 1);
  coarse.go_on();
  fine.go_on();
  run(2000);
  EXPECT_GT(done_["fine"], 10 * kQuantum);
  EXPECT_NEAR(static_cast<double>(done_["coarse"]), static_cast<double>(done_["fine"]),
              3.0 * kQuantum);
}

TEST_F(TurnsTest, ATurnThatIsOverLeavesNothingForMoreWork) {
  const Party party = turns_.party("party");
  party->end_turn();
  EXPECT_FALSE(party->may_work());
  int turns = 0;
  for (int i = 0; i < 2; ++i) {
    party->wait([&] {
      ++turns;
      party->end_turn();
    });
  }
  run(1);
  EXPECT_EQ(turns, 1);
  run(1);
  EXPECT_EQ(turns, 2);
}

TEST_F(TurnsTest, LittleWorkThatTakesLongEndsATurn) {
  Turns turns(loop_, kQuantum, std::chrono::microseconds(0));
  const Party party = turns.party("party");
  party->charge(kQuantum);
  int done = 0;
  for (int i = 0; i < 3; ++i) party->wait([&] { ++done; });
  run(1);
  EXPECT_EQ(done, 1);
  run(2);
  EXPECT_EQ(done, 3);
}

TEST_F(TurnsTest, WorkThatThrowsKeepsNobodyFromItsTurn) {
  const Party bad = turns_.party("bad");
  const Party good = turns_.party("good");
  bad->charge(kQuantum);
  good->charge(kQuantum);
  int done = 0;
  bad->wait([] { throw std::runtime_error("it is broken"); });
  bad->wait([&] { ++done; });
  good->wait([&] { ++done; });
  loop_.restart();
  EXPECT_THROW(loop_.poll(), std::runtime_error);
  loop_.restart();
  loop_.poll();
  EXPECT_EQ(done, 2);
}

TEST_F(TurnsTest, APartyIsForgottenWithItsLastHolder) {
  Party party = turns_.party("party");
  EXPECT_EQ(turns_.party("party"), party);
  party->charge(kQuantum);
  EXPECT_FALSE(turns_.party("party")->may_work());
  party.reset();
  EXPECT_TRUE(turns_.party("party")->may_work());
}

TEST_F(TurnsTest, WorkThatWaitsIsDroppedAtTheEnd) {
  const auto held = std::make_shared<int>(0);
  {
    Turns turns(loop_, kQuantum, std::chrono::hours(1));
    const Party party = turns.party("party");
    party->charge(kQuantum);
    party->wait([party, held] { ++*held; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  run(1);
  EXPECT_EQ(*held, 0);
}

}  // namespace
}  // namespace rueda
