#include "daemon/service/links/control_plane.h"

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_communicator.h"
#include "daemon/service/convert/convert_nonfinite.h"
#include "daemon/service/servers/servers.h"
#include "tests/service/daemons.h"

namespace rueda::service {
namespace {

using engine::Envelope;
using engine::LinkId;
using testing::Daemon;
using testing::leave_of;
using testing::RawPeer;

class ControlPlaneTest : public ::testing::Test {
 protected:
  testing::Loop loop_;
};

TEST_F(ControlPlaneTest, CarriesMessagesBothWaysInOrder) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId to_b = a.plane.acquire(b.address());
  EXPECT_NE(to_b, 0u);
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  EXPECT_EQ(a.plane.peers()[0].node_id, "b");
  EXPECT_EQ(a.plane.peers()[0].control_address, b.address());
  EXPECT_EQ(b.plane.peers()[0].node_id, "a");
  b.bind("job");
  for (int i = 0; i < 500; ++i) a.plane.send(to_b, leave_of("job", i));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == 500; }));
  for (int i = 0; i < 500; ++i) {
    const auto& [link, envelope] = b.events.envelopes[static_cast<size_t>(i)];
    EXPECT_EQ(link, b.events.envelopes[0].first);
    EXPECT_EQ(envelope.job, "job");
    EXPECT_EQ(std::get<core::Leave>(envelope.message.body).rank, Rank{i});
  }
  b.plane.send(b.events.envelopes[0].first, leave_of("answer", 7));
  ASSERT_TRUE(loop_.run_until([&] { return a.events.envelopes.size() == 1; }));
  EXPECT_EQ(a.events.envelopes[0].first, to_b);
  EXPECT_EQ(a.events.envelopes[0].second.job, "answer");
  EXPECT_TRUE(a.events.lost.empty());
}

TEST_F(ControlPlaneTest, CarriesWhatIsNotFinite) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId to_b = a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  b.bind("job");
  const engine::Nonfinite value{uint64_t{1} << 40,
                                Rank{3},
                                uint64_t{1} << 41,
                                uint64_t{1} << 42,
                                engine::NonfiniteKind::kMinusInfinity,
                                "w",
                                5};
  a.plane.send(to_b, engine::NonfiniteMessage{"job", engine::FoundNonfinite{value}});
  a.plane.send(to_b, engine::NonfiniteMessage{"job", engine::FirstNonfinite{value}});
  a.plane.send(to_b, engine::NonfiniteMessage{"job", engine::AskNonfinite{}});
  a.plane.send(to_b, engine::NonfiniteMessage{"job", engine::NoNonfinite{}});
  ASSERT_TRUE(loop_.run_until([&] { return b.events.nonfinites.size() == 4; }));
  const auto& came = b.events.nonfinites;
  EXPECT_EQ(came[0].second.job, "job");
  EXPECT_EQ(std::get<engine::FoundNonfinite>(came[0].second.body).value, value);
  EXPECT_EQ(std::get<engine::FirstNonfinite>(came[1].second.body).value, value);
  EXPECT_TRUE(std::holds_alternative<engine::AskNonfinite>(came[2].second.body));
  EXPECT_TRUE(std::holds_alternative<engine::NoNonfinite>(came[3].second.body));
}

TEST(ConvertNonfinite, RefusesWhatCannotBe) {
  v1::NonfiniteMessage good;
  good.mutable_first()->set_step(1);
  EXPECT_TRUE(from_proto(good).is_ok());
  const std::vector<std::function<void(v1::NonfiniteMessage&)>> mistakes{
      [](auto& message) { message.mutable_first()->set_step(0); },
      [](auto& message) { message.mutable_first()->set_rank(-1); },
      [](auto& message) { message.mutable_first()->set_rank(limits::kMaxRanks); },
      [](auto& message) { message.mutable_first()->set_value(3); },
      [](auto& message) { message.mutable_first()->set_tensor(std::string(256, 'x')); },
      [](auto& message) { message.clear_first(); },
  };
  for (const auto& mistake : mistakes) {
    v1::NonfiniteMessage bad = good;
    mistake(bad);
    EXPECT_FALSE(from_proto(bad).is_ok()) << bad.DebugString();
  }
}

