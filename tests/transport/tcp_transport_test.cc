// Tests what only TCP has: hellos, slow peers, congestion control, broken connections.
#include "daemon/transport/tcp/tcp_transport.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/credit.h"
#include "daemon/transport/tcp/hello.h"
#include "daemon/transport/tcp/socket_tuner.h"
#include "tests/transport/tcp_fixture.h"

namespace rueda::transport {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using testing::Reader;
using testing::TcpTransportTest;
using testing::Writer;

TEST_F(TcpTransportTest, GarbageIsClosedAtItsFirstBytes) {
  expect_channel();
  for (const std::string garbage : {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x03\x04\x05\x06"}) {
    const uint64_t before = transport_->rejected();
    asio::ip::tcp::socket stranger = dial();
    asio::write(stranger, asio::buffer(garbage));
    ASSERT_TRUE(run_until_rejected(before + 1));
    EXPECT_TRUE(is_hung_up(stranger));
  }
  EXPECT_EQ(log_->count("does not speak Rueda's data protocol"), 2);
  EXPECT_EQ(channel_, nullptr);
}

TEST_F(TcpTransportTest, AnotherVersionIsNamed) {
  expect_channel();
  asio::ip::tcp::socket stranger = dial();
  tcp::Hello message = hello();
  message.version = kWireVersion + 1;
  asio::write(stranger, asio::buffer(&message, sizeof(message)));
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(stranger));
  EXPECT_EQ(log_->count("it speaks wire version 8, this daemon speaks 7"), 1);
}

TEST_F(TcpTransportTest, APeerThatSaysNothingOrHalfIsClosed) {
  expect_channel();
  asio::ip::tcp::socket silent = dial();
  asio::ip::tcp::socket slow = dial();
  const tcp::Hello message = hello();
  asio::write(slow, asio::buffer(&message, sizeof(message) - 1));
  ASSERT_TRUE(run_until_rejected(2));
  EXPECT_TRUE(is_hung_up(silent) && is_hung_up(slow));
  EXPECT_EQ(log_->count("did not finish its hello"), 2);
  EXPECT_EQ(channel_, nullptr);
}

TEST_F(TcpTransportTest, APeerThatHangsUpBeforeItsHelloIsCounted) {
  dial().close();
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_EQ(log_->count("hung up before its hello"), 1);
}

// --- A hello before its channel is expected

TEST_F(TcpTransportTest, AnEarlyHelloIsAnsweredOnceItIsExpected) {
  asio::ip::tcp::socket peer = dial();
  const tcp::Hello message = hello();
  asio::write(peer, asio::buffer(&message, sizeof(message)));
  take_what_has_come();
  expect_channel();
  await_welcome(peer, message);
  EXPECT_EQ(transport_->rejected(), 0u);
  EXPECT_EQ(log_->count("closed a connection"), 0);
}

TEST_F(TcpTransportTest, AnEarlyHelloThatIsNeverExpectedIsClosedInTime) {
  asio::ip::tcp::socket stranger = dial();
  const tcp::Hello message = hello();
  asio::write(stranger, asio::buffer(&message, sizeof(message)));
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(stranger));
  EXPECT_EQ(log_->count("was not expected here within"), 1);
}

TEST_F(TcpTransportTest, AnEarlyHelloWithoutTheTokenIsClosedOnceItIsExpected) {
  asio::ip::tcp::socket stranger = dial();
  tcp::Hello forged = hello();
  forged.mac[0] ^= std::byte{1};
  asio::write(stranger, asio::buffer(&forged, sizeof(forged)));
  take_what_has_come();
  asio::ip::tcp::socket peer = open_by_hand();
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(stranger));
  EXPECT_EQ(log_->count("it does not have the token"), 1);
  EXPECT_FALSE(reader_.closed);
}

TEST_F(TcpTransportTest, APeerThatDoesNotWaitIsNotTakenForThere) {
  for (const bool talks : {false, true}) {
    asio::ip::tcp::socket gone = dial();
    const tcp::Hello message = hello();
    asio::write(gone, asio::buffer(&message, sizeof(message)));
    take_what_has_come();
    if (talks) {
      asio::write(gone, asio::buffer("more", 4));
    } else {
      gone.close();
    }
    ASSERT_TRUE(run_until_rejected(talks ? 2 : 1));
  }
  EXPECT_EQ(log_->count("it did not wait until"), 2);
  asio::ip::tcp::socket peer = open_by_hand();
  EXPECT_FALSE(reader_.closed);
}

