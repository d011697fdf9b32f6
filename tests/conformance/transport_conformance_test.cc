// Tests how channels behave once they are open, on every transport.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/fd.h"
#include "daemon/transport/seal.h"
#include "tests/conformance/transport_harness.h"

namespace rueda::transport {
namespace {

// Returns a byte that tells which frame it belongs to, and its place in the frame.
std::byte pattern(uint64_t seq, size_t offset) { return std::byte(seq * 131 + offset * 7 + 1); }

void fill(Region& region, size_t offset, uint64_t seq, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) region.data()[offset + i] = pattern(seq, i);
}

bool has_pattern(std::span<const std::byte> payload, uint64_t seq) {
  for (size_t i = 0; i < payload.size(); ++i) {
    if (payload[i] != pattern(seq, i)) return false;
  }
  return true;
}

// Keeps every free slot busy with frames of random sizes, in random parts, until all are written.
class Stream {
 public:
  Stream(Writer& writer, Region& memory, const ChannelId& id, uint32_t slots, size_t slot_bytes,
         uint64_t frames)
      : writer_(writer),
        memory_(memory),
        id_(id),
        slot_bytes_(slot_bytes),
        frames_(frames),
        slots_(slots) {
    writer_.when_free = [this](uint32_t slot) { write_next(slot); };
  }
  void start() {
    for (uint32_t slot = 0; slot < slots_; ++slot) write_next(slot);
  }
  uint64_t payload_bytes() const { return payload_bytes_; }

 private:
  void write_next(uint32_t slot) {
    if (next_seq_ == frames_) return;
    const uint64_t seq = next_seq_++;
    const size_t bytes = seq % 5 == 0 ? random_() % 8 : random_() % (slot_bytes_ + 1);
    payload_bytes_ += bytes;
    const size_t offset = slot * slot_bytes_;
    fill(memory_, offset, seq, bytes);
    std::vector<SendBuffer> parts;
    size_t done = 0;
    const size_t part_count = random_() % kMaxBuffersPerWrite;
    for (size_t i = 0; i < part_count; ++i) {
      const size_t piece = random_() % (bytes - done + 1);
      parts.push_back(memory_.part(offset + done, piece));
      done += piece;
    }
    parts.push_back(memory_.part(offset + done, bytes - done));
    writer_.channel->write(header_for(id_, slot, seq, bytes), parts, seq);
  }

  Writer& writer_;
  Region& memory_;
  const ChannelId id_;
  const size_t slot_bytes_;
  const uint64_t frames_;
  const uint32_t slots_;
  uint64_t next_seq_ = 0;
  uint64_t payload_bytes_ = 0;
  std::mt19937 random_{42};
};

// Checks order and content as frames come, and releases each at once. The frames of a slot come in
// order.
struct Checker {
  explicit Checker(Reader& r, bool releases_with_others = false) : reader(r) {
    reader.when_frame = [this, releases_with_others](const FrameHeader& header,
                                                     std::span<std::byte> payload) {
      uint64_t& next = next_of_slot[header.slot];
      in_order = in_order && header.seq >= next;
      next = header.seq + 1;
      came.push_back(header.seq);
      intact = intact && has_pattern(payload, header.seq);
      ++count;
      reader.frames.clear();
      if (releases_with_others && header.seq % 7 != 0) {
        reader.channel->release_with_others(header.slot);
      } else {
        reader.channel->release(header.slot);
      }
    };
  }
  Reader& reader;
  uint64_t count = 0;
  std::map<uint32_t, uint64_t> next_of_slot;
  std::vector<uint64_t> came;
  bool in_order = true;
  bool intact = true;
};

void expect_each_once(std::vector<uint64_t> found, uint64_t count) {
  std::vector<uint64_t> all(count);
  std::iota(all.begin(), all.end(), uint64_t{0});
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, all);
}

void sort_by_slot(std::vector<Reader::Frame>& frames) {
  std::sort(frames.begin(), frames.end(), [](const Reader::Frame& a, const Reader::Frame& b) {
    return a.header.slot < b.header.slot;
  });
}