TEST_F(ControlPlaneTest, IdsOfCommunicatorsCrossTheLink) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId to_b = a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  b.bind("job");
  engine::CommunicatorMessage message{"job", 7};
  for (size_t i = 0; i < message.id.size(); ++i) message.id[i] = static_cast<std::byte>(i);
  a.plane.send(to_b, message);
  ASSERT_TRUE(loop_.run_until([&] { return b.events.communicators.size() == 1; }));
  const engine::CommunicatorMessage& came = b.events.communicators[0].second;
  EXPECT_EQ(came.job, "job");
  EXPECT_EQ(came.process_set, 7u);
  EXPECT_EQ(came.id, message.id);
}

TEST(ConvertCommunicator, RefusesAnIdOfAnotherLength) {
  v1::CommunicatorMessage bad;
  for (const size_t bytes : {0, 127, 129}) {
    bad.set_id(std::string(bytes, 'x'));
    EXPECT_FALSE(from_proto(bad).is_ok()) << bytes;
  }
}

TEST_F(ControlPlaneTest, AddressesShareALinkUntilAllHaveReleasedIt) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId link = a.plane.acquire(b.address());
  EXPECT_EQ(a.plane.acquire(b.address()), link);
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  b.bind("job");
  a.plane.release(link);
  a.plane.send(link, leave_of("job", 1));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == 1; }));
  a.plane.release(link);
  EXPECT_TRUE(a.plane.peers().empty());
  ASSERT_TRUE(loop_.run_until([&] { return b.events.lost.size() == 1; }));
  EXPECT_EQ(b.events.lost[0].second.code(), Code::kNodeLost);
  EXPECT_TRUE(b.plane.peers().empty());
  EXPECT_TRUE(a.events.lost.empty()) << "who lets go is not told";
  EXPECT_NE(a.plane.acquire(b.address()), link) << "numbers are not used again";
}

TEST_F(ControlPlaneTest, WhatIsSentOverALinkThatIsNotUpIsDropped) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId link = a.plane.acquire(b.address());
  a.plane.send(link, leave_of("too-early", 1));
  a.plane.send(999, leave_of("nowhere", 1));
  a.plane.release(999);
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  b.bind("now");
  a.plane.send(link, leave_of("now", 1));
  ASSERT_TRUE(loop_.run_until([&] { return !b.events.envelopes.empty(); }));
  EXPECT_EQ(b.events.envelopes[0].second.job, "now");
}

// Before the join a peer takes this daemon for a stranger, whose links may make room for others.
TEST_F(ControlPlaneTest, AJoinIsSaidAsSoonAsALinkIsUp) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId link = a.plane.acquire(b.address());
  core::Join join;
  join.data_address = "old:1";
  a.plane.send(link, {"job", {NodeIndex{1}, Epoch{1}, 0, join}, {}});
  join.data_address = "host:1";
  a.plane.send(link, {"job", {NodeIndex{1}, Epoch{1}, 0, join}, {}});
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == 1; }));
  const auto& said = std::get<core::Join>(b.events.envelopes[0].second.message.body);
  EXPECT_EQ(said.data_address, "host:1") << "the newest counts";
  b.bind("job");
  a.plane.send(link, leave_of("job", 1));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == 2; }));
}