TEST_F(TcpTransportTest, ASecondHelloForTheSameChannelIsRefused) {
  asio::ip::tcp::socket peer = open_by_hand();
  asio::ip::tcp::socket second = dial();
  const tcp::Hello message = hello();
  asio::write(second, asio::buffer(&message, sizeof(message)));
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(second));
  EXPECT_FALSE(reader_.closed);
}

TEST_F(TcpTransportTest, GarbageAfterTheHelloClosesTheChannel) {
  asio::ip::tcp::socket peer = open_by_hand();
  asio::write(peer, asio::buffer(std::string(100, 'x')));
  ASSERT_TRUE(run_until([this] { return reader_.closed.has_value(); }));
  EXPECT_EQ(reader_.closed->code(), Code::kInternal);
  EXPECT_NE(reader_.closed->message().find("node 0 (127.0.0.1:"), std::string::npos);
  EXPECT_TRUE(is_hung_up(peer));
}

TEST_F(TcpTransportTest, AWriterThatIgnoresCreditIsCutOff) {
  asio::ip::tcp::socket peer = open_by_hand();
  FrameHeader header;
  header.job = id_.job.first;
  header.epoch = id_.epoch;
  header.slot = 1;
  const FrameHeader twice[] = {header, header};
  asio::write(peer, asio::buffer(twice));
  ASSERT_TRUE(run_until([this] { return reader_.closed.has_value(); }));
  EXPECT_EQ(reader_.slots, std::vector<uint32_t>{1});
  EXPECT_NE(reader_.closed->message().find("slot 1 still holds a frame"), std::string::npos);
}

TEST_F(TcpTransportTest, APeerThatDiesInAFrameIsLost) {
  asio::ip::tcp::socket peer = open_by_hand();
  FrameHeader header;
  header.job = id_.job.first;
  header.epoch = id_.epoch;
  header.payload_bytes = 10;
  asio::write(peer, asio::buffer(&header, sizeof(header)));
  peer.close();
  ASSERT_TRUE(run_until([this] { return reader_.closed.has_value(); }));
  EXPECT_EQ(reader_.closed->code(), Code::kNodeLost);
  EXPECT_NE(reader_.closed->message().find("in the middle of a frame"), std::string::npos);
}

TEST_F(TcpTransportTest, AResetIsALostPeer) {
  asio::ip::tcp::socket peer = open_by_hand();
  peer.set_option(asio::socket_base::linger(true, 0));
  peer.close();
  ASSERT_TRUE(run_until([this] { return reader_.closed.has_value(); }));
  EXPECT_EQ(reader_.closed->code(), Code::kNodeLost);
  EXPECT_NE(reader_.closed->message().find("node 0"), std::string::npos);
}

// Sets up a channel both of whose slots hold a frame.
class TcpCreditTest : public TcpTransportTest {
 protected:
  asio::ip::tcp::socket open_and_fill() {
    asio::ip::tcp::socket peer = open_by_hand();
    FrameHeader frames[2];
    for (uint32_t slot : {0u, 1u}) {
      frames[slot].job = id_.job.first;
      frames[slot].epoch = id_.epoch;
      frames[slot].slot = slot;
    }
    asio::write(peer, asio::buffer(frames));
    EXPECT_TRUE(run_until([this] { return reader_.slots.size() == 2; }));
    return peer;
  }
};

TEST_F(TcpCreditTest, OneThatMayWaitLeavesWithOneThatMayNot) {
  asio::ip::tcp::socket peer = open_and_fill();
  channel_->release_with_others(1);
  channel_->release(0);
  io_.poll();
  tcp::Credit credits[2];
  ASSERT_EQ(peer.read_some(asio::buffer(credits)), sizeof(credits));
  EXPECT_EQ(credits[0].slot, 1u);
  EXPECT_EQ(credits[1].slot, 0u);
}

TEST_F(TcpCreditTest, OneThatMayWaitDoesNotWaitForEver) {
  asio::ip::tcp::socket peer = open_and_fill();
  channel_->release_with_others(1);
  ASSERT_TRUE(run_until([&] { return peer.available() == sizeof(tcp::Credit); }));
  // The next slot has its own time.
  channel_->release_with_others(0);
  ASSERT_TRUE(run_until([&] { return peer.available() == 2 * sizeof(tcp::Credit); }));
}

