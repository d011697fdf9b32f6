#include "daemon/gpu/cuda/cuda_stream.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace rueda::gpu::cuda {
namespace {

// So many blocks keep the memory accesses of every multiprocessor in flight.
constexpr uint64_t kBlocksPerMultiprocessor = 4;
constexpr size_t kMaxOfABatch = 255;  // This is the limit of cuStreamBatchMemOp.

}  // namespace

Result<std::unique_ptr<Stream>> CudaStream::make(CudaDevice& device, Priority priority) {
  std::unique_ptr<CudaStream> made(new CudaStream(device));
  int least = 0;
  int greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) {
    const int value = priority == Priority::kHigh ? greatest : least;
    error = cudaStreamCreateWithPriority(&made->stream_, cudaStreamNonBlocking, value);
  }
  const size_t bytes = kSlots * kMaxTableBytes;
  if (error == cudaSuccess) {
    error = cudaMallocHost(reinterpret_cast<void**>(&made->host_tables_), bytes);
  }
  if (error == cudaSuccess) {
    error = cudaMalloc(reinterpret_cast<void**>(&made->device_tables_), bytes);
  }
  for (size_t i = 0; i < kSlots && error == cudaSuccess; ++i) {
    Slot& slot = made->slots_[i];
    slot.host = reinterpret_cast<uint64_t*>(made->host_tables_ + i * kMaxTableBytes);
    slot.device = reinterpret_cast<uint64_t*>(made->device_tables_ + i * kMaxTableBytes);
    error = cudaEventCreateWithFlags(&slot.is_free, cudaEventDisableTiming);
  }
  if (error != cudaSuccess) return device.note(error, "a stream");
  return std::unique_ptr<Stream>(std::move(made));
}

// Calls that fail here fail because the device is lost.
CudaStream::~CudaStream() {
  static_cast<void>(device_.enter());
  for (const Slot& slot : slots_) {
    if (slot.is_free != nullptr) cudaEventDestroy(slot.is_free);
  }
  if (device_tables_ != nullptr) cudaFree(device_tables_);
  if (host_tables_ != nullptr) cudaFreeHost(host_tables_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Status CudaStream::copy_any(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return Status::ok();
  return device_.note(cudaMemcpyAsync(dst, src, bytes, kind, stream_), "a copy");
}

Status CudaStream::copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) {
  if (Status status = device_.enter(); !status.is_ok() || bytes == 0) return status;
  const Result<DeviceAddress> host = device_.device_side(src, bytes);
  if (!host.is_ok()) return host.status();
  return copy_any(reinterpret_cast<void*>(dst), src, bytes, cudaMemcpyHostToDevice);
}

Status CudaStream::copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) {
  if (Status status = device_.enter(); !status.is_ok() || bytes == 0) return status;
  const Result<DeviceAddress> host = device_.device_side(dst, bytes);
  if (!host.is_ok()) return host.status();
  return copy_any(dst, reinterpret_cast<const void*>(src), bytes, cudaMemcpyDeviceToHost);
}

Status CudaStream::copy(DeviceAddress dst, DeviceAddress src, size_t bytes) {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  return copy_any(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes,
                  cudaMemcpyDeviceToDevice);
}

Result<DeviceAddress> CudaStream::counter_at(const uint64_t* counter) const {
  if (reinterpret_cast<uintptr_t>(counter) % sizeof *counter != 0) {
    return Status(Code::kInvalidArgument, "a counter is not aligned to 8 bytes");
  }
  return device_.device_side(counter, sizeof *counter);
}

Status CudaStream::wait_value(const uint64_t* counter, uint64_t value) {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  const Result<DeviceAddress> at = counter_at(counter);
  if (!at.is_ok()) return at.status();
  const CUresult result =
      device_.driver().stream_wait_value(stream_, at.value(), value, CU_STREAM_WAIT_VALUE_GEQ);
  return device_.note(to_runtime(result), "a stream's wait for a counter");
}

Status CudaStream::write_value(uint64_t* counter, uint64_t value) {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  const Result<DeviceAddress> at = counter_at(counter);
  if (!at.is_ok()) return at.status();
  const CUresult result = device_.driver().stream_write_value(stream_, at.value(), value,
                                                              CU_STREAM_WRITE_VALUE_DEFAULT);
  return device_.note(to_runtime(result), "a stream's write of a counter");
}

Status CudaStream::write_values(std::span<const CounterValue> writes) {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  std::array<CUstreamBatchMemOpParams, kMaxOfABatch> batch;
  while (!writes.empty()) {
    const size_t count = std::min(writes.size(), batch.size());
    for (size_t i = 0; i < count; ++i) {
      const Result<DeviceAddress> at = counter_at(writes[i].counter);
      if (!at.is_ok()) return at.status();
      batch[i] = {};
      auto& write = batch[i].writeValue;
      write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      write.address = at.value();
      write.value64 = writes[i].value;
      // The first write has a barrier: a reader that sees it sees all earlier work.
      write.flags =
          i == 0 ? CU_STREAM_WRITE_VALUE_DEFAULT : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    }
    const CUresult result =
        device_.driver().stream_batch(stream_, static_cast<unsigned int>(count), batch.data(), 0);
    if (result != CUDA_SUCCESS) return device_.note(to_runtime(result), "a stream's writes");
    writes = writes.subspan(count);
  }
  return Status::ok();
}

Result<CudaStream::Slot*> CudaStream::free_slot() {
  for (Slot& slot : slots_) {
    const cudaError_t error = cudaEventQuery(slot.is_free);
    if (error == cudaSuccess) return &slot;
    if (error != cudaErrorNotReady) return device_.note(error, "a stream");
  }
  return Status(Code::kUnavailable, "the stream has " + std::to_string(kSlots) +
                                        " large batches under way; try again when one is done");
}

Status CudaStream::launch_with(const Batch& batch, Launch& args) {
  const uint64_t most = device_.multiprocessors() * kBlocksPerMultiprocessor;
  const auto blocks = static_cast<uint32_t>(std::min(args.shape.tiles, most));
  return device_.note(launch(batch, args, blocks, stream_), "a reduction");
}

Status CudaStream::launch_with_slot(const Batch& batch, Launch& args) {
  const Result<Slot*> found = free_slot();
  if (!found.is_ok()) return found.status();
  const Slot& slot = *found.value();
  args.shape = fill_table(batch, {slot.host, kMaxTableBytes / sizeof(uint64_t)});
  args.table = slot.device;
  Status status = copy_any(slot.device, slot.host, table_bytes(batch), cudaMemcpyHostToDevice);
  if (status.is_ok()) status = launch_with(batch, args);
  // The event is also recorded when the launch has failed, because the copy may be under way.
  const cudaError_t error = cudaEventRecord(slot.is_free, stream_);
  return status.is_ok() ? device_.note(error, "a reduction") : status;
}

Status CudaStream::reduce(const Batch& batch) {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  if (Status status = check_batch(batch); !status.is_ok()) return status;
  if (batch.segments.empty()) return Status::ok();
  Launch args{.scales = {batch.prescale, batch.postscale, batch.divisor}};
  if (table_bytes(batch) > sizeof args.inline_table) return launch_with_slot(batch, args);
  args.shape = fill_table(batch, args.inline_table);
  return launch_with(batch, args);
}

Result<bool> CudaStream::is_idle() {
  if (Status status = device_.enter(); !status.is_ok()) return status;
  const cudaError_t error = cudaStreamQuery(stream_);
  if (error == cudaErrorNotReady) return false;
  if (error != cudaSuccess) return device_.note(error, "work on a stream");
  return true;
}

}  // namespace rueda::gpu::cuda