// The daemon of a parent may start after its child's job has failed and been closed.
TEST_F(ControlPlaneTest, TheNewestPacketOfEachKindIsSaidAsSoonAsALinkIsUp) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  const LinkId to_b = a.plane.acquire(b.address());
  const auto packet = [&](auto body, uint32_t epoch) {
    const core::GenerationMessage said{{"a", 1}, "a:1", Epoch{epoch}, std::move(body)};
    return engine::GenerationPacket{"job", a.plane.encode(said), {"the key", {}, {}}};
  };
  a.plane.send(to_b, packet(core::Heard{"x:1"}, 1));
  a.plane.send(to_b, packet(core::PrepareGeneration{}, 2));
  a.plane.send(to_b, packet(core::Heard{"x:1"}, 3));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.packets.size() == 2; }));
  a.plane.send(to_b, packet(core::Heard{"x:1"}, 4));
  ASSERT_TRUE(loop_.run_until([&] { return b.events.packets.size() == 3; }));
  std::set<uint32_t> epochs;
  for (const auto& [link, came] : b.events.packets) {
    EXPECT_EQ(came.job, "job");
    EXPECT_TRUE(holds(came.proof, "the key"));
    EXPECT_FALSE(holds(came.proof, "another key"));
    epochs.insert(b.plane.decode(came.body).value().epoch.value);
  }
  EXPECT_EQ(epochs, (std::set<uint32_t>{2, 3, 4}));
}

TEST_F(ControlPlaneTest, AFailWaitsForALinkThatIsNotUpYet) {
  Daemon a(loop_, "a");
  const int port = Daemon(loop_, "nobody").port();
  const LinkId link = a.plane.acquire("127.0.0.1:" + std::to_string(port));
  a.plane.send(link, leave_of("job", 1));
  const Status cause(Code::kRankLost, "rank 3 died");
  for (size_t i = 0; i < 2 * kMaxLastWords; ++i) {
    a.plane.send(link, {"job" + std::to_string(i), {NodeIndex{1}, Epoch{1}, 0, core::Fail{cause}}});
  }
  a.plane.release(link);
  Daemon b(loop_, "b", 60'000, port);
  ASSERT_TRUE(loop_.run_until([&] { return a.plane.peers().empty(); }))
      << "it goes when all is said";
  ASSERT_TRUE(loop_.run_until([&] { return b.events.lost.size() == 1; }));
  ASSERT_EQ(b.events.envelopes.size(), kMaxLastWords) << "bounded; the first ones count";
  const Envelope& first = b.events.envelopes[0].second;
  EXPECT_EQ(first.job, "job0");
  EXPECT_EQ(std::get<core::Fail>(first.message.body).status.message(), "rank 3 died");
}

TEST_F(ControlPlaneTest, ALinkThatWaitsToSayAFailCanBeUsedAgain) {
  Daemon a(loop_, "a");
  const int port = Daemon(loop_, "nobody").port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const LinkId link = a.plane.acquire(address);
  a.plane.send(link,
               {"job", {NodeIndex{1}, Epoch{1}, 0, core::Fail{Status(Code::kRankLost, "x")}}});
  a.plane.release(link);
  EXPECT_EQ(a.plane.acquire(address), link);
  Daemon b(loop_, "b", 60'000, port);
  ASSERT_TRUE(loop_.run_until([&] { return b.events.envelopes.size() == 1; }));
  EXPECT_TRUE(a.is_up());
}

TEST_F(ControlPlaneTest, ALostDaemonIsDialledAgainUnderTheSameNumber) {
  Daemon a(loop_, "a");
  auto b = std::make_unique<Daemon>(loop_, "b");
  const int port = b->port();
  const LinkId link = a.plane.acquire(b->address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up(); }));
  b.reset();
  ASSERT_TRUE(loop_.run_until([&] { return a.events.lost.size() == 1; }));
  EXPECT_EQ(a.events.lost[0].first, link);
  EXPECT_EQ(a.events.lost[0].second.code(), Code::kNodeLost);
  EXPECT_EQ(a.plane.peers().at(0).state, "connecting");
  Daemon again(loop_, "b2", 60'000, port);
  ASSERT_EQ(again.port(), port);
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up(); }));
  EXPECT_EQ(a.plane.peers()[0].node_id, "b2");
  ASSERT_TRUE(loop_.run_until([&] { return again.is_up(); }));
  again.bind("job");
  a.plane.send(link, leave_of("job", 1));
  ASSERT_TRUE(loop_.run_until([&] { return again.events.envelopes.size() == 1; }));
  EXPECT_EQ(a.events.lost.size(), 1u);
}