TEST_F(TcpCreditTest, AChannelMayCloseBeforeItLeaves) {
  asio::ip::tcp::socket peer = open_and_fill();
  channel_->release_with_others(1);
  channel_.reset();
  char byte = 0;
  boost::system::error_code error;
  ASSERT_TRUE(run_until([&] {
    peer.non_blocking(true);
    peer.read_some(asio::buffer(&byte, 1), error);
    return error == asio::error::eof;
  }));
}

TEST_F(TcpCreditTest, ManyCreditsLeaveTogether) {
  asio::ip::tcp::socket peer = open_and_fill();
  channel_->release(1);
  channel_->release(0);
  io_.poll();
  tcp::Credit credits[2];
  ASSERT_EQ(peer.read_some(asio::buffer(credits)), sizeof(credits));
  EXPECT_TRUE(credits[0].is_valid(2) && credits[1].is_valid(2));
  EXPECT_EQ(credits[0].slot, 1u);
  EXPECT_EQ(credits[1].slot, 0u);
}

// Tests the other direction: our writer against a reader of another make.
class TcpWriterTest : public TcpTransportTest {
 protected:
  asio::ip::tcp::socket accept_by_hand(bool knows_token) {
    asio::ip::tcp::acceptor acceptor(io_, {asio::ip::address_v4::loopback(), 0});
    ConnectOptions options;
    options.address = tcp::to_string(acceptor.local_endpoint());
    options.id = id_;
    options.token = token_;
    options.slot_count = 2;
    options.slot_bytes = 64;
    options.timeout_ms = knows_token ? 20'000 : 100;
    options.events = &writer_;
    transport_->connect(options, [this](Result<std::unique_ptr<SendChannel>> result) {
      outcome_ = result.status();
      if (result.is_ok()) sender_ = std::move(result).value();
    });
    asio::ip::tcp::socket peer(io_);
    std::optional<error_code> accepted;
    acceptor.async_accept(peer, [&](const error_code& error) { accepted = error; });
    EXPECT_TRUE(run_until([&] { return accepted && peer.available() >= sizeof(tcp::Hello); }));
    tcp::Hello message;
    asio::read(peer, asio::buffer(&message, sizeof(message)));
    EXPECT_TRUE(is_authentic(message, token_));
    tcp::HelloReply reply;
    JobToken wrong{};
    sign(reply, message, knows_token ? token_ : wrong);
    asio::write(peer, asio::buffer(&reply, sizeof(reply)));
    EXPECT_TRUE(run_until([this] { return outcome_.has_value(); }));
    tcp::HelloConfirm confirm;
    if (!knows_token) return peer;
    asio::read(peer, asio::buffer(&confirm, sizeof(confirm)));
    EXPECT_TRUE(check_confirm(confirm, message, reply, token_).is_ok());
    return peer;
  }

  void send_credit(asio::ip::tcp::socket& peer, uint32_t slot) {
    tcp::Credit credit;
    credit.slot = slot;
    asio::write(peer, asio::buffer(&credit, sizeof(credit)));
  }

  Writer writer_;
  std::optional<Status> outcome_;
  std::unique_ptr<SendChannel> sender_;
};

TEST_F(TcpWriterTest, AReaderWithoutTheTokenIsNotBelieved) {
  accept_by_hand(false);
  EXPECT_EQ(outcome_->code(), Code::kTimeout);
  EXPECT_EQ(sender_, nullptr);
}

TEST_F(TcpWriterTest, ACreditForAFreeSlotClosesTheChannel) {
  asio::ip::tcp::socket peer = accept_by_hand(true);
  ASSERT_NE(sender_, nullptr);
  send_credit(peer, 1);
  ASSERT_TRUE(run_until([this] { return writer_.closed.has_value(); }));
  EXPECT_EQ(writer_.closed->code(), Code::kInternal);
  EXPECT_NE(writer_.closed->message().find("a credit for slot 1, which is free"),
            std::string::npos);
  EXPECT_TRUE(writer_.freed.empty());
}

TEST_F(TcpWriterTest, GarbageInsteadOfCreditsClosesTheChannel) {
  asio::ip::tcp::socket peer = accept_by_hand(true);
  ASSERT_NE(sender_, nullptr);
  asio::write(peer, asio::buffer(std::string("garbage!")));
  ASSERT_TRUE(run_until([this] { return writer_.closed.has_value(); }));
  EXPECT_EQ(writer_.closed->code(), Code::kInternal);
}

