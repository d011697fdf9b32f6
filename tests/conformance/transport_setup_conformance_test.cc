// Tests how channels are opened, refused and withdrawn, on every transport.
#include "tests/conformance/transport_harness.h"

namespace rueda::transport {
namespace {

using Sending = Result<std::unique_ptr<SendChannel>>;
using Receiving = Result<std::unique_ptr<ReceiveChannel>>;

// Holds the outcome of an expect() or a connect(), and the channel if there is one.
template <class Channel>
struct Outcome {
  std::function<void(Result<std::unique_ptr<Channel>>)> handler() {
    return [this](Result<std::unique_ptr<Channel>> result) {
      EXPECT_FALSE(status.has_value()) << "a handler called twice";
      status = result.status();
      if (result.is_ok()) channel = std::move(result).value();
    };
  }
  bool is_ok() const { return status && status->is_ok(); }
  std::optional<Status> status;
  std::unique_ptr<Channel> channel;
};

bool mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class TransportSetupConformance : public TransportConformance {
 protected:
  ConnectOptions to_right(const ChannelId& id = channel_id()) {
    return connect_options(id, 2, 64, writer_);
  }
  AcceptOptions from_left(const ChannelId& id = channel_id()) {
    return accept_options(id, 2, 64, slots_, reader_);
  }
  bool run_until_both() {
    return loop_.run_until([&] { return sending_.status && receiving_.status; });
  }

  Region slots_{*right_, 128};
  Writer writer_;
  Reader reader_;
  Outcome<SendChannel> sending_;
  Outcome<ReceiveChannel> receiving_;
};

TEST_P(TransportSetupConformance, HasANameAndWorksHere) {
  EXPECT_EQ(GetParam().name.substr(0, 3), std::string(left_->name()).substr(0, 3));
  EXPECT_TRUE(left_->is_viable().is_ok());
}

TEST_P(TransportSetupConformance, ATakenAddressIsNamed) {
  const Result<std::string> again = left_->listen(right_address_);
  ASSERT_FALSE(again.is_ok());
  EXPECT_EQ(again.status().code(), Code::kUnavailable);
  EXPECT_TRUE(mentions(again.status(), right_address_));
  EXPECT_EQ(left_->listen("no address").status().code(), Code::kInvalidArgument);
}

TEST_P(TransportSetupConformance, ExpectFirst) {
  right_->expect(from_left(), receiving_.handler());
  loop_.settle();
  left_->connect(to_right(), sending_.handler());
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
  EXPECT_EQ(right_->rejected(), 0u);
}

// Neighbours of healthy jobs, which begin at different times, were once counted and logged as
// strangers.
TEST_P(TransportSetupConformance, APeerThatComesBeforeItIsExpectedIsNotRejected) {
  left_->connect(to_right(), sending_.handler());
  // Another attempt that times out later shows that the peer has had time to come.
  Outcome<SendChannel> marker;
  ConnectOptions nowhere = to_right(channel_id(9));
  nowhere.address = GetParam().dead_address;
  nowhere.timeout_ms = kShortMs;
  left_->connect(nowhere, marker.handler());
  ASSERT_TRUE(loop_.run_until([&] { return marker.status.has_value(); }));
  EXPECT_FALSE(sending_.status);
  right_->expect(from_left(), receiving_.handler());
  EXPECT_FALSE(receiving_.status) << "no handler is called from inside expect()";
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
  EXPECT_EQ(right_->rejected(), 0u);
}

TEST_P(TransportSetupConformance, AStrangerThatComesFirstDoesNotTakeThePlace) {
  std::unique_ptr<Transport> elsewhere = factory_(loop_.io());
  Writer impostor;
  Outcome<SendChannel> outcome;
  ConnectOptions stranger = connect_options(channel_id(), 2, 64, impostor);
  stranger.token = token_of(2);
  elsewhere->connect(stranger, outcome.handler());
  loop_.settle();
  left_->connect(to_right(), sending_.handler());
  loop_.settle();
  right_->expect(from_left(), receiving_.handler());
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
  EXPECT_FALSE(outcome.status);
}

TEST_P(TransportSetupConformance, ConnectBeforeThePeerListens) {
  std::unique_ptr<Transport> late = factory_(loop_.io());
  const std::string address = late->listen(GetParam().any_address).value();
  late.reset();
  ConnectOptions options = to_right();
  options.address = address;
  left_->connect(options, sending_.handler());
  loop_.settle();
  late = factory_(loop_.io());
  ASSERT_TRUE(late->listen(address).is_ok());
  Region slots(*late, 128);
  late->expect(accept_options(channel_id(), 2, 64, slots, reader_), receiving_.handler());
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
}

TEST_P(TransportSetupConformance, AWrongTokenGetsNowhereAndBlocksNobody) {
  right_->expect(from_left(), receiving_.handler());
  ConnectOptions stranger = to_right();
  stranger.token = token_of(2);
  // The refusal must have come before, also where a sanitizer makes gRPC slow.
  stranger.timeout_ms = 5 * kShortMs;
  left_->connect(stranger, sending_.handler());
  ASSERT_TRUE(loop_.run_until([&] { return sending_.status.has_value(); }));
  EXPECT_EQ(sending_.status->code(), Code::kTimeout);
  EXPECT_TRUE(mentions(*sending_.status, right_address_)) << sending_.status->message();
  EXPECT_TRUE(mentions(*sending_.status, "token")) << sending_.status->message();
  EXPECT_GT(right_->rejected(), 0u);
  EXPECT_FALSE(receiving_.status);

  sending_.status.reset();
  left_->connect(to_right(), sending_.handler());
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
}

TEST_P(TransportSetupConformance, OtherSlotsFailBothEndsAtOnce) {
  right_->expect(from_left(), receiving_.handler());
  left_->connect(connect_options(channel_id(), 3, 64, writer_), sending_.handler());
  ASSERT_TRUE(run_until_both());
  for (const Status& status : {*sending_.status, *receiving_.status}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(mentions(status, "3 slots") && mentions(status, "2 slots")) << status.message();
  }
  EXPECT_EQ(right_->rejected(), 1u);
}

TEST_P(TransportSetupConformance, NobodyComes) {
  AcceptOptions options = from_left();
  options.timeout_ms = kShortMs;
  right_->expect(options, receiving_.handler());
  EXPECT_FALSE(receiving_.status);
  ASSERT_TRUE(loop_.run_until([&] { return receiving_.status.has_value(); }));
  EXPECT_EQ(receiving_.status->code(), Code::kTimeout);
  EXPECT_TRUE(mentions(*receiving_.status, "node 0")) << receiving_.status->message();
}

TEST_P(TransportSetupConformance, NobodyIsThere) {
  ConnectOptions options = to_right();
  options.address = GetParam().dead_address;
  options.timeout_ms = kShortMs;
  left_->connect(options, sending_.handler());
  EXPECT_FALSE(sending_.status);
  ASSERT_TRUE(loop_.run_until([&] { return sending_.status.has_value(); }));
  EXPECT_EQ(sending_.status->code(), Code::kTimeout);
  EXPECT_TRUE(mentions(*sending_.status, GetParam().dead_address));
}

TEST_P(TransportSetupConformance, BadOptionsAreRefusedFromTheLoop) {
  ConnectOptions no_address = to_right();
  no_address.address = "nonsense";
  left_->connect(no_address, sending_.handler());
  AcceptOptions unregistered = from_left();
  unregistered.slots.count = 3;
  right_->expect(unregistered, receiving_.handler());
  EXPECT_FALSE(sending_.status || receiving_.status);
  ASSERT_TRUE(run_until_both());
  EXPECT_EQ(sending_.status->code(), Code::kInvalidArgument);
  EXPECT_EQ(receiving_.status->code(), Code::kInvalidArgument);
  EXPECT_EQ(left_->register_region({}).status().code(), Code::kInvalidArgument);
}

TEST_P(TransportSetupConformance, AWithdrawnExpectationIsGone) {
  right_->expect(from_left(), receiving_.handler());
  right_->cancel_expect(channel_id());
  right_->cancel_expect(channel_id());
  ConnectOptions options = to_right();
  options.timeout_ms = kShortMs;
  left_->connect(options, sending_.handler());
  ASSERT_TRUE(loop_.run_until([&] { return sending_.status.has_value(); }));
  EXPECT_EQ(sending_.status->code(), Code::kTimeout);
  EXPECT_FALSE(receiving_.status);
}

TEST_P(TransportSetupConformance, AWithdrawnConnectIsGone) {
  AcceptOptions options = from_left();
  options.timeout_ms = kShortMs;
  left_->connect(to_right(), sending_.handler());
  left_->cancel_connect(channel_id());
  left_->cancel_connect(channel_id());
  loop_.settle();
  right_->expect(options, receiving_.handler());
  ASSERT_TRUE(loop_.run_until([&] { return receiving_.status.has_value(); }));
  EXPECT_EQ(receiving_.status->code(), Code::kTimeout);
  EXPECT_FALSE(sending_.status);
}

TEST_P(TransportSetupConformance, StopWithdrawsEverythingButChannels) {
  right_->expect(from_left(), receiving_.handler());
  left_->connect(to_right(), sending_.handler());
  ASSERT_TRUE(run_until_both());
  Outcome<ReceiveChannel> withdrawn;
  Outcome<SendChannel> abandoned;
  AcceptOptions waiting = from_left(channel_id(7, 4));
  waiting.timeout_ms = kShortMs;
  right_->expect(waiting, withdrawn.handler());
  ConnectOptions trying = to_right(channel_id(7, 5));
  trying.timeout_ms = kShortMs;
  left_->connect(trying, abandoned.handler());
  right_->stop();
  left_->stop();
  writer_.channel = std::move(sending_.channel);
  write(writer_, channel_id(), 0, 0, {});
  ASSERT_TRUE(loop_.run_until([&] { return reader_.frames.size() == 1; }));
  // Another attempt that times out later shows that the withdrawn one has had time to call back.
  Outcome<SendChannel> marker;
  std::unique_ptr<Transport> other = factory_(loop_.io());
  ConnectOptions nowhere = to_right();
  nowhere.timeout_ms = 2 * kShortMs;
  other->connect(nowhere, marker.handler());
  ASSERT_TRUE(loop_.run_until([&] { return marker.status.has_value(); }));
  EXPECT_EQ(marker.status->code(), Code::kTimeout);
  EXPECT_FALSE(withdrawn.status || abandoned.status);
}

TEST_P(TransportSetupConformance, AnOpenChannelCannotBeTakenOver) {
  right_->expect(from_left(), receiving_.handler());
  left_->connect(to_right(), sending_.handler());
  ASSERT_TRUE(run_until_both());
  std::unique_ptr<Transport> second = factory_(loop_.io());
  Writer impostor;
  Outcome<SendChannel> outcome;
  ConnectOptions options = connect_options(channel_id(), 2, 64, impostor);
  options.timeout_ms = kShortMs;
  second->connect(options, outcome.handler());
  ASSERT_TRUE(loop_.run_until([&] { return outcome.status.has_value(); }));
  EXPECT_EQ(outcome.status->code(), Code::kTimeout);
  writer_.channel = std::move(sending_.channel);
  write(writer_, channel_id(), 1, 5, {});
  ASSERT_TRUE(loop_.run_until([&] { return reader_.frames.size() == 1; }));
  EXPECT_FALSE(writer_.closed || reader_.closed);
}

TEST_P(TransportSetupConformance, ChannelsOfTwoJobsDoNotMix) {
  Region other_slots(*right_, 128);
  Writer other_writer;
  Reader other_reader;
  const ChannelId other = channel_id(8);
  open(writer_, reader_, slots_, channel_id(), 2, 64);
  open(other_writer, other_reader, other_slots, other, 2, 64);
  write(other_writer, other, 1, 21, {});
  write(writer_, channel_id(), 0, 20, {});
  ASSERT_TRUE(loop_.run_until(
      [&] { return reader_.frames.size() == 1 && other_reader.frames.size() == 1; }));
  EXPECT_EQ(reader_.frames[0].header.seq, 20u);
  EXPECT_EQ(other_reader.frames[0].header.seq, 21u);
  writer_.channel->close();
  ASSERT_TRUE(loop_.run_until([&] { return reader_.closed.has_value(); }));
  loop_.settle();
  EXPECT_FALSE(other_reader.closed || other_writer.closed);
}

TEST_P(TransportSetupConformance, TheSameIdMayBeOpenedAgainAfterItsChannelDied) {
  for (int round = 0; round < 3; ++round) {
    Writer writer;
    Reader reader;
    open(writer, reader, slots_, channel_id(), 2, 64);
    writer.channel.reset();
    ASSERT_TRUE(loop_.run_until([&] { return reader.closed.has_value(); }));
  }
}

TEST_P(TransportSetupConformance, HandlersMayDestroyTheirTransport) {
  right_->expect(from_left(), [&](Receiving result) {
    receiving_.handler()(std::move(result));
    right_.reset();
  });
  left_->connect(to_right(), [&](Sending result) {
    sending_.handler()(std::move(result));
    left_.reset();
  });
  ASSERT_TRUE(run_until_both());
  EXPECT_TRUE(sending_.is_ok() && receiving_.is_ok());
  writer_.channel = std::move(sending_.channel);
  write(writer_, channel_id(), 0, 1, {});
  EXPECT_TRUE(loop_.run_until([&] { return reader_.frames.size() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Every, TransportSetupConformance, ::testing::ValuesIn(all_fabrics()),
                         [](const ::testing::TestParamInfo<Fabric>& fabric) {
                           return fabric.param.name;
                         });

}  // namespace
}  // namespace rueda::transport
