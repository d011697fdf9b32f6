// Tests channels over several streams: what goes over which stream, and what happens when streams
// come and go one by one. tests/conformance has what is true of every channel.
#include "daemon/transport/striped.h"

#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "daemon/transport/tcp/tcp_transport.h"

namespace rueda::transport {
namespace {

constexpr uint32_t kSlots = 16;
constexpr uint32_t kSlotBytes = 256 << 10;

struct FakeSend final : SendChannel {
  struct Log {
    SendEvents* events = nullptr;
    std::vector<uint32_t> slots;
    bool is_closed = false;
  };
  explicit FakeSend(Log& l) : log(l) {}
  ~FakeSend() override { close(); }
  bool slot_free(uint32_t) const override { return true; }
  void write(const FrameHeader& header, std::span<const SendBuffer>, uint64_t) override {
    log.slots.push_back(header.slot);
  }
  void close() override { log.is_closed = true; }
  uint64_t bytes_sent() const override { return 10; }
  Log& log;
};

struct FakeReceive final : ReceiveChannel {
  struct Log {
    ReceiveEvents* events = nullptr;
    std::vector<uint32_t> released;
    std::vector<uint32_t> released_with_others;
    bool is_closed = false;
  };
  explicit FakeReceive(Log& l) : log(l) {}
  ~FakeReceive() override { close(); }
  void release(uint32_t slot) override { log.released.push_back(slot); }
  void release_with_others(uint32_t slot) override { log.released_with_others.push_back(slot); }
  void close() override { log.is_closed = true; }
  uint64_t bytes_received() const override { return 10; }
  Log& log;
};

// A transport whose streams open, or fail, when the test says so.
struct FakeTransport final : Transport {
  const char* name() const override { return "fake"; }
  Status is_viable() const override { return Status::ok(); }
  Result<std::string> listen(const std::string& address) override { return address; }
  void expect(AcceptOptions options, AcceptHandler handler) override {
    EXPECT_EQ(options.streams, options.id.stream < 4 ? 4u : 1u);
    receives[options.id.stream].events = options.events;
    expecting[options.id.stream] = std::move(handler);
  }
  void cancel_expect(const ChannelId& id) override { expecting.erase(id.stream); }
  void connect(ConnectOptions options, ConnectHandler handler) override {
    EXPECT_EQ(options.streams, options.id.stream < 4 ? 4u : 1u);
    sends[options.id.stream].events = options.events;
    connecting[options.id.stream] = std::move(handler);
  }
  void cancel_connect(const ChannelId& id) override { connecting.erase(id.stream); }
  Result<RegionKey> register_region(std::span<std::byte>) override { return RegionKey{1}; }
  void deregister_region(RegionKey) override {}
  uint64_t rejected() const override { return 0; }
  void stop() override {}

  void accept(uint32_t stream) {
    const auto handler = expecting.extract(stream).mapped();
    handler(std::unique_ptr<ReceiveChannel>(new FakeReceive(receives[stream])));
  }
  void connected(uint32_t stream) {
    const auto handler = connecting.extract(stream).mapped();
    handler(std::unique_ptr<SendChannel>(new FakeSend(sends[stream])));
  }

  std::map<uint32_t, AcceptHandler> expecting;
  std::map<uint32_t, ConnectHandler> connecting;
  std::map<uint32_t, FakeSend::Log> sends;
  std::map<uint32_t, FakeReceive::Log> receives;
};

struct Events final : SendEvents, ReceiveEvents {
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t slot) override { freed.push_back(slot); }
  void on_frame(const FrameHeader& header, std::span<std::byte>) override {
    frames.push_back(header.slot);
  }
  void on_closed(const Status& status) override { closed = status; }
  std::vector<uint32_t> freed;
  std::vector<uint32_t> frames;
  std::optional<Status> closed;
};

const Status kEnd(Code::kNodeLost, "node 0 closed it");

class Striped : public ::testing::Test {
 protected:
  void connect() {
    ConnectOptions options;
    options.slot_count = kSlots;
    options.slot_bytes = kSlotBytes;
    options.timeout_ms = 60'000;
    options.events = &events_;
    striped_->connect(options, [this](Result<std::unique_ptr<SendChannel>> result) {
      outcome_ = result.status();
      if (result.is_ok()) send_ = std::move(result).value();
    });
  }
  void open_send() {
    connect();
    for (uint32_t stream = 0; stream < 4; ++stream) fake_->connected(stream);
    ASSERT_TRUE(send_);
  }
  void expect(int64_t timeout_ms = 60'000) {
    AcceptOptions options;
    options.slots.count = kSlots;
    options.timeout_ms = timeout_ms;
    options.events = &events_;
    striped_->expect(options, [this](Result<std::unique_ptr<ReceiveChannel>> result) {
      outcome_ = result.status();
      if (result.is_ok()) receive_ = std::move(result).value();
    });
  }
  void open_receive(int64_t timeout_ms = 60'000) {
    expect(timeout_ms);
    for (const uint32_t stream : {2u, 0u, 3u, 1u}) fake_->accept(stream);
    ASSERT_TRUE(receive_);
  }
  void write(uint32_t slot, uint32_t bytes) {
    FrameHeader header;
    header.slot = slot;
    header.payload_bytes = bytes;
    send_->write(header, {}, slot);
  }
  void arrive(uint32_t stream, uint32_t slot) {
    FrameHeader header;
    header.slot = slot;
    fake_->receives[stream].events->on_frame(header, {});
  }
  void end(uint32_t stream, const Status& status = kEnd) {
    fake_->receives[stream].events->on_closed(status);
  }

