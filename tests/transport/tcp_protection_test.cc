// What somebody between two daemons can do to a data connection: play back, change, repeat, reorder
// and leave out what they say.
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "daemon/transport/tcp/credit.h"
#include "tests/transport/tcp_fixture.h"

namespace rueda::transport {
namespace {

namespace asio = boost::asio;

class TcpProtection : public testing::TcpTransportTest {
 protected:
  // Serves channels that are protected like this.
  void protect(Protection protection) {
    transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000, .protection = protection});
    key_ = transport_->register_region(memory_).value();
    address_ = transport_->listen("127.0.0.1:0").value();
    protection_ = protection;
  }
  tcp::Hello hello_of(Protection protection) {
    tcp::Hello message = hello();
    message.protection = protection;
    sign(message, token_);
    return message;
  }
  // Opens the channel by hand, as its writer.
  asio::ip::tcp::socket open_protected() {
    expect_channel();
    asio::ip::tcp::socket socket = dial();
    const tcp::Hello message = hello_of(protection_);
    asio::write(socket, asio::buffer(&message, sizeof(message)));
    await_welcome(socket, message);
    return socket;
  }
  // Returns the bytes of a frame for the slot, as they go over the connection.
  std::vector<std::byte> frame(Sealer& sealer, uint32_t slot, std::byte value) const {
    FrameHeader header;
    header.job = id_.job.first;
    header.epoch = id_.epoch;
    header.slot = slot;
    header.payload_bytes = 16;
    const std::vector<std::byte> payload(header.payload_bytes, value);
    std::vector<std::byte> bytes(sizeof(header) + payload.size() + 2 * kTagBytes);
    sealer.seal(std::as_bytes(std::span(&header, 1)), bytes.data());
    sealer.seal(payload, bytes.data() + sizeof(header) + kTagBytes);
    return bytes;
  }
  static void send(asio::ip::tcp::socket& socket, std::span<const std::byte> bytes) {
    asio::write(socket, asio::buffer(bytes.data(), bytes.size()));
  }
  // Expects that the channel ends by what has been sent, and that nothing but `slots` was
  // delivered.
  void expect_forged(const std::vector<uint32_t>& slots) {
    ASSERT_TRUE(run_until([this] { return reader_.closed.has_value(); }));
    EXPECT_EQ(reader_.closed->code(), Code::kInternal);
    EXPECT_NE(reader_.closed->message().find("was changed on its way"), std::string::npos)
        << reader_.closed->message();
    EXPECT_EQ(transport_->forged(), 1u);
    EXPECT_EQ(reader_.slots, slots);
  }

  Protection protection_ = Protection::kNone;
};

class EveryProtection : public TcpProtection, public ::testing::WithParamInterface<Protection> {
 protected:
  void SetUp() override {
    TcpProtection::SetUp();
    protect(GetParam());
  }
};

TEST_P(EveryProtection, FramesComeAsTheyWereSent) {
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  send(writer, frame(sealer, 1, std::byte{5}));
  send(writer, frame(sealer, 0, std::byte{6}));
  ASSERT_TRUE(run_until([this] { return reader_.slots == std::vector<uint32_t>({1, 0}); }));
  EXPECT_EQ(memory_[64], std::byte{5});
  EXPECT_EQ(memory_[0], std::byte{6});
  EXPECT_EQ(transport_->forged(), 0u);
}

TEST_P(EveryProtection, AFrameOfWhichAnyBitWasChangedIsNotDelivered) {
  const size_t bytes = sizeof(FrameHeader) + 16 + 2 * kTagBytes;
  for (size_t i = 0; i < bytes; i += 5) {
    channel_ = nullptr;
    reader_ = {};
    protect(GetParam());
    asio::ip::tcp::socket writer = open_protected();
    Sealer sealer(GetParam(), keys_.to_reader);
    send(writer, frame(sealer, 1, std::byte{5}));
    std::vector<std::byte> changed = frame(sealer, 0, std::byte{6});
    changed[i] ^= std::byte{32};
    send(writer, changed);
    SCOPED_TRACE("byte " + std::to_string(i));
    expect_forged({1});
  }
}