TEST_F(ControlPlaneTest, NamesAreLookedUpAsTheSystemDoes) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  a.plane.acquire("localhost:" + std::to_string(b.port()));
  EXPECT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
}

TEST_F(ControlPlaneTest, WhatDoesNotComeUpSaysWhy) {
  Daemon a(loop_, "a");
  const auto trouble_with = [&](const std::string& address) {
    const LinkId link = a.plane.acquire(address);
    EXPECT_EQ(a.plane.trouble(link), "");
    EXPECT_TRUE(loop_.run_until([&] { return !a.plane.trouble(link).empty(); })) << address;
    const std::string trouble = a.plane.trouble(link);
    a.plane.release(link);
    return trouble;
  };
  EXPECT_THAT(trouble_with("127.0.0.1:1"),
              ::testing::MatchesRegex(
                  "its daemon at 127.0.0.1:1 cannot be reached: .*Connection refused.*"));
  EXPECT_THAT(
      trouble_with("no..such:1"),
      ::testing::MatchesRegex("its daemon at no..such:1 cannot be reached: the host name .* is not "
                              "known here.*"));
}

TEST_F(ControlPlaneTest, SchemesOfGrpcAreNotDialled) {
  Daemon a(loop_, "a");
  const LinkId link = a.plane.acquire("unix:/run/somebodys.sock");
  EXPECT_NE(link, 0u);
  EXPECT_THAT(a.plane.trouble(link), ::testing::MatchesRegex(".*is not HOST:PORT.*"));
  a.plane.release(link);
  EXPECT_TRUE(a.plane.peers().empty());
}

// Other members of a job tell addresses, too, not its launcher alone.
TEST_F(ControlPlaneTest, WhereADaemonMayNotConnectItDoesNot) {
  ControlPlaneOptions options{"a", 1, 60'000};
  options.check_dial = [](const std::string& address) {
    return address == "127.0.0.1:1" ? Status::ok() : Status(Code::kPermission, "it is not known");
  };
  Daemon a(loop_, options);
  Daemon b(loop_, "b");
  const LinkId to_b = a.plane.acquire(b.address());
  EXPECT_EQ(a.plane.trouble(to_b),
            "its daemon at " + b.address() + " cannot be reached: it is not known");
  const LinkId known = a.plane.acquire("127.0.0.1:1");
  ASSERT_TRUE(loop_.run_until([&] { return !a.plane.trouble(known).empty(); }));
  EXPECT_FALSE(a.is_up());
  EXPECT_TRUE(b.plane.peers().empty());
}

TEST_F(ControlPlaneTest, StopEndsWhateverTheStateOfTheLinks) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  EXPECT_TRUE(b.stop()) << "without links";
  a.plane.acquire("127.0.0.1:1");  // nobody listens there
  EXPECT_TRUE(a.stop());
  EXPECT_TRUE(a.plane.peers().empty());
  EXPECT_TRUE(a.events.lost.empty());
}

TEST_F(ControlPlaneTest, StopEndsLinksThatAreUp) {
  Daemon a(loop_, "a");
  Daemon b(loop_, "b");
  a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  EXPECT_TRUE(a.stop());
  EXPECT_TRUE(a.events.lost.empty());
  EXPECT_TRUE(loop_.run_until([&] { return b.events.lost.size() == 1; }));
}

TEST_F(ControlPlaneTest, APeerOfAnotherVersionIsSentAway) {
  Daemon a(loop_, "a");
  RawPeer peer(a.address());
  peer.say_hello(99);
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); }));
  EXPECT_EQ(peer.hellos, 1) << "it must be able to say what is wrong";
  EXPECT_TRUE(a.events.lost.empty()) << "it was never up";
  EXPECT_TRUE(loop_.run_until([&] { return a.plane.peers().empty(); }));
}

