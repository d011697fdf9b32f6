// Tests the byte formats of the TCP transport, without a socket.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/credit.h"
#include "daemon/transport/tcp/frame_reader.h"
#include "daemon/transport/tcp/hello.h"
#include "daemon/transport/tcp/log_limiter.h"
#include "daemon/transport/tcp/send_queue.h"

namespace rueda::transport::tcp {
namespace {

const ChannelId kId{JobKey(7), 3, 0, 1, 2};

JobToken token_of(uint8_t seed) {
  JobToken token;
  token.fill(std::byte(seed));
  return token;
}

Hello signed_hello() {
  Hello hello;
  hello.id = kId;
  hello.slot_count = 4;
  hello.slot_bytes = 64;
  sign(hello, token_of(1));
  return hello;
}

TEST(Hello, OnlyTheTokensHolderIsAuthentic) {
  const Hello hello = signed_hello();
  EXPECT_TRUE(is_authentic(hello, token_of(1)));
  EXPECT_FALSE(is_authentic(hello, token_of(2)));
}

TEST(Hello, EveryByteIsCoveredByTheMac) {
  for (size_t i = 0; i < sizeof(Hello); ++i) {
    Hello hello = signed_hello();
    reinterpret_cast<std::byte*>(&hello)[i] ^= std::byte{1};
    EXPECT_FALSE(is_authentic(hello, token_of(1))) << "byte " << i;
  }
}

TEST(Hello, EveryByteOfTheReplyAndItsHelloIsCoveredByTheMac) {
  const Hello hello = signed_hello();
  HelloReply reply;
  sign(reply, hello, token_of(1));
  EXPECT_TRUE(is_authentic(reply, hello, token_of(1)));
  EXPECT_FALSE(is_authentic(reply, hello, token_of(2)));
  for (size_t i = 0; i < sizeof(HelloReply); ++i) {
    HelloReply spoilt = reply;
    reinterpret_cast<std::byte*>(&spoilt)[i] ^= std::byte{0x80};
    EXPECT_FALSE(is_authentic(spoilt, hello, token_of(1))) << "byte " << i;
  }
  EXPECT_FALSE(is_authentic(reply, signed_hello(), token_of(1))) << "another nonce";
}

TEST(Hello, EveryByteOfTheConfirmationAndOfAllBeforeItIsCoveredByTheMac) {
  const Hello hello = signed_hello();
  HelloReply reply;
  sign(reply, hello, token_of(1));
  HelloConfirm confirm;
  sign(confirm, hello, reply, token_of(1));
  EXPECT_TRUE(check_confirm(confirm, hello, reply, token_of(1)).is_ok());
  EXPECT_FALSE(check_confirm(confirm, hello, reply, token_of(2)).is_ok());
  for (size_t i = 0; i < sizeof(HelloConfirm); ++i) {
    HelloConfirm spoilt = confirm;
    reinterpret_cast<std::byte*>(&spoilt)[i] ^= std::byte{0x80};
    EXPECT_FALSE(check_confirm(spoilt, hello, reply, token_of(1)).is_ok()) << "byte " << i;
  }
  HelloReply other;
  sign(other, hello, token_of(1));
  EXPECT_FALSE(check_confirm(confirm, hello, other, token_of(1)).is_ok()) << "another nonce";
  EXPECT_FALSE(check_confirm(confirm, signed_hello(), reply, token_of(1)).is_ok());
}

TEST(Hello, BothEndsHaveTheSameKeysAndNoOtherConnectionHas) {
  Hello hello = signed_hello();
  hello.protection = Protection::kEncrypt;
  sign(hello, token_of(1));
  HelloReply reply;
  reply.protection = Protection::kEncrypt;
  sign(reply, hello, token_of(1));
  const ChannelKeys keys = make_keys(hello, reply, token_of(1));
  EXPECT_EQ(make_keys(hello, reply, token_of(1)).to_reader, keys.to_reader);
  EXPECT_NE(keys.to_reader, keys.to_writer);
  HelloReply again = reply;
  sign(again, hello, token_of(1));
  EXPECT_NE(make_keys(hello, again, token_of(1)).to_reader, keys.to_reader);
  EXPECT_NE(make_keys(hello, reply, token_of(2)).to_reader, keys.to_reader);
}

TEST(Hello, NoncesDiffer) { EXPECT_NE(signed_hello().nonce, signed_hello().nonce); }

TEST(Hello, ThePrefixTellsStrangersAndVersions) {
  Hello hello = signed_hello();
  const auto prefix = [&hello] {
    return check_hello_prefix(std::as_bytes(std::span(&hello, 1)).first(kHelloPrefixBytes));
  };
  EXPECT_TRUE(prefix().is_ok());
  hello.version = 200;
  EXPECT_EQ(prefix().code(), Code::kVersion);
  std::memcpy(static_cast<void*>(&hello), "GET / HT", 8);
  EXPECT_EQ(prefix().code(), Code::kPermission);
}

TEST(Hello, AnUnknownAnswerIsNoAnswer) {
  HelloReply reply;
  EXPECT_TRUE(check_reply(reply).is_ok());
  reply.answer = HelloAnswer{9};
  EXPECT_EQ(check_reply(reply).code(), Code::kPermission);
  reply = HelloReply();
  reply.version = kWireVersion + 1;
  EXPECT_EQ(check_reply(reply).code(), Code::kVersion);
  reply = HelloReply();
  reply.magic = kHelloMagic;
  EXPECT_EQ(check_reply(reply).code(), Code::kPermission);
}

TEST(Address, IsParsedOrNamedInTheError) {
  EXPECT_EQ(parse_host_port("node-1:28401").value().host, "node-1");
  EXPECT_EQ(parse_host_port("node-1:28401").value().port, 28401);
  EXPECT_EQ(parse_host_port("[::1]:5").value().host, "::1");
  for (const char* bad : {"", "host", "host:", "host:x", "host:70000", "host:-1", "::1:5", "a]:5",
                          "host:1 ", "[::1:5"}) {
    const Status status = parse_host_port(bad).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find('"' + std::string(bad) + '"'), std::string::npos);
  }
}

TEST(Address, ListensOnNumbersOnly) {
  EXPECT_EQ(to_string(listen_endpoint("*:7").value()), "0.0.0.0:7");
  EXPECT_EQ(to_string(listen_endpoint(":7").value()), "0.0.0.0:7");
  EXPECT_EQ(to_string(listen_endpoint("localhost:7").value()), "127.0.0.1:7");
  EXPECT_EQ(to_string(listen_endpoint("[::]:7").value()), "[::]:7");
  EXPECT_EQ(listen_endpoint("example.org:7").status().code(), Code::kInvalidArgument);
}

TEST(LogLimiter, LetsAFewLinesASecondThrough) {
  LogLimiter limiter;
  uint64_t swallowed = 99;
  int logged = 0;
  for (int i = 0; i < 100; ++i) logged += limiter.allow(5000, swallowed) ? 1 : 0;
  EXPECT_EQ(logged, 5);
  EXPECT_EQ(swallowed, 0u);
  EXPECT_FALSE(limiter.allow(5999, swallowed));
  EXPECT_TRUE(limiter.allow(6000, swallowed));
  EXPECT_EQ(swallowed, 96u);
}

// Feeds a reader of 4 slots from a vector, in pieces of a given size.
class Feed {
 public:
  explicit Feed(uint32_t slot_bytes = 8192, const ChannelKeys& keys = {})
      : memory_(4 * slot_bytes),
        states_(4, SlotState::kWriters),
        reader_(kId, SlotRegion{memory_.data(), 4, slot_bytes, {}}, states_, "node 0", nullptr,
                keys) {}