TEST_P(TransportConformance, ThousandsOfFramesArriveOnceAndIntact) {
  constexpr uint32_t kSlots = 5;
  constexpr size_t kBytes = 20'000;
  constexpr uint64_t kFrames = 4000;
  Region slots(*right_, kSlots * kBytes), memory(*left_, kSlots * kBytes);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, kBytes);
  Stream stream(writer, memory, channel_id(), kSlots, kBytes, kFrames);
  Checker checker(reader);
  stream.start();
  ASSERT_TRUE(
      loop_.run_until([&] { return checker.count == kFrames && writer.freed.size() == kFrames; }));
  EXPECT_TRUE(checker.in_order);
  EXPECT_TRUE(checker.intact);
  expect_each_once(writer.sent, kFrames);
  expect_each_once(checker.came, kFrames);
  // Where frames are sealed header and payload have a tag each, and the payload may be empty.
  const uint64_t bare = kFrames * sizeof(FrameHeader) + stream.payload_bytes();
  const uint64_t tags = GetParam().is_sealed ? kFrames * kTagBytes : 0;
  EXPECT_GE(writer.channel->bytes_sent(), bare + tags);
  EXPECT_LE(writer.channel->bytes_sent(), bare + 2 * tags);
  EXPECT_EQ(reader.channel->bytes_received(), writer.channel->bytes_sent());
  EXPECT_FALSE(writer.closed || reader.closed);
}

TEST_P(TransportConformance, SlotsThatAreReleasedWithOthersComeBack) {
  constexpr uint32_t kSlots = 20;
  constexpr uint64_t kFrames = 500;
  Region slots(*right_, kSlots * 512), memory(*left_, kSlots * 512);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, 512);
  Stream stream(writer, memory, channel_id(), kSlots, 512, kFrames);
  Checker checker(reader, true);
  stream.start();
  ASSERT_TRUE(
      loop_.run_until([&] { return checker.count == kFrames && writer.freed.size() == kFrames; }));
  EXPECT_TRUE(checker.in_order);
  EXPECT_TRUE(checker.intact);
  EXPECT_FALSE(writer.closed || reader.closed);
}

TEST_P(TransportConformance, OneSlotUnderPressure) {
  constexpr uint64_t kFrames = 2000;
  Region slots(*right_, 512), memory(*left_, 512);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 1, 512);
  Stream stream(writer, memory, channel_id(), 1, 512, kFrames);
  Checker checker(reader);
  stream.start();
  ASSERT_TRUE(loop_.run_until([&] { return writer.freed.size() == kFrames; }));
  EXPECT_TRUE(checker.in_order && checker.intact);
  expect_each_once(writer.sent, kFrames);
  expect_each_once(checker.came, kFrames);
}

TEST_P(TransportConformance, FullSizeFramesOfManySlots) {
  constexpr uint32_t kSlots = 4;
  constexpr size_t kBytes = 3u << 20;
  Region slots(*right_, kSlots * kBytes), memory(*left_, kSlots * kBytes);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, kBytes);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    fill(memory, slot * kBytes, slot, kBytes);
    const SendBuffer part = memory.part(slot * kBytes, kBytes);
    write(writer, channel_id(), slot, slot, {&part, 1});
  }
  ASSERT_TRUE(loop_.run_until([&] { return reader.frames.size() == kSlots; }));
  sort_by_slot(reader.frames);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    ASSERT_EQ(reader.frames[slot].payload.size(), kBytes);
    EXPECT_TRUE(has_pattern(reader.frames[slot].payload, slot));
    EXPECT_EQ(std::memcmp(slots.data() + slot * kBytes, memory.data() + slot * kBytes, kBytes), 0);
  }
}

