// Tests what a stranger who reaches the control port can do, and what not.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "daemon/service/links/arrivals.h"
#include "tests/service/daemons.h"

namespace rueda::service {
namespace {

using testing::Daemon;
using testing::leave_of;
using testing::RawPeer;

class StrangersTest : public ::testing::Test {
 protected:
  // Makes a stranger that says hello, and waits until it has been heard.
  std::unique_ptr<RawPeer> stranger(Daemon& daemon) {
    const size_t links = daemon.plane.peers().size();
    auto peer = std::make_unique<RawPeer>(daemon.address());
    peer->say_hello();
    EXPECT_TRUE(loop_.run_until([&] { return peer->hellos == 1; }));
    EXPECT_TRUE(loop_.run_until([&] { return daemon.is_up(daemon.plane.peers().size()); }))
        << links;
    return peer;
  }
  void expect_sent_away(Daemon& daemon, const v1::Hello& hello) {
    RawPeer peer(daemon.address());
    v1::LinkMessage message;
    *message.mutable_hello() = hello;
    peer.write(message);
    EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); })) << hello.ByteSizeLong();
    EXPECT_TRUE(loop_.run_until([&] { return daemon.plane.peers().empty(); }));
  }

  testing::Loop loop_;
};

TEST_F(StrangersTest, AHelloThatIsLargeOrNoLineIsNotKept) {
  Daemon a(loop_, "a");
  v1::Hello good;
  good.set_protocol_version(kProtocolVersion);
  good.set_node_id("n");
  good.set_nonce(std::string(kNonceBytes, 'n'));
  v1::Hello bad = good;
  bad.set_node_id(std::string(3 << 20, 'x'));
  expect_sent_away(a, bad);
  bad.set_node_id("a\n2026-11-26 forged");
  expect_sent_away(a, bad);
  bad.clear_node_id();
  expect_sent_away(a, bad);
  bad = good;
  bad.set_software_version("\x1b[2J");
  expect_sent_away(a, bad);
  bad = good;
  bad.set_nonce(std::string(kNonceBytes - 1, 'n'));
  expect_sent_away(a, bad);
  bad = good;
  bad.GetReflection()->MutableUnknownFields(&bad)->AddLengthDelimited(99, std::string(2'000, 'x'));
  expect_sent_away(a, bad);
  EXPECT_TRUE(a.events.lost.empty()) << "none was ever up";
}

// Streams were once opened faster than the loop ended them: they were queued, and took 1.6 GiB.
TEST(ArrivalsTest, WhoWaitsForTheLoopIsBoundedAndOneConnectionTakesNotAllPlaces) {
  const auto arrivals = std::make_shared<Arrivals>();
  std::vector<std::shared_ptr<void>> places;
  const auto enter = [&](const std::string& connection) {
    std::shared_ptr<void> place = arrivals->enter(connection);
    if (place) places.push_back(place);
    return place != nullptr;
  };
  for (size_t i = 0; i < Arrivals::kMaxOfAConnection; ++i) EXPECT_TRUE(enter("flood:1"));
  EXPECT_FALSE(enter("flood:1"));
  EXPECT_TRUE(enter("peer:1"));
  for (size_t i = 2; places.size() < Arrivals::kMost; ++i) {
    EXPECT_TRUE(enter("flood:" + std::to_string(i)));
  }
  EXPECT_FALSE(enter("peer:2"));
  places.erase(places.begin());
  EXPECT_TRUE(enter("peer:2"));
  EXPECT_FALSE(enter("peer:3"));
}

TEST_F(StrangersTest, HelloIsSaidOnce) {
  Daemon a(loop_, "a");
  const auto peer = stranger(a);
  peer->say_hello();
  EXPECT_TRUE(loop_.run_until([&] { return peer->closed.load(); }));
}

TEST_F(StrangersTest, WhatIsSaidOfAJobWithoutBeingInItIsDropped) {
  Daemon a(loop_, "a");
  const auto peer = stranger(a);
  const auto& dropped = a.metrics.daemon().unwanted_received;
  peer->say(leave_of("job", 1));
  ASSERT_TRUE(loop_.run_until([&] { return dropped.Value() == 1; }));
  a.bind("job");
  peer->say(leave_of("job", 2));
  peer->say(leave_of("other", 3));
  peer->say(leave_of("job", 4));
  ASSERT_TRUE(loop_.run_until([&] { return a.events.envelopes.size() == 2; }));
  EXPECT_EQ(std::get<core::Leave>(a.events.envelopes[1].second.message.body).rank, Rank{4});
  EXPECT_EQ(dropped.Value(), 2);
  for (const PeerSnapshot& one : a.plane.peers()) a.plane.unbind(one.link, "job");
  peer->say(leave_of("job", 5));
  ASSERT_TRUE(loop_.run_until([&] { return dropped.Value() == 3; }));
  EXPECT_FALSE(peer->closed) << "what comes late is no offence";
}

// All of a flood was once read, converted and queued to the loop, however much there was.
TEST_F(StrangersTest, AFloodIsReadNoFasterThanAStrangerMaySpeak) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const auto flooder = stranger(b);
  std::atomic<bool> over{false};
  std::thread flood([&] {
    while (!over && !flooder->closed) flooder->say(leave_of("nobody's", 1));
  });
  const engine::LinkId to_b = a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(2); }));
  b.bind("job");
  for (const PeerSnapshot& peer : b.plane.peers()) {
    if (peer.node_id == "raw") b.plane.unbind(peer.link, "job");
  }
  constexpr size_t kMany = 3'000;
  for (size_t i = 0; i < kMany; ++i) a.plane.send(to_b, leave_of("job", static_cast<int>(i)));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == kMany; }));
  EXPECT_LT(b.metrics.daemon().unwanted_received.Value(), kMany) << "of a flood without end";
  over = true;
  b.stop();
  flood.join();
}