  // Returns the first violation.
  Status feed(std::span<const std::byte> stream, size_t piece_bytes) {
    while (!stream.empty()) {
      size_t piece = std::min(piece_bytes, stream.size());
      const std::array<asio::mutable_buffer, 2> space = reader_.space();
      piece = asio::buffer_copy(space, asio::buffer(stream.data(), piece));
      EXPECT_GT(piece, 0u);
      reader_.filled(piece);
      stream = stream.subspan(piece);
      while (true) {
        auto frame = reader_.next();
        if (!frame.is_ok()) return frame.status();
        if (!frame.value()) break;
        headers.push_back(frame.value()->header);
        payloads.emplace_back(frame.value()->payload.begin(), frame.value()->payload.end());
        if (releases) states_[frame.value()->header.slot] = SlotState::kWriters;
      }
    }
    return Status::ok();
  }
  const FrameReader& reader() const { return reader_; }

  bool releases = true;
  std::vector<FrameHeader> headers;
  std::vector<std::vector<std::byte>> payloads;

 private:
  std::vector<std::byte> memory_;
  SlotStates states_;
  FrameReader reader_;
};

void append_frame(std::vector<std::byte>& stream, uint32_t slot, uint64_t seq, size_t bytes) {
  FrameHeader header;
  header.job = kId.job.first;
  header.epoch = kId.epoch;
  header.slot = slot;
  header.seq = seq;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  const auto raw = std::as_bytes(std::span(&header, 1));
  stream.insert(stream.end(), raw.begin(), raw.end());
  for (size_t i = 0; i < bytes; ++i) stream.push_back(std::byte(seq + i * 3));
}

TEST(FrameReader, CutsTheSameFramesHoweverTheBytesCome) {
  std::vector<std::byte> stream;
  std::mt19937 random(1);
  for (uint64_t seq = 0; seq < 60; ++seq) {
    const size_t bytes = seq % 3 == 0 ? random() % 10 : seq % 7 == 0 ? 8192 : random() % 8193;
    append_frame(stream, seq % 4, seq, bytes);
  }
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4096},
                             size_t{10'000}, stream.size()}) {
    Feed feed;
    ASSERT_TRUE(feed.feed(stream, piece).is_ok());
    ASSERT_EQ(feed.headers.size(), 60u) << "pieces of " << piece;
    EXPECT_TRUE(feed.reader().at_boundary());
    for (uint64_t seq = 0; seq < 60; ++seq) {
      EXPECT_EQ(feed.headers[seq].seq, seq);
      ASSERT_EQ(feed.payloads[seq].size(), feed.headers[seq].payload_bytes);
      for (size_t i = 0; i < feed.payloads[seq].size(); ++i) {
        ASSERT_EQ(feed.payloads[seq][i], std::byte(seq + i * 3));
      }
    }
  }
}