// A channel over gRPC once closed when more had been written in one turn of the loop than the
// reader's gRPC takes ahead and 64 MiB more.
TEST_P(TransportConformance, AllSlotsMayBeWrittenAtOnceHoweverMuchThatIs) {
  const uint32_t slot_count = GetParam().name == "grpc" ? 60 : 4;
  constexpr size_t kBytes = 3u << 20;
  Region slots(*right_, slot_count * kBytes), memory(*left_, kBytes);
  std::memset(memory.data(), 7, kBytes);
  Writer writer;
  Reader reader;
  uint32_t right = 0;
  reader.when_frame = [&](const FrameHeader& header, std::span<std::byte> payload) {
    const bool is_right = payload.size() == kBytes && payload[header.slot] == std::byte{7};
    right += is_right && std::memcmp(payload.data(), memory.data(), kBytes) == 0 ? 1 : 0;
    reader.frames.clear();
  };
  open(writer, reader, slots, channel_id(), slot_count, kBytes);
  const SendBuffer part = memory.part(0, kBytes);
  for (uint32_t slot = 0; slot < slot_count; ++slot) {
    write(writer, channel_id(), slot, slot, {&part, 1});
  }
  ASSERT_TRUE(loop_.run_until([&] { return right == slot_count; }));
  EXPECT_FALSE(writer.closed.has_value());
}

// A transport need not ask where a payload goes, but if it asks, it must follow the answer.
TEST_P(TransportConformance, PayloadsGoWhereTheyArePlaced) {
  constexpr uint32_t kSlots = 4;
  constexpr uint32_t kBytes = 40'000;
  constexpr uint64_t kFrames = 400;
  struct Placing final : Reader {
    std::byte* place(const FrameHeader& header) override {
      if (header.seq % 3 == 0) return nullptr;
      EXPECT_FALSE(std::exchange(is_placed[header.slot], true)) << "asked twice";
      return memory.data() + size_t{header.slot} * kBytes;
    }
    std::vector<std::byte> memory = std::vector<std::byte>(size_t{kSlots} * kBytes);
    std::array<bool, kSlots> is_placed{};
  } reader;
  Writer writer;
  Region slots(*right_, size_t{kSlots} * kBytes);
  Region memory(*left_, size_t{kSlots} * kBytes);
  const ChannelId id = channel_id();
  open(writer, reader, slots, id, kSlots, kBytes);
  uint64_t count = 0;
  uint64_t placed = 0;
  reader.when_frame = [&](const FrameHeader& header, std::span<std::byte> payload) {
    const size_t offset = size_t{header.slot} * kBytes;
    const bool was_placed = std::exchange(reader.is_placed[header.slot], false);
    EXPECT_EQ(payload.data(), (was_placed ? reader.memory.data() : slots.data()) + offset);
    EXPECT_TRUE(has_pattern(payload, header.seq)) << "frame " << header.seq;
    placed += was_placed ? 1 : 0;
    ++count;
    reader.frames.clear();
    reader.channel->release(header.slot);
  };
  Stream stream(writer, memory, id, kSlots, kBytes, kFrames);
  stream.start();
  ASSERT_TRUE(loop_.run_until([&] { return count == kFrames; }));
  const std::string& name = GetParam().name;
  const bool asks = name.find("tcp") != name.npos || name.find("grpc") != name.npos;
  EXPECT_EQ(placed, asks ? kFrames - (kFrames + 2) / 3 : 0);
}