  boost::asio::io_context io_{1};
  FakeTransport* fake_ = new FakeTransport;
  std::unique_ptr<Transport> striped_ =
      make_striped_transport(io_, std::unique_ptr<Transport>(fake_), 4);
  Events events_;
  std::optional<Status> outcome_;
  std::unique_ptr<SendChannel> send_;
  std::unique_ptr<ReceiveChannel> receive_;
};

using Slots = std::vector<uint32_t>;

TEST_F(Striped, OneStreamIsTheTransportItself) {
  auto inner = std::make_unique<FakeTransport>();
  const Transport* const same = inner.get();
  EXPECT_EQ(make_striped_transport(io_, std::move(inner), 1).get(), same);
}

TEST_F(Striped, AChannelThatNamesAStreamIsThatStreamAlone) {
  ConnectOptions options;
  options.id.stream = 9;
  striped_->connect(options, [](const auto&) {});
  AcceptOptions accept;
  accept.id = options.id;
  striped_->expect(accept, [](const auto&) {});
  EXPECT_TRUE(fake_->connecting.contains(9) && fake_->expecting.contains(9));
  striped_->cancel_connect(options.id);
  striped_->cancel_expect(options.id);
  EXPECT_TRUE(fake_->connecting.empty() && fake_->expecting.empty());
}

TEST_F(Striped, LargeFramesSpread) {
  open_send();
  for (uint32_t slot = 0; slot < 8; ++slot) write(slot, kSlotBytes);
  for (uint32_t stream = 0; stream < 4; ++stream) {
    EXPECT_EQ(fake_->sends[stream].slots, (Slots{stream, stream + 4}));
  }
  EXPECT_EQ(send_->bytes_sent(), 40u);
}

TEST_F(Striped, FramesKeepToTheStreamsThatAreInUse) {
  open_send();
  send_->use_streams(2);
  for (uint32_t slot = 0; slot < 4; ++slot) write(slot, kSlotBytes);
  EXPECT_EQ(fake_->sends[1].slots, (Slots{1, 3}));
  EXPECT_TRUE(fake_->sends[2].slots.empty() && fake_->sends[3].slots.empty());
  for (const uint32_t streams : {0u, 100u}) {
    send_->use_streams(streams);
    for (uint32_t slot = 0; slot < 2; ++slot) write(4 + slot + 2 * (streams > 0), kSlotBytes);
  }
  EXPECT_EQ(fake_->sends[2].slots.size() + fake_->sends[3].slots.size(), 4u) << "all of them";
}

TEST_F(Striped, SmallFramesStayTogether) {
  open_send();
  for (uint32_t slot = 0; slot < 8; ++slot) write(slot, 1000);
  EXPECT_EQ(fake_->sends[0].slots.size(), 8u);
}

TEST_F(Striped, ASlowStreamGetsLess) {
  open_send();
  for (uint32_t slot = 0; slot < 4; ++slot) write(slot, kSlotBytes);
  // The frames of streams 1 to 3 have been taken, and those of stream 0 have not.
  for (uint32_t round = 1; round <= 3; ++round) {
    for (uint32_t stream = 1; stream < 4; ++stream) {
      const uint32_t slot = fake_->sends[stream].slots.back();
      fake_->sends[stream].events->on_slot_free(slot);
      EXPECT_TRUE(send_->slot_free(slot));
    }
    for (uint32_t slot = 1; slot < 4; ++slot) write(slot, kSlotBytes);
  }
  EXPECT_EQ(fake_->sends[0].slots.size(), 1u);
  for (uint32_t stream = 1; stream < 4; ++stream) EXPECT_EQ(fake_->sends[stream].slots.size(), 4u);
}

TEST_F(Striped, ACreditGoesBackWhereItsFrameCame) {
  open_receive();
  arrive(2, 7);
  arrive(0, 3);
  receive_->release(7);
  receive_->release(3);
  arrive(1, 7);
  receive_->release(7);
  EXPECT_EQ(fake_->receives[2].released, Slots{7});
  EXPECT_EQ(fake_->receives[0].released, Slots{3});
  EXPECT_EQ(fake_->receives[1].released, Slots{7});
  arrive(2, 5);
  receive_->release_with_others(5);
  EXPECT_EQ(fake_->receives[2].released_with_others, Slots{5});
  EXPECT_EQ(fake_->receives[2].released, Slots{7});
}

TEST_F(Striped, OtherStreamsFollowTheFirst) {
  connect();
  EXPECT_EQ(fake_->connecting.size(), 1u);
  fake_->connected(0);
  EXPECT_EQ(fake_->connecting.size(), 3u);
  const auto handler = fake_->connecting.extract(2).mapped();
  handler(Status(Code::kTimeout, "too late"));
  EXPECT_EQ(outcome_->code(), Code::kTimeout);
  EXPECT_TRUE(fake_->connecting.empty());
  EXPECT_TRUE(fake_->sends[0].is_closed);
}

TEST_F(Striped, WhatIsWithdrawnIsClosed) {
  connect();
  fake_->connected(0);
  striped_->cancel_connect({});
  EXPECT_TRUE(fake_->connecting.empty());
  EXPECT_TRUE(fake_->sends[0].is_closed);
  expect();
  fake_->accept(3);
  striped_->cancel_expect({});
  EXPECT_TRUE(fake_->expecting.empty());
  EXPECT_TRUE(fake_->receives[3].is_closed);
  EXPECT_FALSE(outcome_);
}

TEST_F(Striped, TheWriterEndsWithItsFirstStream) {
  open_send();
  fake_->sends[2].events->on_closed(kEnd);
  EXPECT_TRUE(events_.closed);
  for (uint32_t stream = 0; stream < 4; ++stream) EXPECT_TRUE(fake_->sends[stream].is_closed);
  EXPECT_FALSE(send_->slot_free(0));
}

TEST_F(Striped, AStreamThatEndsBeforeTheOthersAreOpenIsToldBehind) {
  connect();
  fake_->connected(0);
  fake_->sends[0].events->on_closed(kEnd);
  for (uint32_t stream = 1; stream < 4; ++stream) fake_->connected(stream);
  EXPECT_TRUE(send_);
  EXPECT_FALSE(events_.closed);
  io_.poll();
  EXPECT_TRUE(events_.closed);
}

TEST_F(Striped, WhatComesBeforeTheChannelIsOpenIsKept) {
  expect();
  for (uint32_t stream = 0; stream < 3; ++stream) fake_->accept(stream);
  arrive(1, 5);
  for (uint32_t stream = 0; stream < 3; ++stream) end(stream);
  fake_->accept(3);
  ASSERT_TRUE(receive_);
  arrive(3, 6);
  end(3);
  EXPECT_TRUE(events_.frames.empty() && !events_.closed);
  io_.poll();
  EXPECT_EQ(events_.frames, (Slots{5, 6}));
  EXPECT_TRUE(events_.closed);
}

TEST_F(Striped, TheReaderTakesWhatIsInTheOtherStreams) {
  open_receive();
  end(0);
  end(2);
  arrive(1, 4);
  end(1);
  arrive(3, 5);
  EXPECT_FALSE(events_.closed);
  end(3);
  EXPECT_EQ(events_.frames, (Slots{4, 5}));
  EXPECT_EQ(events_.closed->code(), Code::kNodeLost);
}

TEST_F(Striped, AStreamThatBrokeAloneIsWaitedForNoLongerThanTheTimeout) {
  open_receive(20);
  end(1);
  io_.run_one_for(std::chrono::seconds(20));
  ASSERT_TRUE(events_.closed);
  EXPECT_EQ(events_.closed->message(), kEnd.message());
  EXPECT_TRUE(fake_->receives[0].is_closed);
}

TEST_F(Striped, ABrokenRuleEndsAllAtOnce) {
  open_receive();
  end(1, Status(Code::kInternal, "garbage"));
  ASSERT_TRUE(events_.closed);
  EXPECT_EQ(events_.closed->message(), "garbage");
  EXPECT_TRUE(fake_->receives[0].is_closed);
}

TEST_F(Striped, ASlotTakesNoFramesOfTwoStreams) {
  open_receive();
  arrive(0, 9);
  arrive(1, 9);
  ASSERT_TRUE(events_.closed);
  EXPECT_EQ(events_.closed->code(), Code::kInternal);
  EXPECT_NE(events_.closed->message().find("slot 9"), std::string::npos);
}

TEST(StripedTcp, AnotherNumberOfStreamsFailsBothEndsAndIsNamed) {
  boost::asio::io_context io{1};
  const auto writer = make_striped_transport(io, make_tcp_transport(io), 4);
  const auto reader = make_tcp_transport(io);
  std::vector<std::byte> memory(64);
  Events events;
  AcceptOptions accept;
  accept.slots = {memory.data(), 1, 64, reader->register_region(memory).value()};
  accept.timeout_ms = 20'000;
  accept.events = &events;
  std::vector<Status> told;
  reader->expect(accept, [&](const auto& result) { told.push_back(result.status()); });
  ConnectOptions connect;
  connect.address = reader->listen("127.0.0.1:0").value();
  connect.slot_count = 1;
  connect.slot_bytes = 64;
  connect.timeout_ms = 20'000;
  connect.events = &events;
  writer->connect(connect, [&](const auto& result) { told.push_back(result.status()); });
  while (told.size() < 2) ASSERT_GT(io.run_one_for(std::chrono::seconds(30)), 0u);
  for (const Status& status : told) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("over 4 streams"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("over 1 stream "), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace rueda::transport
