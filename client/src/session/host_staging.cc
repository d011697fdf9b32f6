#include "client/src/session/host_staging.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace rueda::client {
namespace {

void note_copied_in(const TensorRequest& request, Operation& operation) {
  operation.record.flags |= RUEDA_ABI_FLAG_COPIED_IN;
  operation.handle->copied_in_bytes += request.input_bytes;
}

// Takes at most one block. If a foreign input belongs inside the output, it is copied there, and
// the operation is then in place.
Status stage(ArenaAllocator& allocator, const TensorRequest& request, bool stages_input,
             bool stages_output, Operation& operation) {
  rueda_abi_submission& record = operation.record;
  if (stages_input && !stages_output && request.input_lies_in_output()) {
    const size_t at = request.input_at_bytes - request.output_at_bytes;
    std::memcpy(request.output + at, request.input, request.input_bytes);
    record.input_arena = record.output_arena;
    record.input_offset = record.output_offset + at;
    note_copied_in(request, operation);
    return Status::ok();
  }
  size_t input_at = 0;
  size_t output_at = 0;
  if (stages_input && stages_output) {
    if (request.can_be_in_place) {
      const size_t first = std::min(request.input_at_bytes, request.output_at_bytes);
      input_at = request.input_at_bytes - first;
      output_at = request.output_at_bytes - first;
    } else {
      output_at = (request.input_bytes + kBlockAlignmentBytes - 1) / kBlockAlignmentBytes *
                  kBlockAlignmentBytes;
    }
  }
  Result<Block> block =
      allocator.allocate(std::max(stages_input ? input_at + request.input_bytes : 0,
                                  stages_output ? output_at + request.output_bytes : 0));
  if (!block.is_ok()) return block.status();
  operation.staging = block.value().data;
  const Place& place = block.value().place;
  if (stages_output) {
    record.output_arena = place.arena_id;
    record.output_offset = place.offset + output_at;
    operation.result = operation.staging + output_at;
    operation.output_bytes = request.output_bytes;
    if (request.writes_output) {
      operation.output = request.output;
      record.flags |= RUEDA_ABI_FLAG_COPIED_OUT;
    }
  }
  if (stages_input) {
    record.input_arena = place.arena_id;
    record.input_offset = place.offset + input_at;
    std::memcpy(operation.staging + input_at, request.input, request.input_bytes);
    note_copied_in(request, operation);
  }
  return Status::ok();
}

}  // namespace

Status place_in_host_memory(ArenaAllocator& allocator, const TensorRequest& request,
                            Operation& operation) {
  // Data at an address that is not aligned for the element can only be copied.
  auto locate = [&](const std::byte* data, size_t bytes) -> Result<std::optional<Place>> {
    if (bytes == 0) return std::optional<Place>();
    Result<std::optional<Place>> place = allocator.locate(data, bytes);
    if (place.is_ok() && place.value() && place.value()->offset % request.element_bytes != 0) {
      return std::optional<Place>();
    }
    return place;
  };
  auto in = locate(request.input, request.input_bytes);
  const auto with_name = [&](const Status& status) {
    return Status{status.code(), status.message() + " (" + std::string(request.name()) + ")"};
  };
  if (!in.is_ok()) return with_name(in.status());
  auto out = locate(request.output, request.output_bytes);
  if (!out.is_ok()) return with_name(out.status());

  rueda_abi_submission& record = operation.record;
  record.priority = request.priority;
  if (out.value()) {
    record.output_arena = out.value()->arena_id;
    record.output_offset = out.value()->offset;
    operation.arena_data[1] = request.output;
  }
  if (in.value()) {
    record.input_arena = in.value()->arena_id;
    record.input_offset = in.value()->offset;
    operation.arena_data[0] = request.input;
  }
  const bool stages_input = request.input_bytes > 0 && !in.value();
  const bool stages_output = request.output_bytes > 0 && !out.value();
  if (!stages_input && !stages_output) return Status::ok();
  return stage(allocator, request, stages_input, stages_output, operation);
}

uint64_t copy_out_of_staging(const Handle& handle) {
  uint64_t bytes = 0;
  for (const Operation& operation : handle.operations) {
    if (!operation.is_ok || operation.output == nullptr) continue;
    std::memcpy(operation.output, operation.result, operation.output_bytes);
    bytes += operation.output_bytes;
  }
  return bytes;
}

}  // namespace rueda::client