// A transport need not send from the memory of a GPU, which is a file here, but it must say so, or
// do it.
TEST_P(TransportConformance, MemoryOfAnotherDeviceIsSentFromOrRefused) {
  constexpr uint32_t kBytes = 40'000;
  constexpr uint64_t kBegins = 4096;
  constexpr uint64_t kOffset = 100;
  std::vector<std::byte> values(kBytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = pattern(5, i);
  const UniqueFd file(::memfd_create("a GPU's memory", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBegins + 65'536), 0);
  ASSERT_EQ(::pwrite(file.get(), values.data(), kBytes, kBegins + kOffset),
            static_cast<ssize_t>(kBytes));
  Writer writer;
  Reader reader;
  Region slots(*right_, kBytes), memory(*left_, kBytes);
  open(writer, reader, slots, channel_id(), 1, kBytes);
  EXPECT_TRUE(writer.channel->sends_from(memory.key()));
  const Result<DeviceRegion> region =
      left_->register_device_memory({.fd = file.get(), .offset = kBegins, .bytes = 65'536});
  if (!region.is_ok()) {
    EXPECT_EQ(region.status().code(), Code::kUnavailable);
    EXPECT_FALSE(region.status().message().empty());
    return;
  }
  if (writer.channel->sends_from(region.value().key)) {
    const SendBuffer part{region.value().base + kOffset, kBytes, region.value().key};
    write(writer, channel_id(), 0, 5, {&part, 1});
    ASSERT_TRUE(loop_.run_until([&] { return !reader.frames.empty() && !writer.sent.empty(); }));
    EXPECT_EQ(reader.frames[0].payload, values);
  }
  left_->deregister_region(region.value().key);
  const SendBuffer part = memory.part(0, kBytes);
  if (reader.frames.empty()) write(writer, channel_id(), 0, 6, {&part, 1});
  EXPECT_TRUE(loop_.run_until([&] { return reader.frames.size() == 1; })) << "the channel is gone";
}

TEST_P(TransportConformance, FramesWithoutPayloadAndHeadersArriveAsWritten) {
  constexpr uint32_t kSlots = 200;
  Region slots(*right_, kSlots * 8);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, 8);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    FrameHeader header = header_for(channel_id(), slot, slot, 0);
    header.kind = FrameKind::kGather;
    header.lock_generation = 11;
    header.process_set = 12;
    header.chunk = 13;
    header.plan_hash = 14;
    header.stable_seq = 15;
    writer.channel->write(header, {}, slot);
  }
  ASSERT_TRUE(loop_.run_until([&] { return reader.frames.size() == kSlots; }));
  sort_by_slot(reader.frames);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const FrameHeader& header = reader.frames[slot].header;
    EXPECT_EQ(header.slot, slot);
    EXPECT_EQ(header.seq, slot);
    EXPECT_EQ(header.kind, FrameKind::kGather);
    EXPECT_EQ(header.lock_generation, 11u);
    EXPECT_EQ(header.process_set, 12u);
    EXPECT_EQ(header.chunk, 13u);
    EXPECT_EQ(header.plan_hash, 14u);
    EXPECT_EQ(header.stable_seq, 15u);
    EXPECT_TRUE(reader.frames[slot].payload.empty());
  }
}

TEST_P(TransportConformance, ASlotStaysBusyUntilItIsReleased) {
  Region slots(*right_, 64), memory(*left_, 64);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 2, 32);
  EXPECT_TRUE(writer.channel->slot_free(0) && writer.channel->slot_free(1));
  const SendBuffer part = memory.part(0, 32);
  write(writer, channel_id(), 0, 0, {&part, 1});
  write(writer, channel_id(), 1, 1, {&part, 1});
  EXPECT_FALSE(writer.channel->slot_free(0) || writer.channel->slot_free(1));
  ASSERT_TRUE(
      loop_.run_until([&] { return reader.frames.size() == 2 && writer.sent.size() == 2; }));
  EXPECT_FALSE(writer.channel->slot_free(0) || writer.channel->slot_free(1));
  reader.channel->release(1);
  ASSERT_TRUE(loop_.run_until([&] { return !writer.freed.empty(); }));
  loop_.settle();
  EXPECT_EQ(writer.freed, std::vector<uint32_t>{1});
  EXPECT_TRUE(writer.channel->slot_free(1));
  EXPECT_FALSE(writer.channel->slot_free(0));
  write(writer, channel_id(), 1, 2, {&part, 1});
  ASSERT_TRUE(loop_.run_until([&] { return reader.frames.size() == 3; }));
  EXPECT_EQ(reader.frames[2].header.slot, 1u);
}

TEST_P(TransportConformance, BothDirectionsAtOnce) {
  constexpr uint64_t kFrames = 1000;
  Region slots(*right_, 4 * 4096), memory(*left_, 4 * 4096);
  Region back_slots(*left_, 4 * 4096), back_memory(*right_, 4 * 4096);
  Writer writer, back_writer;
  Reader reader, back_reader;
  open(writer, reader, slots, channel_id(), 4, 4096);
  right_address_ = left_->listen(GetParam().any_address).value();
  std::swap(left_, right_);
  const ChannelId back = channel_id(7, 3, 1, 0);
  open(back_writer, back_reader, back_slots, back, 4, 4096);
  Stream there(writer, memory, channel_id(), 4, 4096, kFrames);
  Stream here(back_writer, back_memory, back, 4, 4096, kFrames);
  Checker there_checker(reader), here_checker(back_reader);
  there.start();
  here.start();
  ASSERT_TRUE(loop_.run_until(
      [&] { return there_checker.count == kFrames && here_checker.count == kFrames; }));
  EXPECT_TRUE(there_checker.in_order && there_checker.intact);
  EXPECT_TRUE(here_checker.in_order && here_checker.intact);
}

TEST_P(TransportConformance, WhatWasSentArrivesThoughTheWriterCloses) {
  constexpr uint32_t kSlots = 64;
  constexpr size_t kBytes = 1000;
  Region slots(*right_, kSlots * kBytes), memory(*left_, kBytes);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, kBytes);
  fill(memory, 0, 0, kBytes);
  const SendBuffer part = memory.part(0, kBytes);
  // Frames must not get lost if credits are never looked at.
  reader.when_frame = [&](const FrameHeader& header, std::span<std::byte>) {
    reader.channel->release(header.slot);
  };
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    write(writer, channel_id(), slot, slot, {&part, 1});
  }
  int callbacks_at_close = 0;
  size_t sent_at_close = 0;
  writer.when_sent = [&](uint64_t cookie) {
    if (cookie != kSlots / 2) return;
    writer.channel->close();
    callbacks_at_close = writer.callbacks;
    sent_at_close = writer.sent.size();
  };
  ASSERT_TRUE(loop_.run_until([&] { return reader.closed.has_value(); }));
  loop_.settle();
  EXPECT_EQ(reader.closed->code(), Code::kNodeLost);
  EXPECT_NE(reader.closed->message().find("node 0"), std::string::npos);
  EXPECT_GE(reader.frames.size(), sent_at_close);
  EXPECT_EQ(writer.callbacks, callbacks_at_close);
  EXPECT_FALSE(writer.channel->slot_free(0));
  write(writer, channel_id(), 0, 99, {&part, 1});
  reader.channel->release(0);
  loop_.settle();
  EXPECT_EQ(writer.callbacks, callbacks_at_close);
}