TEST_P(EveryProtection, AHeaderThatWasChangedPutsNothingAnywhere) {
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  memory_.assign(memory_.size(), std::byte{9});
  std::vector<std::byte> changed = frame(sealer, 1, std::byte{5});
  changed[offsetof(FrameHeader, slot)] ^= std::byte{1};
  send(writer, changed);
  expect_forged({});
  EXPECT_EQ(memory_, std::vector<std::byte>(memory_.size(), std::byte{9}));
}

TEST_P(EveryProtection, AFrameThatIsRepeatedIsNotDeliveredTwice) {
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  const std::vector<std::byte> once = frame(sealer, 1, std::byte{5});
  send(writer, once);
  ASSERT_TRUE(run_until([this] { return reader_.slots == std::vector<uint32_t>({1}); }));
  channel_->release(1);
  send(writer, once);
  expect_forged({1});
}

TEST_P(EveryProtection, AFrameThatOvertakesAnotherIsNotDelivered) {
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  const std::vector<std::byte> first = frame(sealer, 1, std::byte{5});
  send(writer, frame(sealer, 0, std::byte{6}));
  send(writer, first);
  expect_forged({});
}

TEST_P(EveryProtection, AFrameOfAnotherConnectionOfTheSameChannelIsNotDelivered) {
  asio::ip::tcp::socket before = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  const std::vector<std::byte> recorded = frame(sealer, 1, std::byte{5});
  channel_ = nullptr;
  asio::ip::tcp::socket writer = open_protected();
  send(writer, recorded);
  expect_forged({});
}

TEST_P(EveryProtection, CreditsGoBackSealed) {
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(GetParam(), keys_.to_reader);
  send(writer, frame(sealer, 1, std::byte{5}));
  ASSERT_TRUE(run_until([this] { return !reader_.slots.empty(); }));
  channel_->release(1);
  std::vector<std::byte> batch(2 * sizeof(tcp::Credit) + kTagBytes);
  ASSERT_TRUE(run_until([&] { return writer.available() >= batch.size(); }));
  asio::read(writer, asio::buffer(batch));
  std::vector<std::byte> changed = batch;
  changed[sizeof(tcp::Credit) + offsetof(tcp::Credit, slot)] ^= std::byte{1};
  Opener other(Protection::kAuthenticate, keys_.to_writer);
  EXPECT_FALSE(tcp::take_credits(changed, &other).is_ok());
  Opener opener(Protection::kAuthenticate, keys_.to_writer);
  const Result<tcp::CreditBatch> credits = tcp::take_credits(batch, &opener);
  ASSERT_TRUE(credits.is_ok());
  ASSERT_EQ(credits.value().size(), 1u);
  EXPECT_EQ(credits.value()[0].slot, 1u);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryProtection,
                         ::testing::Values(Protection::kAuthenticate, Protection::kEncrypt),
                         [](const ::testing::TestParamInfo<Protection>& info) {
                           return std::string(to_string(info.param));
                         });

TEST_F(TcpProtection, EncryptedBytesAreNotThoseOfTheFrame) {
  protect(Protection::kEncrypt);
  asio::ip::tcp::socket writer = open_protected();
  Sealer sealer(Protection::kEncrypt, keys_.to_reader);
  const std::vector<std::byte> bytes = frame(sealer, 1, std::byte{0x41});
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text.find("AAAA"), std::string::npos);
  EXPECT_EQ(text.find("RD"), std::string::npos) << "the magic of a header";
}

