#include "daemon/session/submissions/submission.h"

#include <bit>
#include <cstring>
#include <utility>

#include "daemon/base/limits.h"

namespace rueda::session {
namespace {

constexpr uint32_t kKnownFlags = RUEDA_ABI_FLAG_COPIED_IN | RUEDA_ABI_FLAG_COPIED_OUT;

constexpr uint32_t kTransferFlags =
    RUEDA_ABI_FLAG_SEND | RUEDA_ABI_FLAG_RECEIVE | RUEDA_ABI_FLAG_CANCEL;

Status broken(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

Status check_fields(const rueda_abi_submission& record) {
  if ((record.flags & ~kKnownFlags) != 0) {
    return broken("unknown flags " + std::to_string(record.flags));
  }
  if (record.reserved0 != 0 || record.reserved1[0] != 0 || record.reserved1[1] != 0) {
    return broken("a reserved field that is not 0");
  }
  return Status::ok();
}

Result<Buffer> find_buffer(const ArenaTable& arenas, uint32_t arena_id, uint64_t offset,
                           int64_t elements, const core::TensorDescriptor& tensor,
                           const char* role) {
  if (elements == 0) return Buffer{};
  const std::shared_ptr<Arena>& arena = arenas.find(arena_id);
  const auto where = [&] { return std::string(role) + " of tensor '" + tensor.name + "'"; };
  if (arena == nullptr) {
    return broken("the " + where() + " in arena " + std::to_string(arena_id) +
                  ", which does not exist");
  }
  const auto bytes = static_cast<uint64_t>(elements) * element_bytes(tensor.dtype);
  if (bytes > arena->bytes() || offset > arena->bytes() - bytes) {
    return broken("the " + where() + " (" + std::to_string(bytes) + " bytes at offset " +
                  std::to_string(offset) + ") outside its arena of " +
                  std::to_string(arena->bytes()) + " bytes");
  }
  if (offset % element_bytes(tensor.dtype) != 0) {
    return broken("the " + where() + " at offset " + std::to_string(offset) +
                  ", which is not a multiple of its element's size");
  }
  return Buffer{arena, arena->data() + offset, static_cast<size_t>(bytes)};
}

Result<Buffer> find_on_device(const DeviceTable& devices, uint32_t id, uint64_t offset,
                              int64_t elements, const core::TensorDescriptor& tensor,
                              const char* role) {
  if (elements == 0) return Buffer{};
  const auto where = [&] { return std::string(role) + " of tensor '" + tensor.name + "'"; };
  const uint64_t there = devices.bytes_of(id);
  if (there == 0 || !devices.has_counters()) {
    return broken("the " + where() + " in device memory " + std::to_string(id) +
                  ", which does not exist, or without counters");
  }
  const auto bytes = static_cast<uint64_t>(elements) * element_bytes(tensor.dtype);
  if (bytes > there || offset > there - bytes || offset % element_bytes(tensor.dtype) != 0) {
    return broken("the " + where() + " (" + std::to_string(bytes) + " bytes at offset " +
                  std::to_string(offset) + ") outside its device memory of " +
                  std::to_string(there) + " bytes, or not at a multiple of its element's size");
  }
  Buffer buffer;
  buffer.bytes = static_cast<size_t>(bytes);
  buffer.device_memory = id;
  buffer.device_offset = offset;
  return buffer;
}

// In device memory, input and output must be equal or disjoint, or one of them must be empty: the
// kinds that are done there have no parts, which could lie inside the other buffer.
Status check_overlap_on_device(const Submission& submission) {
  const Buffer& input = submission.input;
  const Buffer& output = submission.output;
  if (input.device_memory != output.device_memory || input.bytes == 0 || output.bytes == 0 ||
      input.device_offset == output.device_offset ||
      input.device_offset + input.bytes <= output.device_offset ||
      output.device_offset + output.bytes <= input.device_offset) {
    return Status::ok();
  }
  return broken("input and output of tensor '" + submission.descriptor->name +
                "' that overlap in device memory without being the same");
}

Status check_overlap(const Submission& submission, const Extent& extent) {
  const Buffer& input = submission.input;
  const Buffer& output = submission.output;
  if (submission.descriptor->memory == MemorySpace::kDevice) {
    return check_overlap_on_device(submission);
  }
  if (input.arena != output.arena || input.bytes == 0 || output.bytes == 0) return Status::ok();
  if (input.data + input.bytes <= output.data || output.data + output.bytes <= input.data) {
    return Status::ok();
  }
  const auto element = static_cast<int64_t>(element_bytes(submission.descriptor->dtype));
  const bool is_same = input.data - output.data == (extent.input_at - extent.output_at) * element;
  if (is_same && extent.can_be_in_place) return Status::ok();
  return broken("input and output of tensor '" + submission.descriptor->name +
                "' that overlap without being the same");
}

// Returns what is wrong with a send or a receive, whatever the job has for ranks and process sets.
Status check_fields(const rueda_abi_transfer& record) {
  const bool sends = (record.flags & RUEDA_ABI_FLAG_SEND) != 0;
  const uint32_t may_have = sends ? RUEDA_ABI_FLAG_SEND | RUEDA_ABI_FLAG_COPIED_IN
                                  : RUEDA_ABI_FLAG_RECEIVE | RUEDA_ABI_FLAG_COPIED_OUT;
  if ((record.flags & ~may_have) != 0) {
    return broken("a transfer with flags " + std::to_string(record.flags));
  }
  if (record.reserved0 != 0 || record.cancels != 0) {
    return broken("a transfer with a reserved field that is not 0");
  }
  if (record.dtype >= kDTypeCount) {
    return broken("a transfer of dtype " + std::to_string(record.dtype) + ": known are 0 to " +
                  std::to_string(kDTypeCount - 1));
  }
  const int32_t lowest = sends ? 0 : RUEDA_ABI_ANY_SOURCE;
  if (record.peer < lowest || record.peer >= limits::kMaxRanks) {
    return broken("a transfer with rank " + std::to_string(record.peer) + ", which no job has");
  }
  const size_t size = element_bytes(static_cast<DType>(record.dtype));
  if (record.elements > limits::kMaxTensorBytes / size) {
    return broken("a transfer of " + std::to_string(record.elements) + " elements, more than " +
                  std::to_string(limits::kMaxTensorBytes) + " bytes");
  }
  if (record.elements == 0 && (record.arena != 0 || record.offset != 0)) {
    return broken("a transfer without elements that has memory");
  }
  return Status::ok();
}

Result<Submission> check_cancel(const rueda_abi_transfer& record) {
  rueda_abi_transfer plain{};
  plain.ticket = record.ticket;
  plain.flags = RUEDA_ABI_FLAG_CANCEL;
  plain.cancels = record.cancels;
  if (std::memcmp(&plain, &record, sizeof(plain)) != 0) {
    return broken("a cancel with flags " + std::to_string(record.flags) +
                  " or with a field that is not a cancel's");
  }
  Submission submission;
  submission.ticket = Ticket(record.ticket);
  submission.cancels = Ticket(record.cancels);
  return submission;
}

Result<Submission> check_transfer(const rueda_abi_transfer& record, const ArenaTable& arenas) {
  if ((record.flags & RUEDA_ABI_FLAG_CANCEL) != 0) return check_cancel(record);
  if (Status status = check_fields(record); !status.is_ok()) return status;
  const bool sends = (record.flags & RUEDA_ABI_FLAG_SEND) != 0;
  auto descriptor = std::make_shared<core::TensorDescriptor>();
  descriptor->kind = sends ? CollectiveKind::kSend : CollectiveKind::kReceive;
  descriptor->dtype = static_cast<DType>(record.dtype);
  descriptor->op = ReduceOp::kSum;
  descriptor->shape = {static_cast<int64_t>(record.elements)};
  descriptor->process_set = record.process_set;
  descriptor->peer = Rank(record.peer);
  descriptor->tag = record.tag;
  const std::string peer = record.peer == RUEDA_ABI_ANY_SOURCE
                               ? std::string("any rank")
                               : "rank " + std::to_string(record.peer);
  descriptor->name = std::string(sends ? "send to " : "receive from ") + peer + " with tag " +
                     std::to_string(record.tag);
  Result<Buffer> buffer =
      find_buffer(arenas, record.arena, record.offset, static_cast<int64_t>(record.elements),
                  *descriptor, sends ? "input" : "output");
  if (!buffer.is_ok()) return buffer.status();
  Submission submission;
  submission.ticket = Ticket(record.ticket);
  (sends ? submission.input : submission.output) = std::move(buffer).value();
  submission.descriptor = std::move(descriptor);
  submission.copied_in = (record.flags & RUEDA_ABI_FLAG_COPIED_IN) != 0;
  submission.copied_out = (record.flags & RUEDA_ABI_FLAG_COPIED_OUT) != 0;
  return submission;
}

}  // namespace

Result<Submission> check_submission(const rueda_abi_submission& record, const TensorTable& tensors,
                                    const ArenaTable& arenas, const DeviceTable& devices) {
  if ((record.flags & kTransferFlags) != 0) {
    return check_transfer(std::bit_cast<rueda_abi_transfer>(record), arenas);
  }
  if (Status status = check_fields(record); !status.is_ok()) return status;
  Submission submission;
  submission.ticket = Ticket(record.ticket);
  const TensorTable::Tensor* interned = tensors.find(record.tensor_id);
  if (interned == nullptr) {
    return broken("tensor id " + std::to_string(record.tensor_id) + ", which was never interned");
  }
  submission.descriptor = interned->descriptor;
  submission.place = interned->place;
  submission.places = interned->places;
  submission.priority = record.priority;
  submission.copied_in = (record.flags & RUEDA_ABI_FLAG_COPIED_IN) != 0;
  submission.copied_out = (record.flags & RUEDA_ABI_FLAG_COPIED_OUT) != 0;
  const core::TensorDescriptor& tensor = *submission.descriptor;
  const Extent& extent = interned->extent;
  const auto find = [&](uint32_t id, uint64_t offset, int64_t elements, const char* role) {
    return tensor.memory == MemorySpace::kDevice
               ? find_on_device(devices, id, offset, elements, tensor, role)
               : find_buffer(arenas, id, offset, elements, tensor, role);
  };
  Result<Buffer> input = find(record.input_arena, record.input_offset, extent.input, "input");
  if (!input.is_ok()) return input.status();
  Result<Buffer> output = find(record.output_arena, record.output_offset, extent.output, "output");
  if (!output.is_ok()) return output.status();
  submission.input = std::move(input).value();
  submission.output = std::move(output).value();
  if (Status status = check_overlap(submission, extent); !status.is_ok()) return status;
  return submission;
}

}  // namespace rueda::session