TEST(FrameReader, KnowsWhetherItStandsInAFrame) {
  std::vector<std::byte> stream;
  append_frame(stream, 0, 0, 10);
  Feed feed;
  EXPECT_TRUE(feed.reader().at_boundary());
  ASSERT_TRUE(feed.feed(std::span(stream).first(20), 20).is_ok());
  EXPECT_FALSE(feed.reader().at_boundary());
  ASSERT_TRUE(feed.feed(std::span(stream).subspan(20, 50), 50).is_ok());
  EXPECT_FALSE(feed.reader().at_boundary());
  ASSERT_TRUE(feed.feed(std::span(stream).subspan(70), 4).is_ok());
  EXPECT_TRUE(feed.reader().at_boundary());
}

TEST(FrameReader, AHeldSlotIsNotOverwritten) {
  std::vector<std::byte> stream;
  append_frame(stream, 2, 0, 10);
  append_frame(stream, 2, 1, 10);
  Feed feed;
  feed.releases = false;
  const Status status = feed.feed(stream, stream.size());
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("slot 2 still holds"), std::string::npos);
  EXPECT_EQ(feed.headers.size(), 1u);
}

TEST(SendQueue, GathersWhateverIsLeftOfItsFrames) {
  std::vector<std::byte> memory(1000);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 5);
  SendQueue queue(3, 1000);
  std::vector<std::byte> expected, wire;
  uint64_t pushed = 0, popped = 0;
  std::mt19937 random(3);
  while (popped < 500) {
    while (pushed < 500 && pushed - popped < 3) {
      const SendBuffer parts[] = {{memory.data(), random() % 300, {}},
                                  {memory.data() + 300, 0, {}},
                                  {memory.data() + 400, random() % 600, {}}};
      FrameHeader header;
      header.slot = static_cast<uint32_t>(pushed % 3);
      header.payload_bytes = static_cast<uint32_t>(parts[0].bytes + parts[2].bytes);
      const auto raw = std::as_bytes(std::span(&header, 1));
      expected.insert(expected.end(), raw.begin(), raw.end());
      for (const SendBuffer& part : parts) {
        expected.insert(expected.end(), part.data, part.data + part.bytes);
      }
      queue.push(header, parts, pushed++);
    }
    std::array<asio::const_buffer, 64> out;
    const size_t count = queue.gather(out, random() % 2000 + 1);
    ASSERT_GT(count, 0u);
    size_t take = random() % 1500;
    size_t taken = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto* bytes = static_cast<const std::byte*>(out[i].data());
      const size_t some = std::min(take - taken, out[i].size());
      wire.insert(wire.end(), bytes, bytes + some);
      taken += some;
    }
    queue.sent(taken);
    SendQueue::Sent done;
    while (queue.pop_sent(done)) {
      EXPECT_EQ(done.cookie, popped);
      EXPECT_EQ(done.slot, popped % 3);
      ++popped;
    }
  }
  EXPECT_TRUE(queue.is_empty());
  EXPECT_TRUE(wire == expected);
}

