// Tensors in device memory that the GPU worker cannot open. A stream copies them to pinned host
// memory (device/staged_copies.h), which the worker reads and writes in their place. The result is
// copied back by the stream of rueda_device_wait, or by rueda_wait.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "client/src/session/session.h"

namespace rueda::client {
namespace {

// The interval at which a thread that waits for room looks at what streams have done: nothing
// signals it.
constexpr TicksMs kLookMs = 1;

}  // namespace

void Session::say_staged(const Status& why) const {
  std::fprintf(stderr,
               "rueda: rank %d: %s; tensors in such memory are copied to pinned host memory and "
               "back, which is slower. If this process and the daemon are in containers, let both "
               "have the host's PID and IPC namespaces (hostPID and hostIPC; --pid=host and "
               "--ipc=host)\n",
               config_.rank, why.message().c_str());
}

std::unique_ptr<StagedCopies> Session::make_staged_copies(DeviceDriver& driver,
                                                          const rueda_abi_device_memory& counters) {
  StagedCopies::Registrar registrar{
      .add =
          [this, body = counters](int memfd, uint64_t bytes) mutable {
            body.kind = RUEDA_ABI_DEVICE_STAGING;
            body.bytes = bytes;
            return link_.request(RUEDA_ABI_DEVICE_ADD, &body, sizeof(body), memfd,
                                 kDeviceTimeoutMs);
          },
      .remove = [this](uint32_t id) { return remove_device_memory(id); }};
  return std::make_unique<StagedCopies>(driver, std::move(registrar),
                                        static_cast<uint64_t>(config_.device_staging_bytes));
}

Status Session::stage_on_device(const TensorRequest& request, Operation& operation) {
  const auto& all = operation.handle->operations;
  const auto own = static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [](const Operation& other) { return other.staged.has_value(); }));
  while (!operation.staged) {
    const bool is_alone = staged_copies_->taken() <= own;
    Result<std::optional<StagedCopies::Block>> block = staged_copies_->take(request.bytes());
    if (block.is_ok() && !block.value() && is_alone) {
      block =
          Status{Code::kResourceExhausted,
                 "its group is larger than the " + std::to_string(config_.device_staging_bytes) +
                     " bytes of host memory for device memory that the GPU worker cannot open: "
                     "raise RUEDA_DEVICE_STAGING_BYTES, or split the group"};
    }
    if (!block.is_ok()) {
      return {block.status().code(),
              "tensor \"" + std::string(request.name()) + "\": " + block.status().message()};
    }
    operation.staged = block.value();
    if (operation.staged) break;
    Lock lock = link_.lock();
    if (link_.over()) return *link_.over();
    copy_out_ended_locked();
    // Operations in flight may only end if the job leaves a locked schedule.
    if (handles_.in_flight_count() > 0)
      link_.set_waited_ticket(handles_.first_in_flight().record.ticket);
    link_.wait_until(
        lock, [this] { return link_.over().has_value(); }, steady_now_ms() + kLookMs);
    link_.set_waited_ticket(0);
  }
  operation.handle->is_staged = true;
  rueda_abi_submission& record = operation.record;
  if (request.input_bytes > 0) {
    record.input_arena = operation.staged->memory_id();
    record.input_offset = operation.staged->offset();
  }
  if (request.output_bytes > 0) {
    record.output_arena = operation.staged->memory_id();
    record.output_offset = operation.staged->offset();
  }
  if (!request.writes_output) operation.on_device[1] = {};
  return Status::ok();
}

void Session::copy_out_ended_locked() {
  for (const auto& handle : handles_.all()) {
    if (handle->id == 0 || handle->is_abandoned) continue;
    for (Operation& operation : handle->operations) {
      if (!operation.is_done || !operation.has_staged_result() ||
          operation.staged->is_result_claimed()) {
        continue;
      }
      const StagedCopies::Turn turn = operation.staged->claim_result();
      const std::span<const std::byte> output = operation.on_device[1];
      const Status status = staged_copies_->copy_out(*operation.staged, turn,
                                                     reinterpret_cast<uint64_t>(output.data()),
                                                     output.size(), RUEDA_NO_STREAM);
      operation.is_result_on_own_stream = true;
      if (!status.is_ok() && handle->error.is_ok()) handle->error = status;
      staged_copies_->give_back(*std::exchange(operation.staged, std::nullopt));
    }
  }
}

Status Session::copy_out_staged(Handle& handle) {
  bool is_to_be_finished = false;
  Status failed;
  for (Operation& operation : handle.operations) {
    is_to_be_finished |= operation.is_result_on_own_stream;
    if (!operation.has_staged_result() || operation.staged->is_result_claimed()) continue;
    const std::span<const std::byte> output = operation.on_device[1];
    Status status = staged_copies_->copy_out(*operation.staged, operation.staged->claim_result(),
                                             reinterpret_cast<uint64_t>(output.data()),
                                             output.size(), RUEDA_NO_STREAM);
    if (failed.is_ok()) failed = std::move(status);
    is_to_be_finished = true;
  }
  if (!is_to_be_finished) return failed;
  Status finished = staged_copies_->finish();
  return failed.is_ok() ? finished : failed;
}

}  // namespace rueda::client
