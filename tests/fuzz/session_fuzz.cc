// Fuzzes everything that a hostile client can hand to the session room: messages, interned tensors,
// and what it writes into the rings. The first byte chooses which of these is fuzzed.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "daemon/base/check.h"
#include "daemon/base/limits.h"
#include "daemon/session/records/ring.h"
#include "daemon/session/records/text.h"
#include "daemon/session/records/wire.h"
#include "daemon/session/submissions/intern.h"
#include "daemon/session/submissions/submission.h"

namespace rueda::session {
namespace {

constexpr size_t kArenaBytes = 64 * 1024;
constexpr uint32_t kCapacity = 8;

template <class Pod>
Pod take(std::span<const uint8_t>& input) {
  Pod pod{};
  size_t bytes = std::min(sizeof(Pod), input.size());
  std::memcpy(&pod, input.data(), bytes);
  input = input.subspan(bytes);
  return pod;
}

void fuzz_intern(std::span<const uint8_t> input) {
  TensorTable table(4);
  while (!input.empty()) {
    const auto counts = take<rueda_abi_counts>(input);
    const bool has_counts = table.take_counts(counts).is_ok();
    auto abi = take<rueda_abi_intern>(input);
    Result<uint32_t> id = table.intern(abi, Rank{0});
    if (!id.is_ok()) {
      RUEDA_CHECK(!id.status().message().empty());
      continue;
    }
    const core::TensorDescriptor& tensor = *table.find(id.value())->descriptor;
    const Extent& extent = table.find(id.value())->extent;
    RUEDA_CHECK(extent.input >= 0 && extent.input <= tensor.elements());
    RUEDA_CHECK(extent.output >= 0 && extent.output <= tensor.elements());
    RUEDA_CHECK(is_printable_utf8(tensor.name) && !tensor.name.empty());
    RUEDA_CHECK(tensor.bytes() >= 0);
    RUEDA_CHECK(static_cast<uint64_t>(tensor.bytes()) <= limits::kMaxTensorBytes);
    if (has_counts) RUEDA_CHECK(table.take_counts(counts).is_ok());
    RUEDA_CHECK(table.intern(abi, Rank{0}).value() == id.value());
    if (!tensor.counts.empty()) RUEDA_CHECK(table.forget(id.value()).is_ok());
  }
}

void add_counters(DeviceTable& devices) {
  UniqueFd memfd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  RUEDA_CHECK(::ftruncate(memfd.get(), 4096) == 0);
  RUEDA_CHECK(::fallocate(memfd.get(), 0, 0, 4096) == 0);
  RUEDA_CHECK(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  std::vector<ForeignFd> descriptors;
  descriptors.emplace_back(std::move(memfd), Principal::user(0));
  const rueda_abi_device_memory memory{.kind = RUEDA_ABI_DEVICE_COUNTERS, .bytes = 4096};
  devices.answer(devices.add(memory, descriptors).value().id, true);
}

struct Tables {
  Tables() : arenas(std::make_shared<ArenaTotals>()), devices(kCapacity) {
    for (int i = 0; i < 2; ++i) {
      UniqueFd memfd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      RUEDA_CHECK(::ftruncate(memfd.get(), kArenaBytes) == 0);
      RUEDA_CHECK(::fallocate(memfd.get(), 0, 0, kArenaBytes) == 0);
      RUEDA_CHECK(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
      RUEDA_CHECK(arenas.add(ArenaTable::map(memfd.get(), kArenaBytes, {}).value()).is_ok());
    }
    for (int64_t elements : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{1} << 36}) {
      rueda_abi_intern abi{};
      abi.root = -1;
      abi.prescale = abi.postscale = 1.0;
      abi.ndim = 1;
      abi.dims[0] = elements;
      abi.name[0] = 't';
      RUEDA_CHECK(tensors.intern(abi, Rank{0}).is_ok());
      abi.memory = 1;
      RUEDA_CHECK(tensors.intern(abi, Rank{0}).is_ok());
    }
    add_devices();
  }
  void add_devices() {
    add_counters(devices);
    std::vector<ForeignFd> descriptors;
    const rueda_abi_device_memory memory{.kind = RUEDA_ABI_DEVICE_IPC, .bytes = kArenaBytes};
    devices.answer(devices.add(memory, descriptors).value().id, true);
    devices.answer(devices.add(memory, descriptors).value().id, true);
  }
  TensorTable tensors;
  ArenaTable arenas;
  DeviceTable devices;
};

void check_buffer(const Buffer& buffer, size_t bytes, size_t element) {
  RUEDA_CHECK(buffer.bytes == bytes);
  if (bytes == 0) return;
  if (buffer.device_memory != 0) {
    RUEDA_CHECK(!buffer.arena && buffer.device_memory >= 2 && buffer.device_memory <= 3);
    RUEDA_CHECK(bytes <= kArenaBytes && buffer.device_offset <= kArenaBytes - bytes);
    RUEDA_CHECK(buffer.device_offset % element == 0);
    return;
  }
  RUEDA_CHECK(buffer.data >= buffer.arena->data());
  RUEDA_CHECK(buffer.data + bytes <= buffer.arena->data() + buffer.arena->bytes());
  RUEDA_CHECK(static_cast<size_t>(buffer.data - buffer.arena->data()) % element == 0);
}

// A send has an input alone, and a receive an output; tensors have both.
void check_buffers(const Submission& submission) {
  if (submission.cancels) return;
  const core::TensorDescriptor& descriptor = *submission.descriptor;
  RUEDA_CHECK(descriptor.bytes() >= 0);
  const auto bytes = static_cast<size_t>(descriptor.bytes());
  const size_t element = element_bytes(descriptor.dtype);
  const bool has_input = descriptor.kind != CollectiveKind::kReceive;
  const bool has_output = descriptor.kind != CollectiveKind::kSend;
  check_buffer(submission.input, has_input ? bytes : 0, element);
  check_buffer(submission.output, has_output ? bytes : 0, element);
}

// The input overwrites the whole block of the submission ring again and again, header included.
void fuzz_rings(std::span<const uint8_t> input) {
  static Tables tables;
  std::vector<rueda_abi_submission> block(submission_ring_bytes(kCapacity) /
                                          sizeof(rueda_abi_submission));
  auto* memory = reinterpret_cast<std::byte*>(block.data());
  SubmissionRing ring(memory, kCapacity);
  std::vector<rueda_abi_completion> completion_block(completion_ring_bytes(kCapacity) /
                                                     sizeof(rueda_abi_completion));
  auto* completion_memory = reinterpret_cast<std::byte*>(completion_block.data());
  CompletionRing completions(completion_memory, kCapacity);
  while (!input.empty()) {
    auto header = take<rueda_abi_ring>(input);
    std::memcpy(memory, &header, sizeof(header));
    std::memcpy(completion_memory, &header, sizeof(header));
    size_t records_bytes = std::min(input.size(), kCapacity * sizeof(rueda_abi_submission));
    std::memcpy(memory + RUEDA_ABI_RING_HEADER_BYTES, input.data(), records_bytes);
    input = input.subspan(records_bytes);
    std::array<rueda_abi_submission, 4> records;
    int count = ring.pop(records);
    for (int i = 0; i < count; ++i) {
      Result<Submission> checked =
          check_submission(records[i], tables.tensors, tables.arenas, tables.devices);
      if (checked.is_ok()) check_buffers(checked.value());
    }
    ring.prepare_to_sleep();
    completions.push({}, "text");
    completions.publish();
  }
}

// Fuzzes joins of pieces 2 to 9.
void fuzz_join(const rueda_abi_device_join& join) {
  DeviceTable devices(kCapacity);
  add_counters(devices);
  for (uint32_t id = 2; id <= 9; ++id) {
    std::vector<ForeignFd> descriptors;
    descriptors.emplace_back(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), Principal::user(0));
    const rueda_abi_device_memory piece{.kind = RUEDA_ABI_DEVICE_FD, .bytes = id * 4096};
    devices.answer(devices.add(piece, descriptors).value().id, true);
  }
  const Result<DeviceMemory> joined = devices.join(join);
  if (joined.is_ok()) {
    devices.answer(joined.value().id, true);
    uint64_t bytes = 0;
    for (const uint32_t id : joined.value().pieces) {
      RUEDA_CHECK(devices.remove(id).code() == Code::kUnavailable);
      bytes += devices.bytes_of(id);
    }
    RUEDA_CHECK(devices.bytes_of(joined.value().id) == bytes);
    RUEDA_CHECK(devices.remove(joined.value().id).is_ok());
  }
  for (uint32_t id = 2; id <= 9; ++id) RUEDA_CHECK(devices.remove(id).is_ok());
}

void fuzz_messages(std::span<const uint8_t> input) {
  int pair[2];
  RUEDA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  UniqueFd near(pair[0]);
  UniqueFd far(pair[1]);
  MessageReader reader(Principal::user(::getuid()));
  bool is_open = true;
  while (is_open && !input.empty()) {
    // The messages are cut at places of the input's choosing.
    size_t piece = std::min<size_t>(input.size(), 1 + input[0]);
    RUEDA_CHECK(::send(far.get(), input.data(), piece, MSG_DONTWAIT) ==
                static_cast<ssize_t>(piece));
    input = input.subspan(piece);
    MessageReader::Read read;
    while ((read = reader.receive(near.get())) == MessageReader::Read::kMessage) {
      RUEDA_CHECK(client_body_bytes(reader.type()) >= 0);
      if (reader.type() == RUEDA_ABI_DEVICE_ADD) {
        static_cast<void>(DeviceTable(kCapacity).add(reader.body_as<rueda_abi_device_memory>(),
                                                     reader.descriptors()));
      }
      if (reader.type() == RUEDA_ABI_DEVICE_JOIN) {
        fuzz_join(reader.body_as<rueda_abi_device_join>());
      }
      if (reader.type() == RUEDA_ABI_INTERN) {
        TensorTable().intern(reader.body_as<rueda_abi_intern>(), Rank{0}).is_ok();
      }
    }
    is_open = read == MessageReader::Read::kWouldBlock;
  }
}

}  // namespace
}  // namespace rueda::session

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rueda::session;
  if (size == 0) return 0;
  std::span<const uint8_t> input(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0: fuzz_intern(input); break;
    case 1: fuzz_rings(input); break;
    default: fuzz_messages(input); break;
  }
  return 0;
}
