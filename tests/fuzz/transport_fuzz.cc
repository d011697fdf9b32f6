// Fuzzes, with libFuzzer, everything that the TCP transport parses before or after it trusts a
// peer. The first byte chooses the parser and how the rest is cut into reads.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/credit.h"
#include "daemon/transport/tcp/frame_reader.h"
#include "daemon/transport/tcp/hello.h"

namespace rueda::transport::tcp {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kSlotBytes = 6000;

void fuzz_hello(std::span<const std::byte> input) {
  Hello hello;
  HelloReply reply;
  std::memcpy(static_cast<void*>(&hello), input.data(), std::min(input.size(), sizeof(hello)));
  std::memcpy(static_cast<void*>(&reply), input.data(), std::min(input.size(), sizeof(reply)));
  (void)check_hello_prefix(std::as_bytes(std::span(&hello, 1)).first(kHelloPrefixBytes)).is_ok();
  (void)check_reply(reply).is_ok();
  // The value does not matter, because the fuzzer cannot guess a MAC.
  const JobToken token{};
  RUEDA_CHECK(!is_authentic(reply, hello, token));
  HelloConfirm confirm;
  std::memcpy(static_cast<void*>(&confirm), input.data(), std::min(input.size(), sizeof(confirm)));
  RUEDA_CHECK(!check_confirm(confirm, hello, reply, token).is_ok());
}

ChannelKeys some_keys() {
  const std::array<std::byte, 64> salt{};
  return derive_keys(Protection::kAuthenticate, JobToken{}, salt, ChannelId{});
}

void fuzz_address(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const Result<HostPort> address = parse_host_port(text);
  if (address.is_ok()) (void)numeric_endpoint(address.value());
  (void)listen_endpoint(text).is_ok();
}

void fuzz_credits(std::span<const std::byte> input) {
  for (; input.size() >= sizeof(Credit); input = input.subspan(sizeof(Credit))) {
    Credit credit;
    std::memcpy(static_cast<void*>(&credit), input.data(), sizeof(credit));
    if (credit.is_valid(kSlots)) RUEDA_CHECK(credit.slot < kSlots);
  }
}

void fuzz_sealed_credits(std::span<const std::byte> input) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  Opener opener(Protection::kAuthenticate, some_keys().to_writer);
  const Result<CreditBatch> batch = take_credits(bytes, &opener);
  RUEDA_CHECK(!batch.is_ok() || batch.value().size() == 0);  // The fuzzer cannot guess a tag.
}

// Seals what the fuzzer says as a peer does that holds the token: headers are blocks, and what
// follows each is its payload, as far as there is any.
std::vector<std::byte> sealed(std::span<const std::byte> stream) {
  Sealer sealer(Protection::kAuthenticate, some_keys().to_reader);
  std::vector<std::byte> out;
  const auto seal = [&](std::span<const std::byte> block) {
    out.resize(out.size() + block.size() + kTagBytes);
    sealer.seal(block, out.data() + out.size() - block.size() - kTagBytes);
  };
  while (stream.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(static_cast<void*>(&header), stream.data(), sizeof(header));
    seal(stream.first(sizeof(header)));
    stream = stream.subspan(sizeof(header));
    const auto payload = stream.first(std::min<size_t>(header.payload_bytes, stream.size()));
    if (!payload.empty()) seal(payload);
    stream = stream.subspan(payload.size());
  }
  return out;
}

// Wants every other payload in memory of its own, of just that size.
struct Placer final : ReceiveEvents {
  std::byte* place(const FrameHeader& header) override {
    if (header.chunk % 2 == 0) return nullptr;
    return places.emplace_back(std::make_unique<std::byte[]>(header.payload_bytes)).get();
  }
  void on_frame(const FrameHeader&, std::span<std::byte>) override {}
  void on_closed(const Status&) override {}
  std::vector<std::unique_ptr<std::byte[]>> places;
};

// Headers are mended so that the fuzzer gets past the magic and the job; slot, kind, payload size
// and the places of the cuts are the fuzzer's.
void fuzz_frames(std::span<const std::byte> input, size_t piece_bytes, bool releases,
                 bool is_sealed) {
  const ChannelId id{JobKey(1), 1, 0, 1, 0};
  std::vector<std::byte> stream(input.begin(), input.end());
  if (stream.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(static_cast<void*>(&header), stream.data(), sizeof(header));
    header.magic = kFrameMagic;
    header.version = kWireVersion;
    header.job = id.job.first;
    header.epoch = id.epoch;
    std::memcpy(stream.data(), &header, sizeof(header));
  }
  std::vector<std::byte> memory(size_t{kSlots} * kSlotBytes);
  SlotStates states(kSlots, SlotState::kWriters);
  Placer placer;
  if (is_sealed) stream = sealed(stream);
  FrameReader reader(id, SlotRegion{memory.data(), kSlots, kSlotBytes, {}}, states, "fuzzer",
                     &placer, is_sealed ? some_keys() : ChannelKeys{});
  for (std::span<const std::byte> rest = stream; !rest.empty();) {
    const size_t piece = asio::buffer_copy(
        reader.space(), asio::buffer(rest.data(), std::min(piece_bytes, rest.size())));
    RUEDA_CHECK(piece > 0);
    reader.filled(piece);
    rest = rest.subspan(piece);
    while (true) {
      const Result<std::optional<FrameReader::Frame>> frame = reader.next();
      if (!frame.is_ok()) return;
      if (!frame.value()) break;
      const FrameHeader& header = frame.value()->header;
      RUEDA_CHECK(header.slot < kSlots && states[header.slot] == SlotState::kHeld);
      RUEDA_CHECK(frame.value()->payload.size() <= kSlotBytes);
      if (releases) states[header.slot] = SlotState::kWriters;
    }
  }
}

}  // namespace
}  // namespace rueda::transport::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rueda::transport::tcp;
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  const uint8_t choice = data[0];
  switch (choice % 4) {
    case 0: fuzz_hello(input); break;
    case 1: fuzz_address(input); break;
    case 2: (choice & 8) != 0 ? fuzz_sealed_credits(input) : fuzz_credits(input); break;
    default:
      fuzz_frames(input, size_t{1} << (choice >> 4), (choice & 4) != 0, (choice & 8) != 0);
      break;
  }
  return 0;
}