TEST_F(TcpWriterTest, ACreditInTwoPiecesIsOneCredit) {
  asio::ip::tcp::socket peer = accept_by_hand(true);
  ASSERT_NE(sender_, nullptr);
  FrameHeader header;
  header.job = id_.job.first;
  header.epoch = id_.epoch;
  header.slot = 1;
  sender_->write(header, {}, 0);
  ASSERT_TRUE(run_until([&] { return peer.available() >= sizeof(header); }));
  tcp::Credit credit;
  credit.slot = 1;
  asio::write(peer, asio::buffer(&credit, 3));
  io_.poll();
  EXPECT_TRUE(writer_.freed.empty());
  asio::write(peer, asio::buffer(reinterpret_cast<const char*>(&credit) + 3, 5));
  ASSERT_TRUE(run_until([this] { return !writer_.freed.empty(); }));
  EXPECT_EQ(writer_.freed, std::vector<uint32_t>{1});
}

std::string congestion_of(int descriptor) {
  char name[16] = {};
  socklen_t bytes = sizeof(name);
  EXPECT_EQ(::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
  return name;
}

TEST_F(TcpTransportTest, CongestionControlFollowsItsOption) {
  tcp::Socket plain(io_, asio::ip::tcp::v4());
  const std::string system = congestion_of(plain.native_handle());
  const tcp::Endpoint here(asio::ip::address_v4::loopback(), 9);
  // The address is of TEST-NET-1, and never one of our own.
  const tcp::Endpoint elsewhere(asio::ip::make_address("192.0.2.1"), 9);
  const auto chosen = [&](const std::string& option, const tcp::Endpoint& peer) {
    tcp::Socket socket(io_, asio::ip::tcp::v4());
    tcp::SocketTuner(option).tune_connecting(socket, peer);
    return congestion_of(socket.native_handle());
  };
  EXPECT_EQ(chosen("system", here), system);
  EXPECT_EQ(chosen("auto", elsewhere), system);
  EXPECT_EQ(chosen("reno", elsewhere), "reno");
  EXPECT_EQ(chosen("auto", here), "reno");
}

TEST_F(TcpTransportTest, AnUnknownCongestionControlIsNamed) {
  EXPECT_TRUE(make_tcp_transport(io_, {.congestion = "system"})->is_viable().is_ok());
  EXPECT_TRUE(make_tcp_transport(io_, {.congestion = "reno"})->is_viable().is_ok());
  const Status status = make_tcp_transport(io_, {.congestion = "warp"})->is_viable();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("\"warp\""), std::string::npos);
}

TEST_F(TcpTransportTest, ANameIsResolvedWithoutBlocking) {
  expect_channel();
  Writer writer;
  ConnectOptions options;
  options.address = "localhost" + address_.substr(address_.rfind(':'));
  options.id = id_;
  options.token = token_;
  options.slot_count = 2;
  options.slot_bytes = 64;
  options.timeout_ms = 20'000;
  options.events = &writer;
  std::unique_ptr<SendChannel> sender;
  transport_->connect(options, [&](Result<std::unique_ptr<SendChannel>> result) {
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    sender = std::move(result).value();
  });
  ASSERT_TRUE(run_until([&] { return sender && channel_; }));
  EXPECT_EQ(log_->count("congestion control reno for peers on this host"), 1);
}

// Clouds give a machine's credentials away at such an address.
TEST_F(TcpTransportTest, LinkLocalAddressesAreNotDialled) {
  for (const char* address : {"169.254.169.254:80", "[::ffff:169.254.169.254]:80"}) {
    ConnectOptions options;
    options.address = address;
    options.id = id_;
    options.token = token_;
    options.slot_count = 2;
    options.slot_bytes = 64;
    options.timeout_ms = 20'000;
    std::optional<Status> status;
    transport_->connect(
        options, [&](Result<std::unique_ptr<SendChannel>> result) { status = result.status(); });
    ASSERT_TRUE(run_until([&] { return status.has_value(); })) << address;
    EXPECT_EQ(status->code(), Code::kInvalidArgument);
    EXPECT_NE(status->message().find("169.254.169.254 is a link-local IPv4 address"),
              std::string::npos)
        << status->message();
  }
}

}  // namespace
}  // namespace rueda::transport