TEST_F(ControlPlaneTest, APeerThatDoesNotSayHelloIsSentAway) {
  Daemon a(loop_, "a");
  RawPeer peer(a.address());
  v1::LinkMessage message;
  *message.mutable_job() = to_proto(leave_of("job", 1));
  peer.write(message);
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); }));
  EXPECT_TRUE(a.events.envelopes.empty());
}

TEST_F(ControlPlaneTest, APeerThatSpeaksNonsenseIsLost) {
  Daemon a(loop_, "a");
  RawPeer peer(a.address());
  peer.say_hello();
  v1::LinkMessage message;
  message.mutable_job()->mutable_fail()->set_code(1234);
  peer.write(message);
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed && a.events.lost.size() == 1; }));
  EXPECT_TRUE(a.events.envelopes.empty());
}

TEST_F(ControlPlaneTest, AnEmptyMessageIsNonsense) {
  Daemon a(loop_, "a");
  RawPeer peer(a.address());
  peer.say_hello();
  peer.write({});
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); }));
}

TEST_F(ControlPlaneTest, APeerThatFallsSilentIsLost) {
  Daemon a(loop_, "a", 300);
  RawPeer peer(a.address());
  peer.say_hello();
  ASSERT_TRUE(loop_.run_until([&] { return a.events.lost.size() == 1; }));
  EXPECT_EQ(a.events.lost[0].second.code(), Code::kNodeLost);
  EXPECT_EQ(a.events.lost[0].second.message(), "nothing was heard of it for 300 ms");
  EXPECT_EQ(peer.heartbeats, 0) << "the dialling side asks";
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); }));
}

TEST_F(ControlPlaneTest, AHeartbeatIsAnswered) {
  Daemon a(loop_, "a");
  RawPeer peer(a.address());
  peer.say_hello();
  v1::LinkMessage message;
  message.mutable_heartbeat();
  for (int i = 1; i <= 3; ++i) {
    peer.write(message);
    ASSERT_TRUE(loop_.run_until([&] { return peer.heartbeats == i; }));
  }
  EXPECT_EQ(a.metrics.daemon().heartbeat_sent.Value(), 3);
}

TEST_F(ControlPlaneTest, APeerThatNeverSpeaksIsDropped) {
  Daemon a(loop_, "a", 300);
  RawPeer peer(a.address());
  EXPECT_TRUE(loop_.run_until([&] { return peer.closed.load(); }));
  EXPECT_TRUE(a.events.lost.empty());
}

TEST_F(ControlPlaneTest, HeartbeatsKeepALinkThatHasNothingToSay) {
  Daemon a(loop_, "a", 300);
  Daemon b(loop_, "b", 300);
  a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] {
    return a.metrics.daemon().heartbeat_received.Value() >= 8 &&
           b.metrics.daemon().heartbeat_received.Value() >= 8;
  }));
  EXPECT_TRUE(a.events.lost.empty());
  EXPECT_TRUE(b.events.lost.empty());
}

// The dialling side's messages keep the other side content, and nothing else makes the other side
// speak.
TEST_F(ControlPlaneTest, ADiallerThatSpeaksAndHearsNothingStillAsks) {
  Daemon a(loop_, "a", 300);
  Daemon b(loop_, "b", 300);
  const LinkId to_b = a.plane.acquire(b.address());
  ASSERT_TRUE(loop_.run_until([&] { return a.is_up() && b.is_up(); }));
  b.bind("job");
  ASSERT_TRUE(loop_.run_until([&] {
    a.plane.send(to_b, leave_of("job", 1));
    return a.metrics.daemon().heartbeat_received.Value() >= 8;
  }));
  EXPECT_TRUE(a.events.lost.empty());
}

}  // namespace
}  // namespace rueda::service