TEST_P(TransportConformance, TheWriterHearsThatTheReaderClosed) {
  constexpr uint32_t kSlots = 16;
  constexpr size_t kBytes = 100'000;
  Region slots(*right_, kSlots * kBytes), memory(*left_, kBytes);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), kSlots, kBytes);
  const SendBuffer part = memory.part(0, kBytes);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    write(writer, channel_id(), slot, slot, {&part, 1});
  }
  reader.when_frame = [&](const FrameHeader&, std::span<std::byte>) { reader.channel->close(); };
  ASSERT_TRUE(loop_.run_until([&] { return writer.closed.has_value(); }));
  loop_.settle();
  EXPECT_EQ(writer.closed->code(), Code::kNodeLost);
  EXPECT_NE(writer.closed->message().find("node 1"), std::string::npos);
  EXPECT_EQ(reader.callbacks, 1);
  EXPECT_FALSE(writer.channel->slot_free(0));
}

TEST_P(TransportConformance, NoCallbackFromInsideACall) {
  Region slots(*right_, 4 * 64), memory(*left_, 4 * 64);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 4, 64);
  const SendBuffer part = memory.part(0, 64);
  reader.when_frame = [&](const FrameHeader& header, std::span<std::byte>) {
    reader.is_inside_call = true;
    reader.channel->release(header.slot);
    reader.is_inside_call = false;
  };
  uint64_t seq = 4;
  writer.when_free = [&](uint32_t slot) {
    if (seq < 200) write(writer, channel_id(), slot, seq++, {&part, 1});
  };
  for (uint32_t slot = 0; slot < 4; ++slot) write(writer, channel_id(), slot, slot, {&part, 1});
  ASSERT_TRUE(loop_.run_until([&] { return writer.freed.size() == 200; }));
  EXPECT_FALSE(writer.called_inside || reader.called_inside);
}