TEST_F(StrangersTest, TheOldestStrangerMakesRoomAndWhoBelongsToAJobDoesNot) {
  Daemon a(loop_, {"a", 1, 60'000, 3, 60'000});
  const auto member = stranger(a);
  a.bind("job");
  std::vector<std::unique_ptr<RawPeer>> others;
  for (int i = 0; i < 3; ++i) others.push_back(stranger(a));
  EXPECT_TRUE(a.is_up(4));
  const auto youngest = stranger(a);
  EXPECT_TRUE(loop_.run_until([&] { return others[0]->closed.load(); }));
  EXPECT_TRUE(a.is_up(4));
  EXPECT_FALSE(member->closed || others[1]->closed || youngest->closed);
  EXPECT_EQ(a.metrics.daemon().strangers_sent_away.Value(), 1);
}

TEST_F(StrangersTest, ALinkThatNoJobNeedsIsClosedAfterAWhileThoughItIsKeptUp) {
  Daemon a(loop_, {"a", 1, 60'000, 8, 100});
  const auto member = stranger(a);
  a.bind("job");
  const auto other = stranger(a);
  EXPECT_TRUE(loop_.run_until([&] {
    v1::LinkMessage beat;
    beat.mutable_heartbeat();
    if (!other->closed) other->write(beat);
    return other->closed.load();
  }));
  EXPECT_FALSE(member->closed);
  EXPECT_TRUE(a.is_up(1));
}

TEST_F(StrangersTest, AJobsLinkIsTakenFromStrangersAndGivenBack) {
  Daemon a(loop_, "a");
  std::vector<std::pair<std::string, bool>> told;
  a.plane.set_keeper(
      [&](const std::string& peer, bool needed) { told.emplace_back(peer, needed); });
  auto peer = stranger(a);
  a.bind("one");
  a.bind("two");
  a.bind("two");  // As by two generations of an elastic job.
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].second);
  EXPECT_EQ(told[0].first, a.plane.peers()[0].control_address);
  const engine::LinkId stranger_link = a.plane.peers()[0].link;
  a.plane.unbind(stranger_link, "one");
  a.plane.unbind(stranger_link, "two");
  EXPECT_EQ(told.size(), 1u);
  a.plane.unbind(stranger_link, "two");
  a.plane.unbind(stranger_link, "two");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_FALSE(told[1].second);
  a.bind("three");
  peer.reset();
  ASSERT_TRUE(loop_.run_until([&] { return a.plane.peers().empty(); }));
  ASSERT_EQ(told.size(), 4u);
  EXPECT_FALSE(told[3].second) << "it is lost";
}

// After a docker pause of all nodes, or a snapshot of a virtual machine, nobody could speak before,
// and nobody may be given up.
TEST_F(StrangersTest, WhoWasStoppedItselfGivesEverybodyAnotherPeriod) {
  Daemon a(loop_, "a", 300);
  Daemon b(loop_, "b", 300);
  a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // makes the loop of both stand still
    const double heard = a.metrics.daemon().heartbeat_received.Value();
    ASSERT_TRUE(loop_.run_until(
        [&] { return a.metrics.daemon().heartbeat_received.Value() >= heard + 3; }));
  }
  EXPECT_TRUE(a.events.lost.empty());
  EXPECT_TRUE(b.events.lost.empty());
}

}  // namespace
}  // namespace rueda::service
