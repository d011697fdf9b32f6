// An operation is one submission in flight; a handle is what one call submitted, a tensor or a
// group. Both are plain data: the session's handle table owns them (handle_table.h). While a thread
// prepares or ends a handle, it alone touches it; while the handle is in flight, whoever holds the
// session's mutex does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/device/staged_copies.h"
#include "daemon/base/status.h"

namespace rueda::client {

struct Handle;

struct Operation {
  Handle* handle = nullptr;
  std::string_view name;  // its characters live as long as the operation is in flight
  rueda_abi_submission record{};
  std::byte* staging = nullptr;       // is a block of the allocator, freed at the end
  const std::byte* result = nullptr;  // is the result inside `staging`
  std::byte* output = nullptr;        // is where `result` is copied to at the end; NULL: nowhere
  size_t output_bytes = 0;
  size_t bytes = 0;  // is the size of the input or the output, whichever is larger
  // The caller's memory in use, where it is in an arena.
  const std::byte* arena_data[2] = {nullptr, nullptr};
  std::array<std::shared_ptr<const void>, 2> joins;     // hold the joined device memory in use
  std::array<std::span<const std::byte>, 2> on_device;  // is the caller's device memory
  // The worker uses this block in place of that memory.
  std::optional<StagedCopies::Block> staged;
  // The result is copied out on the staged copies' own stream.
  bool is_result_on_own_stream = false;
  bool is_done = false;
  bool is_ok = false;
  bool is_on_device = false;
  bool holds_tensor = false;  // the record's tensor id is held, and has to be released
  // The number that the operation has while a stream waits for it; 0: no stream does.
  uint64_t stream_wait = 0;

  // Makes this a new operation of the handle.
  void begin(Handle& of);
  // Returns true if the operation is staged and has a result that is to be copied to the device,
  // or has been.
  bool has_staged_result() const;
};

// What is called when a handle has ended (rueda_then); none if there is no function.
struct Callback {
  rueda_callback function = nullptr;
  void* argument = nullptr;
};

// Handles are used again and again, so that a submission allocates nothing.
struct Handle {
  rueda_handle id = 0;  // 0: the handle is free, or is being ended
  uint32_t place = 0;   // is the handle's index in the table
  bool is_abandoned = false;
  bool is_staged = false;      // some operation is staged
  bool holds_tensors = false;  // some operation holds its tensor's id
  // Tensor ids that repeated submissions do not use any more. Until this handle has ended, there
  // may be submissions of these ids in the ring, in front of this handle's.
  std::vector<uint32_t> outdated;
  uint64_t copied_in_bytes = 0;
  std::vector<Operation> operations;
  size_t pending = 0;  // counts the operations that have not ended
  Status error;        // is the error of the operation that failed first
  rueda_result result{};
  Callback callback;
  Handle* next = nullptr;  // is behind this one among those that have ended (callbacks.h)
  uint32_t waiters = 0;    // counts the threads in rueda_wait
};

}  // namespace rueda::client