TEST_P(TransportConformance, AFrameOfAnotherEpochOrJobClosesTheChannel) {
  for (const bool other_epoch : {true, false}) {
    const ChannelId id = channel_id(7, other_epoch ? 3 : 4);
    Region slots(*right_, 64);
    Writer writer;
    Reader reader;
    open(writer, reader, slots, id, 1, 64);
    ChannelId foreign = id;
    if (other_epoch) {
      foreign.epoch += 40;
    } else {
      foreign.job.first += 40;
    }
    write(writer, foreign, 0, 0, {});
    ASSERT_TRUE(loop_.run_until([&] { return reader.closed && writer.closed; }));
    EXPECT_EQ(reader.closed->code(), Code::kInternal);
    EXPECT_NE(reader.closed->message().find(other_epoch ? "epoch 43" : "another job"),
              std::string::npos);
    EXPECT_EQ(writer.closed->code(), Code::kNodeLost);
    EXPECT_TRUE(reader.frames.empty());
  }
}

TEST_P(TransportConformance, AnUnknownKindClosesTheChannel) {
  Region slots(*right_, 64);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 1, 64);
  FrameHeader header = header_for(channel_id(), 0, 0, 0);
  header.kind = FrameKind::kCredit;
  writer.channel->write(header, {}, 0);
  ASSERT_TRUE(loop_.run_until([&] { return reader.closed.has_value(); }));
  EXPECT_EQ(reader.closed->code(), Code::kInternal);
}

TEST_P(TransportConformance, ChannelsMayBeDestroyedInTheirCallbacks) {
  enum class Where { kFrame, kSent, kFree, kWriterClosed, kReaderClosed };
  uint32_t epoch = 10;
  for (const Where where :
       {Where::kFrame, Where::kSent, Where::kFree, Where::kWriterClosed, Where::kReaderClosed}) {
    const ChannelId id = channel_id(7, epoch++);
    Region slots(*right_, 8 * 64), memory(*left_, 64);
    Writer writer;
    Reader reader;
    open(writer, reader, slots, id, 8, 64);
    reader.when_frame = [&](const FrameHeader& header, std::span<std::byte>) {
      if (where == Where::kFrame || where == Where::kWriterClosed) {
        reader.channel.reset();
      } else {
        reader.channel->release(header.slot);
      }
    };
    reader.when_closed = [&] { reader.channel.reset(); };
    writer.when_closed = [&] { writer.channel.reset(); };
    writer.when_sent = [&](uint64_t) {
      if (where == Where::kSent || where == Where::kReaderClosed) writer.channel.reset();
    };
    writer.when_free = [&](uint32_t) {
      if (where == Where::kFree) writer.channel.reset();
    };
    const SendBuffer part = memory.part(0, 64);
    for (uint32_t slot = 0; slot < 8; ++slot) write(writer, id, slot, slot, {&part, 1});
    EXPECT_TRUE(loop_.run_until([&] { return !writer.channel && !reader.channel; }));
    loop_.settle();
  }
}

TEST_P(TransportConformance, ChannelsOutliveTheirTransports) {
  Region slots(*right_, 64), memory(*left_, 64);
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 1, 64);
  left_.reset();
  right_.reset();
  const SendBuffer part = memory.part(0, 64);
  write(writer, channel_id(), 0, 0, {&part, 1});
  ASSERT_TRUE(loop_.run_until([&] { return reader.frames.size() == 1; }));
  reader.channel->release(0);
  ASSERT_TRUE(loop_.run_until([&] { return writer.freed.size() == 1; }));
}