// Returns the bytes of frames as a queue with these keys gives them out, a random number at a time.
std::vector<std::byte> sealed_stream(const ChannelKeys& keys, const std::vector<size_t>& sizes) {
  std::vector<std::byte> memory(8192);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 5);
  SendQueue queue(4, 8192, keys);
  std::vector<std::byte> wire;
  std::mt19937 random(4);
  size_t pushed = 0, popped = 0;
  while (popped < sizes.size()) {
    while (pushed < sizes.size() && pushed - popped < 4) {
      FrameHeader header;
      header.job = kId.job.first;
      header.epoch = kId.epoch;
      header.slot = static_cast<uint32_t>(pushed % 4);
      header.seq = pushed;
      header.payload_bytes = static_cast<uint32_t>(sizes[pushed]);
      const size_t first = sizes[pushed] / 3;
      const SendBuffer parts[] = {{memory.data(), first, {}},
                                  {memory.data() + first, sizes[pushed] - first, {}}};
      queue.push(header, parts, pushed++);
    }
    std::array<asio::const_buffer, 64> out;
    EXPECT_EQ(queue.gather(out, 1u << 20), 1u);
    const size_t take = random() % (out[0].size() + 1);
    const auto* const bytes = static_cast<const std::byte*>(out[0].data());
    wire.insert(wire.end(), bytes, bytes + take);
    queue.sent(take);
    SendQueue::Sent done;
    while (queue.pop_sent(done)) EXPECT_EQ(done.cookie, popped++);
  }
  EXPECT_TRUE(queue.is_empty());
  return wire;
}

TEST(SendQueue, WhatItSealsTheReaderOpensHoweverTheBytesCome) {
  std::vector<size_t> sizes{0, 1, 8192, 0, 4096};
  std::mt19937 random(5);
  while (sizes.size() < 60) sizes.push_back(random() % 8193);
  for (const Protection protection : {Protection::kAuthenticate, Protection::kEncrypt}) {
    const std::array<std::byte, 64> salt{};
    const ChannelKeys keys = derive_keys(protection, token_of(1), salt, kId);
    const std::vector<std::byte> wire = sealed_stream(keys, sizes);
    for (const size_t piece : {size_t{1}, size_t{79}, size_t{80}, size_t{81}, size_t{4096},
                               size_t{10'000}, wire.size()}) {
      Feed feed(8192, keys);
      ASSERT_TRUE(feed.feed(wire, piece).is_ok()) << "pieces of " << piece;
      ASSERT_EQ(feed.headers.size(), sizes.size());
      EXPECT_TRUE(feed.reader().at_boundary());
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(feed.headers[i].seq, i);
        ASSERT_EQ(feed.payloads[i].size(), sizes[i]);
        for (size_t b = 0; b < sizes[i]; ++b) ASSERT_EQ(feed.payloads[i][b], std::byte(b * 5));
      }
    }
  }
}

TEST(Credits, ABatchIsCutAndCheckedHoweverItComes) {
  const std::array<std::byte, 64> salt{};
  const ChannelKeys keys = derive_keys(Protection::kEncrypt, token_of(1), salt, kId);
  Sealer sealer(Protection::kAuthenticate, keys.to_writer);
  std::vector<Credit> credits(300);
  for (uint32_t i = 0; i < credits.size(); ++i) credits[i].slot = i;
  std::vector<std::byte> wire;
  append_credits(credits, &sealer, wire);
  EXPECT_EQ(wire.size(), 303 * sizeof(Credit) + 3 * kTagBytes) << "three batches";
  Opener opener(Protection::kAuthenticate, keys.to_writer);
  std::vector<std::byte> come;
  uint32_t taken = 0;
  for (const std::byte byte : wire) {
    come.push_back(byte);
    const Result<CreditBatch> batch = take_credits(come, &opener);
    ASSERT_TRUE(batch.is_ok());
    for (size_t i = 0; i < batch.value().size(); ++i) EXPECT_EQ(batch.value()[i].slot, taken++);
    if (batch.value().bytes != 0) come.clear();
  }
  EXPECT_EQ(taken, 300u);
}

TEST(Credits, ABatchOfImpossibleLengthIsRefusedBeforeItsTagHasCome) {
  const ChannelKeys keys =
      derive_keys(Protection::kEncrypt, token_of(1), std::array<std::byte, 64>{}, kId);
  for (const uint32_t count : {0u, kMaxBatchedCredits + 1}) {
    Credit head;
    head.kind = FrameKind::kCredits;
    head.slot = count;
    Opener opener(Protection::kAuthenticate, keys.to_writer);
    EXPECT_FALSE(take_credits(std::as_writable_bytes(std::span(&head, 1)), &opener).is_ok());
  }
}

TEST(Credit, IsCheckedBeforeItIsBelieved) {
  Credit credit;
  credit.slot = 3;
  EXPECT_TRUE(credit.is_valid(4));
  EXPECT_FALSE(credit.is_valid(3));
  Credit spoilt = credit;
  spoilt.magic ^= 1;
  EXPECT_FALSE(spoilt.is_valid(4));
  spoilt = credit;
  spoilt.version = kWireVersion + 1;
  EXPECT_FALSE(spoilt.is_valid(4));
  spoilt = credit;
  spoilt.kind = FrameKind::kReduce;
  EXPECT_FALSE(spoilt.is_valid(4));
}

}  // namespace
}  // namespace rueda::transport::tcp