// Who has recorded a hello says it again; the real neighbour comes later, and gets the channel.
TEST_F(TcpProtection, AHelloThatIsPlayedBackDoesNotTakeTheChannel) {
  protect(Protection::kNone);
  expect_channel();
  const tcp::Hello recorded = hello_of(Protection::kNone);
  asio::ip::tcp::socket attacker = dial();
  asio::write(attacker, asio::buffer(&recorded, sizeof(recorded)));
  (void)await_reply(attacker);
  asio::ip::tcp::socket neighbour = dial();
  const tcp::Hello message = hello_of(Protection::kNone);
  asio::write(neighbour, asio::buffer(&message, sizeof(message)));
  await_welcome(neighbour, message);
  const tcp::HelloConfirm nothing;
  asio::write(attacker, asio::buffer(&nothing, sizeof(nothing)));
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(attacker));
  EXPECT_EQ(log_->count("did not confirm the answer"), 1);
  EXPECT_FALSE(reader_.closed);
}

TEST_F(TcpProtection, AChannelThatIsWithdrawnIsNotConfirmed) {
  protect(Protection::kNone);
  expect_channel();
  const tcp::Hello message = hello_of(Protection::kNone);
  asio::ip::tcp::socket peer = dial();
  asio::write(peer, asio::buffer(&message, sizeof(message)));
  tcp::HelloConfirm confirm;
  sign(confirm, message, await_reply(peer), token_);
  transport_->cancel_expect(id_);
  asio::write(peer, asio::buffer(&confirm, sizeof(confirm)));
  ASSERT_TRUE(run_until_rejected(1));
  EXPECT_TRUE(is_hung_up(peer));
  EXPECT_EQ(log_->count("is not expected any more"), 1);
  EXPECT_EQ(channel_, nullptr);
}

TEST_F(TcpProtection, AConfirmationOfAnotherAnswerIsNone) {
  protect(Protection::kNone);
  expect_channel();
  const tcp::Hello message = hello_of(Protection::kNone);
  tcp::HelloConfirm recorded;
  {
    asio::ip::tcp::socket once = dial();
    asio::write(once, asio::buffer(&message, sizeof(message)));
    sign(recorded, message, await_reply(once), token_);
  }
  asio::ip::tcp::socket again = dial();
  asio::write(again, asio::buffer(&message, sizeof(message)));
  (void)await_reply(again);
  asio::write(again, asio::buffer(&recorded, sizeof(recorded)));
  ASSERT_TRUE(run_until_rejected(2));
  EXPECT_EQ(channel_, nullptr);
  EXPECT_EQ(log_->count("did not confirm the answer"), 1);
}

TEST_F(TcpProtection, NeitherEndCanBeTalkedOutOfIt) {
  for (const auto& [ours, theirs] : {std::pair{Protection::kEncrypt, Protection::kNone},
                                     std::pair{Protection::kNone, Protection::kEncrypt},
                                     std::pair{Protection::kEncrypt, Protection::kAuthenticate}}) {
    protect(ours);
    auto other = make_tcp_transport(io_, {.protection = theirs});
    std::optional<Status> reading, writing;
    AcceptOptions accept;
    accept.id = id_;
    accept.token = token_;
    accept.slots = {memory_.data(), 2, 64, key_};
    accept.timeout_ms = 20'000;
    accept.events = &reader_;
    transport_->expect(
        accept, [&](Result<std::unique_ptr<ReceiveChannel>> result) { reading = result.status(); });
    testing::Writer writer;
    ConnectOptions connect;
    connect.address = address_;
    connect.id = id_;
    connect.token = token_;
    connect.slot_count = 2;
    connect.slot_bytes = 64;
    connect.timeout_ms = 20'000;
    connect.events = &writer;
    other->connect(connect,
                   [&](Result<std::unique_ptr<SendChannel>> result) { writing = result.status(); });
    ASSERT_TRUE(run_until([&] { return reading && writing; }));
    for (const Status& status : {*reading, *writing}) {
      EXPECT_EQ(status.code(), Code::kMismatch);
      for (const Protection one : {ours, theirs}) {
        if (one == Protection::kNone) continue;
        EXPECT_NE(status.message().find(std::string("with --data-protection ") + to_string(one)),
                  std::string::npos)
            << status.message();
      }
    }
  }
}

}  // namespace
}  // namespace rueda::transport