TEST_P(TransportConformance, EndsOnLoopsOfTheirOwnThreads) {
  constexpr uint32_t kSlots = 8;
  constexpr size_t kBytes = 8192;
  constexpr uint64_t kFrames = 3000;
  Loop far_loop;
  std::unique_ptr<Transport> far = factory_(far_loop.io());
  Region slots(*right_, kSlots * kBytes), memory(*far, kSlots * kBytes);
  Writer writer;
  Reader reader;
  right_->expect(accept_options(channel_id(), kSlots, kBytes, slots, reader),
                 [&](Result<std::unique_ptr<ReceiveChannel>> result) {
                   reader.channel = std::move(result).value();
                 });
  Checker checker(reader);
  std::thread far_thread([&] {
    std::optional<Stream> stream;
    far->connect(connect_options(channel_id(), kSlots, kBytes, writer),
                 [&](Result<std::unique_ptr<SendChannel>> result) {
                   writer.channel = std::move(result).value();
                   stream.emplace(writer, memory, channel_id(), kSlots, kBytes, kFrames).start();
                 });
    EXPECT_TRUE(far_loop.run_until([&] { return writer.freed.size() == kFrames; }));
    writer.channel.reset();
    far_loop.settle();
  });
  EXPECT_TRUE(loop_.run_until([&] { return reader.closed.has_value(); }));
  far_thread.join();
  EXPECT_EQ(checker.count, kFrames);
  EXPECT_TRUE(checker.in_order && checker.intact);
}

// A frame that had come while the handshake ended was once overtaken by the next one, which no
// cipher opens then.
TEST_P(TransportConformance, WhatComesWhileTheChannelIsMadeKeepsItsOrder) {
  constexpr uint32_t kSlots = 8;
  constexpr size_t kBytes = 256;
  constexpr uint64_t kFrames = 16;
  Loop far_loop;
  std::unique_ptr<Transport> far = factory_(far_loop.io());
  Region slots(*right_, kSlots * kBytes), memory(*far, kSlots * kBytes);
  for (uint32_t round = 0; round < 20; ++round) {
    const ChannelId id = channel_id(1 + round);
    Writer writer;
    Reader reader;
    right_->expect(accept_options(id, kSlots, kBytes, slots, reader),
                   [&](Result<std::unique_ptr<ReceiveChannel>> result) {
                     reader.channel = std::move(result).value();
                   });
    Checker checker(reader);
    std::thread far_thread([&] {
      std::optional<Stream> stream;
      far->connect(connect_options(id, kSlots, kBytes, writer),
                   [&](Result<std::unique_ptr<SendChannel>> result) {
                     writer.channel = std::move(result).value();
                     stream.emplace(writer, memory, id, kSlots, kBytes, kFrames).start();
                   });
      EXPECT_TRUE(far_loop.run_until([&] { return writer.freed.size() == kFrames; }));
      writer.channel.reset();
      far_loop.settle();
    });
    EXPECT_TRUE(loop_.run_until([&] { return reader.closed.has_value(); }));
    far_thread.join();
    ASSERT_EQ(checker.count, kFrames) << (reader.closed ? reader.closed->message() : "open");
    ASSERT_TRUE(checker.in_order && checker.intact);
  }
}

using TransportConformanceDeath = TransportConformance;

TEST_P(TransportConformanceDeath, BreakingTheContractAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Region slots(*right_, 64), memory(*left_, 64);
  std::array<std::byte, 64> unregistered;
  Writer writer;
  Reader reader;
  open(writer, reader, slots, channel_id(), 1, 64);
  const SendBuffer foreign{unregistered.data(), unregistered.size(), memory.key()};
  EXPECT_DEATH(write(writer, channel_id(), 0, 0, {&foreign, 1}), "check failed");
  EXPECT_DEATH(write(writer, channel_id(), 1, 0, {}), "check failed");
  EXPECT_DEATH(reader.channel->release(0), "check failed");
  EXPECT_DEATH(
      {
        write(writer, channel_id(), 0, 0, {});
        write(writer, channel_id(), 0, 1, {});
      },
      "check failed");
}

std::string fabric_name(const ::testing::TestParamInfo<Fabric>& fabric) {
  return fabric.param.name;
}

INSTANTIATE_TEST_SUITE_P(Every, TransportConformance, ::testing::ValuesIn(all_fabrics()),
                         fabric_name);
INSTANTIATE_TEST_SUITE_P(Every, TransportConformanceDeath, ::testing::ValuesIn(all_fabrics()),
                         fabric_name);

}  // namespace
}  // namespace rueda::transport
