// Tests how RDMA is agreed on over a TCP connection, on a machine that has none: with peers that
// cannot use it, that do not want it, and that send garbage. tests/rdma has the same on a machine
// with a device.
#include <cstring>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "daemon/transport/rdma/exchange.h"
#include "daemon/transport/rdma/rdma_upgrader.h"
#include "tests/transport/tcp_fixture.h"

namespace rueda::transport {
namespace {

namespace asio = boost::asio;

class RdmaExchange : public testing::TcpTransportTest {
 protected:
  void SetUp() override {
    TcpTransportTest::SetUp();
    begin(false);
  }

  void begin(bool is_required) {
    Status why;
    RdmaOptions options;
    options.is_required = is_required;
    auto upgrader = make_rdma_upgrader(io_, options, why);
    if (!why.is_ok()) GTEST_SKIP() << why.message();
    transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000}, std::move(upgrader));
    address_ = transport_->listen("127.0.0.1:0").value();
    key_ = transport_->register_region(memory_).value();
  }

  template <class Message>
  static void say(asio::ip::tcp::socket& socket, const Message& message) {
    asio::write(socket, asio::buffer(&message, sizeof(message)));
  }
  template <class Message>
  Message hear(asio::ip::tcp::socket& socket) {
    Message message;
    bool has_come = false;
    asio::async_read(socket, asio::buffer(&message, sizeof(message)),
                     [&](const boost::system::error_code& error, size_t) {
                       EXPECT_FALSE(error) << error.message();
                       has_come = true;
                     });
    EXPECT_TRUE(run_until([&] { return has_come; }));
    return message;
  }

  // Sends a hello that offers an upgrade, and returns the answer to it.
  tcp::HelloAnswer offer(asio::ip::tcp::socket& socket) {
    tcp::Hello message = hello();
    message.offers_upgrade = 1;
    sign(message, token_);
    say(socket, message);
    const auto reply = hear<tcp::HelloReply>(socket);
    tcp::HelloConfirm confirm;
    sign(confirm, message, reply, token_);
    say(socket, confirm);
    return reply.answer;
  }
};

TEST_F(RdmaExchange, WhereNeitherEndHasItTheChannelIsOverTcp) {
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  rdma::Offer ours;
  rdma::set_reason(ours, "no device");
  say(socket, ours);
  EXPECT_EQ(hear<rdma::Offer>(socket).is_able, 0);
  ASSERT_TRUE(run_until([&] { return channel_ != nullptr; }));
  FrameHeader header;
  header.job = id_.job.first;
  header.epoch = id_.epoch;
  header.slot = 1;
  say(socket, header);
  EXPECT_TRUE(run_until([&] { return reader_.slots == std::vector<uint32_t>{1}; }));
}

TEST_F(RdmaExchange, APeerThatCouldIsToldWhyItIsNot) {
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  rdma::Offer ours;
  ours.is_able = 1;
  ours.mtu = 255;  // is nonsense, which nobody here gets to look at
  say(socket, ours);
  const auto theirs = hear<rdma::Offer>(socket);
  EXPECT_EQ(theirs.is_able, 0);
  EXPECT_NE(rdma::reason_of(theirs).find("RDMA device"), std::string::npos);
  EXPECT_TRUE(run_until([&] { return channel_ != nullptr; }));
}

TEST_F(RdmaExchange, WhoSpreadsStreamsOverAnotherNumberOfDevicesIsToldSo) {
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  rdma::Offer ours;
  ours.is_able = 1;
  ours.rails = 2;
  say(socket, ours);
  const auto theirs = hear<rdma::Offer>(socket);
  EXPECT_EQ(theirs.is_able, 0);
  EXPECT_EQ(theirs.rails, 0);
  EXPECT_EQ(rdma::reason_of(theirs), "the peer has 2 devices in --rdma-devices, and this daemon 0");
  EXPECT_TRUE(run_until([&] { return channel_ != nullptr; }));
}

TEST(RdmaRails, StreamsOfAChannelTakeRailsInTurnAndChannelsBeginAtDifferentOnes) {
  ChannelId id;
  id.from_node = 3;
  id.to_node = 4;
  const uint32_t first = rdma::rail_number(id);
  id.stream = 1;
  EXPECT_EQ(rdma::rail_number(id), first + 1);
  id.stream = 0;
  id.process_set = 1;
  EXPECT_EQ(rdma::rail_number(id), first + 1);
}

TEST_F(RdmaExchange, WhoOffersNothingIsWelcomedAsBefore) {
  asio::ip::tcp::socket socket = open_by_hand();
  EXPECT_NE(channel_, nullptr);
}

TEST_F(RdmaExchange, AnOfferThatIsGarbageCostsItsSenderTheConnectionAlone) {
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  rdma::Offer garbage;
  std::memset(static_cast<void*>(&garbage), 0xee, sizeof(garbage));
  say(socket, garbage);
  EXPECT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(socket));
  EXPECT_EQ(channel_, nullptr);
  asio::ip::tcp::socket again = dial();
  EXPECT_EQ(offer(again), tcp::HelloAnswer::kUpgrade);
}

TEST_F(RdmaExchange, WhoBreaksOffInTheMiddleMayTryAgain) {
  expect_channel();
  {
    asio::ip::tcp::socket socket = dial();
    ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  }
  EXPECT_TRUE(run_until_rejected(1));
  asio::ip::tcp::socket again = dial();
  EXPECT_EQ(offer(again), tcp::HelloAnswer::kUpgrade);
}

TEST_F(RdmaExchange, WhoSaysNothingMoreKeepsTheChannelNoLongerThanItIsAwaited) {
  AcceptOptions options;
  options.id = id_;
  options.token = token_;
  options.slots = {memory_.data(), 2, 64, key_};
  options.timeout_ms = 200;
  options.events = &reader_;
  std::optional<Status> outcome;
  transport_->expect(
      options, [&](Result<std::unique_ptr<ReceiveChannel>> result) { outcome = result.status(); });
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  ASSERT_TRUE(run_until([&] { return outcome.has_value(); }));
  EXPECT_EQ(outcome->code(), Code::kTimeout);
  EXPECT_TRUE(is_hung_up(socket));
}

TEST_F(RdmaExchange, AWithdrawnChannelIsNotOpenedByItsUpgrade) {
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  ASSERT_EQ(offer(socket), tcp::HelloAnswer::kUpgrade);
  take_what_has_come();  // The confirmation, behind which the upgrade begins.
  transport_->cancel_expect(id_);
  take_what_has_come();
  EXPECT_TRUE(is_hung_up(socket));
  EXPECT_EQ(channel_, nullptr);
}

TEST_F(RdmaExchange, WhoInsistsTurnsAwayWhoCannot) {
  begin(true);
  if (IsSkipped()) return;
  expect_channel();
  asio::ip::tcp::socket socket = dial();
  say(socket, hello());
  EXPECT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(socket));
  EXPECT_EQ(log_->count("insists on"), 1);
}

// Text from a peer goes into logs and errors.
TEST(RdmaReason, IsOneLineOfPrintableText) {
  rdma::Offer offer;
  offer.reason.fill('\n');  // has no 0 at its end
  const std::string reason = rdma::reason_of(offer);
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  rdma::set_reason(offer, std::string(1000, 'x'));
  offer.reason.back() = '\0';
  EXPECT_EQ(rdma::reason_of(offer), std::string(195, 'x'));
}

}  // namespace
}  // namespace rueda::transport
